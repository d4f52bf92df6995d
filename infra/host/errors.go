package host

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// ApplyError says at which step an Apply or Remove failed.
type ApplyError struct {
	Machine string
	Step    Step
	Unit    string // the systemd unit concerned, if any
	Err     error
	Said    string            // by the program that failed, redacted; empty when it is not known
	Room    *Room             // free space where the step writes, if there was too little
	Causes  []finding.Finding // causes found on the machine
	Journal string            // the end of the unit's journal, redacted
}

// Room is the free space of a file system.
type Room struct {
	Free, Size    int64  // KiB, or UnknownSize
	Inodes        string // free ones; "-" where the file system does not count them
	Mount, Device string // empty when df printed nothing
}

// UnknownSize is a size that the machine did not report.
const UnknownSize int64 = -1

func (r Room) String() string {
	if r.Mount == "" {
		return "the free space is unknown"
	}
	size := func(kib int64) string {
		if kib == UnknownSize {
			return "-"
		}
		return strconv.FormatInt(kib, 10)
	}
	return fmt.Sprintf("%s of %s KiB and %s inodes are free on %s (%s)", size(r.Free), size(r.Size), r.Inodes, r.Mount, r.Device)
}

func (e *ApplyError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "machine %s: %s", e.Machine, e.Step)
	if e.Unit != "" {
		b.WriteString(" " + e.Unit)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	if e.Room != nil {
		fmt.Fprintf(&b, "; %s", e.Room)
	}
	for _, c := range e.Causes {
		b.WriteString("\n" + c.String())
	}
	if j := strings.TrimSpace(e.Journal); j != "" {
		fmt.Fprintf(&b, "\nlast lines of the journal of %s:\n%s", e.Unit, j)
	}
	return b.String()
}

// Full reports whether the step failed for lack of disk space.
func (e *ApplyError) Full() bool { return e.Room != nil || diskFull.MatchString(e.Said) }

// Unwrap returns the cause.
func (e *ApplyError) Unwrap() error { return e.Err }

// UnmetError says that the machine is still not as wanted after all changes.
type UnmetError struct {
	Left []finding.Finding // the remaining differences, at least one
}

func (e *UnmetError) Error() string {
	return "the machine is still not as wanted: " + finding.Words(e.Left)
}

// ChecksumError says that a download does not have the wanted checksum. Nothing of it was
// installed.
type ChecksumError struct {
	Machine string
	Name    string // the download's name, for people
	URL     string
	Wanted  string // hex SHA-256
	Got     string
}

func (e *ChecksumError) Error() string {
	return fmt.Sprintf("machine %s: download %s from %s: checksum mismatch: wanted sha256 %s, got %s; nothing was installed",
		e.Machine, e.Name, e.URL, e.Wanted, e.Got)
}
