package host

import (
	"fmt"
	"strings"
)

// ApplyError says at which step an Apply ended.
type ApplyError struct {
	Machine string
	Step    string // "download kubelet v1.36.4", "restart", "verify"
	Unit    string // the systemd unit concerned, if one is
	Err     error
	Causes  []string // what the machine told about the cause, and what to do about it
	Journal string   // the end of the unit's journal, redacted
}

func (e *ApplyError) Error() string {
	step := e.Step
	if e.Unit != "" {
		step += " " + e.Unit
	}
	msg := strings.Join(append([]string{fmt.Sprintf("machine %s: %s: %v", e.Machine, step, e.Err)}, e.Causes...), "\n")
	if j := strings.TrimSpace(e.Journal); j != "" {
		msg += fmt.Sprintf("\nlast lines of the journal of %s:\n%s", e.Unit, j)
	}
	return msg
}

// Full tells whether it failed for want of room on the machine.
func (e *ApplyError) Full() bool {
	return diskFull.MatchString(e.Err.Error()) || strings.Contains(e.Err.Error(), " inodes are free on ")
}

// Unwrap returns the cause.
func (e *ApplyError) Unwrap() error { return e.Err }

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
