package host

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

//go:embed remove.sh
var removeFunctions string

// Removal is what [Remove] takes from a machine.
type Removal struct {
	// State names the units, files and programs; their contents do not matter. What it retires is removed
	// as well, since nobody may have applied it.
	State desired.State
	// Dirs are directories to delete with everything in them, by absolute paths.
	Dirs []string
	// First, if set, is a shell script that ends processes that outlive the units. It runs before
	// anything is removed, for at most six minutes. Its failure is no error.
	First string
	// Kill ends the units at once instead of gracefully, except those that undo what they have done.
	Kill bool
	// ClaimFile, if set, is a file that says who owns the role on the machine. It is deleted last.
	// If its content is not Claim, nothing is removed.
	ClaimFile, Claim string
}

// ErrClaimed says that nothing was removed from a machine because another record has claimed it.
var ErrClaimed = errors.New("another state has claimed it")

// removeSilence is how long the machine may take to connect and to begin. A machine that hangs would
// otherwise use up the whole time of a removal.
const removeSilence = time.Minute

var errSilent = errors.New("it accepts connections, and its shell, sudo or disk may hang")

// heard stops a timer when something is written to it.
type heard struct{ timer *time.Timer }

func (h heard) Write(p []byte) (int, error) {
	h.timer.Stop()
	return len(p), nil
}

// Remove removes things from the machine, in one round trip: it stops and disables the units, last
// one first, and deletes files, programs and directories. Retired units go too: a machine that was away
// when they were retired still has them. Packages, modules and live sysctls stay,
// because others may need them. Pod volumes mounted below a directory are unmounted and never
// emptied. What does not exist is no error. The error is ErrClaimed, one of [remote.Machine.Run]'s,
// or lists what could not be removed.
func Remove(ctx context.Context, r Runner, what Removal) error {
	return standardLayout().remove(ctx, r, what)
}

// unknownSum stands for the checksum of a download that is not known.
var unknownSum = strings.Repeat("0", 64)

func (l layout) remove(ctx context.Context, r Runner, what Removal) error {
	want := l.expand(what.State)
	want.Binaries = slices.Clone(want.Binaries)
	for i := range want.Binaries {
		// An unknown checksum was not looked up. It has no receipt that could be deleted.
		want.Binaries[i].SHA256 = cmp.Or(want.Binaries[i].SHA256, unknownSum)
	}
	if err := validate(want); err != nil {
		return &ApplyError{Machine: r.Name(), Step: Step{Kind: StepRemove}, Err: err}
	}
	var s script
	fmt.Fprintf(&s, "limit=%d\n", limit(ctx))
	s.call("begin")
	claim := func() {
		if what.ClaimFile != "" {
			s.call("unless_claimed", what.ClaimFile, what.Claim)
		}
	}
	claim() // whose apply may have the lock for long
	s.call("frame", "begun")
	s.call("lock")
	claim()
	if what.First != "" {
		s.call("first", what.First)
	}
	want.Units = slices.DeleteFunc(slices.Clone(want.Units), func(u desired.Unit) bool { return u.Foreign })
	units := unitNames(want)
	slices.Reverse(units)
	files, retired := want.Paths(), retiredUnits(want)
	for _, r := range want.Retired {
		files = append(files, r.Paths...)
	}
	// Another role may still need the authorities.
	files = slices.DeleteFunc(files, func(p string) bool { return p == l.authorities() })
	s.callAll("remove_known_units", retired) // before end_units: one of them may undo what it has done
	if what.Kill {
		s.callAll("end_units", slices.DeleteFunc(slices.Clone(units), func(name string) bool {
			return slices.ContainsFunc(want.Units, func(u desired.Unit) bool { return u.Name == name && u.Undoes })
		}))
	}
	s.callAll("remove_units", units)
	for _, u := range slices.Concat(units, retired) {
		for _, dir := range l.foreign[:slices.Index(l.foreign, l.units)+1] {
			s.call("remove_directory", path.Join(dir, u+".d"))
		}
	}
	s.callAll("remove_files", files)
	for _, dir := range what.Dirs {
		if !path.IsAbs(dir) || path.Clean(dir) != dir || strings.Count(dir, "/") < 2 {
			return &ApplyError{Machine: r.Name(), Step: Step{Kind: StepRemove}, Err: fmt.Errorf("refusing to delete %q", dir)}
		}
		s.call("remove_directory", dir)
	}
	var sums []string
	for _, b := range want.Binaries {
		sums = append(sums, b.SHA256)
	}
	s.callAll("forget", sums)
	if len(units) > 0 {
		s.call("daemon_reload")
		s.call("systemctl reset-failed 2>/dev/null --", units...)
	}
	if what.ClaimFile != "" {
		s.call("remove_files", what.ClaimFile)
		s.call("distrust_at_last", append([]string{path.Dir(what.ClaimFile)}, want.AuthorityReaders...)...)
	}
	s.call("frame", "removed")

	var left []string
	var failed *ApplyError
	claimed := false
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := patience.Of(ctx, removeSilence)
	silent := time.AfterFunc(silence, func() { cancel(fmt.Errorf("the machine has not begun within %s: %w", silence, errSilent)) })
	defer silent.Stop()
	out, err := r.Run(ctx, remote.Command{Name: "remove", Sudo: true, Tee: heard{silent},
		Script: l.preamble() + applyFunctions + downloadFunctions + trustFunctions + removeFunctions + s.String() + ":\n"})
	for frame := range strings.SplitSeq(string(out.Stdout), "\x00") {
		switch kind, rest, _ := strings.Cut(frame, " "); kind {
		case "left":
			left = append(left, foreign.Text(rest))
		case "claimed":
			claimed = true
		case "failed":
			failed = stepError(r.Name(), rest, want)
		}
	}
	switch {
	case failed != nil:
		return failed
	case err != nil && errors.Is(context.Cause(ctx), errSilent):
		return fmt.Errorf("remove: %w: %w", context.Cause(ctx), err)
	case err != nil:
		return fmt.Errorf("remove: %w", err)
	case claimed:
		return ErrClaimed
	case len(left) > 0:
		said := strings.Join(left, "; ")
		return &ApplyError{Machine: r.Name(), Step: Step{Kind: StepRemove}, Err: errors.New(said), Said: said}
	}
	return nil
}
