package host

import (
	"fmt"
	"strings"
)

// Kind says what a Change is about.
type Kind string

// The kinds of change, in the order in which Diff lists them.
const (
	KindPackage   Kind = "package"
	KindModule    Kind = "kernel module"
	KindSysctl    Kind = "sysctl"
	KindDirectory Kind = "directory"
	KindFile      Kind = "file"
	KindBinary    Kind = "binary"
	KindDropIn    Kind = "drop-in" // a file that changes one of our units and is not ours
	KindUnit      Kind = "unit"
)

// Change is one difference between a machine and what is wanted of it.
type Change struct {
	Kind   Kind
	Target string // path, unit, package, module or sysctl key
	// What differs, e.g. "content differs", "mode" or "missing". It is empty
	// when Found and Wanted say it all.
	What          string
	Found, Wanted string   // in words; digests in full; empty for secrets
	Restarts      []string // units Apply restarts or reloads because of this change
}

// String says it in the words a person reads in a plan.
func (c Change) String() string {
	head := fmt.Sprintf("%s %s: ", c.Kind, c.Target)
	found, wanted := short(c.Found), short(c.Wanted)
	switch {
	case c.What == whatContent && c.Found != "":
		return head + fmt.Sprintf("%s (sha256 found %s, wanted %s)", c.What, found, wanted)
	case c.What == "":
		return head + fmt.Sprintf("%s, wanted %s", found, wanted)
	case c.Found != "" && c.Wanted != "":
		return head + fmt.Sprintf("%s %s, wanted %s", c.What, found, wanted)
	case c.Wanted != "":
		return head + fmt.Sprintf("%s, wanted %s", c.What, wanted)
	default:
		return head + c.What
	}
}

// short abbreviates a SHA-256 digest and leaves everything else as it is.
func short(s string) string {
	if len(s) == 64 && strings.Trim(s, "0123456789abcdef") == "" {
		return s[:12] + ".."
	}
	return s
}

// Words joins the changes into the one line a drift map shows for a machine.
func Words(changes []Change) string {
	words := make([]string, len(changes))
	for i, c := range changes {
		words[i] = c.String()
	}
	return strings.Join(words, "; ")
}

// What differs, in words. Apply tells by them what is left of a file.
const (
	whatMissing       = "missing"
	whatContent       = "content differs"
	whatSecret        = "differs"
	whatMode          = "mode"
	whatNotExecutable = "not executable: mode"
	whatOwner         = "owner"
	whatGroup         = "group"
	whatRestart       = "restart pending from an interrupted apply"
	whatReload        = "reload pending from an interrupted apply"
)

// attributesOnly says whether the content at the path is as wanted.
func (c Change) attributesOnly() bool {
	switch c.What {
	case whatMode, whatNotExecutable, whatOwner, whatGroup:
		return true
	}
	return false
}
