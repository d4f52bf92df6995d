package host

import (
	"fmt"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// ApplyError says at which step an Apply ended.
type ApplyError struct {
	Machine string
	Step    Step
	Unit    string // the systemd unit concerned, if one is
	Err     error
	Room    *Room             // what is left where the step writes, when that was not enough
	Causes  []finding.Finding // what the machine told about the cause
	Journal string            // the end of the unit's journal, redacted
}

// Room is how much is left on a file system.
type Room struct {
	Free, Size    int64  // KiB
	Inodes        string // free ones; "-" where the file system does not count them
	Mount, Device string
}

func (r Room) String() string {
	return fmt.Sprintf("%d of %d KiB and %s inodes are free on %s (%s)", r.Free, r.Size, r.Inodes, r.Mount, r.Device)
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

// Full tells whether it failed for want of room on the machine.
func (e *ApplyError) Full() bool { return e.Room != nil || diskFull.MatchString(e.Err.Error()) }

// Unwrap returns the cause.
func (e *ApplyError) Unwrap() error { return e.Err }

// UnmetError says that the machine is still not as wanted although all was done.
type UnmetError struct {
	Left []finding.Finding // what differs, of which there is something
}

func (e *UnmetError) Error() string {
	return "the machine is still not as wanted: " + finding.Words(e.Left)
}

// ChecksumError says that a download is not what was asked for. Nothing of it
// was installed.
type ChecksumError struct {
	Machine string
	Name    string // of the download, for people
	URL     string
	Wanted  string // hex SHA-256
	Got     string
}

func (e *ChecksumError) Error() string {
	return fmt.Sprintf("machine %s: download %s from %s: checksum mismatch: wanted sha256 %s, got %s; nothing was installed",
		e.Machine, e.Name, e.URL, e.Wanted, e.Got)
}
