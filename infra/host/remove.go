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

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

//go:embed remove.sh
var removeFunctions string

// Remove removes from the machine what want put there, in one round trip: it stops and disables the
// units, last one first, and deletes files, programs and extraDirs with everything in them.
// Packages, modules and live sysctls stay, because others may need them. Pod volumes mounted below
// an extra directory are unmounted and never emptied. What does not exist is no error. The error
// lists what could not be removed.
func Remove(ctx context.Context, r Runner, want desired.State, extraDirs []string) error {
	return standardLayout().remove(ctx, r, want, extraDirs)
}

// unknownSum stands for the checksum of a download that is not known.
var unknownSum = strings.Repeat("0", 64)

func (l layout) remove(ctx context.Context, r Runner, want desired.State, extraDirs []string) error {
	want = l.expand(want)
	want.Binaries = slices.Clone(want.Binaries)
	for i := range want.Binaries {
		// What is not known was not looked up. It has no receipt that could be deleted.
		want.Binaries[i].SHA256 = cmp.Or(want.Binaries[i].SHA256, unknownSum)
	}
	if err := validate(want); err != nil {
		return &ApplyError{Machine: r.Name(), Step: Step{Kind: StepRemove}, Err: err}
	}
	var s script
	fmt.Fprintf(&s, "limit=%d\n", limit(ctx))
	s.call("begin")
	s.call("lock")
	units := unitNames(want)
	slices.Reverse(units)
	s.callAll("remove_units", units)
	files := want.Paths()
	for _, u := range units {
		for _, dir := range l.foreign[:slices.Index(l.foreign, l.units)+1] {
			s.call("remove_directory", path.Join(dir, u+".d"))
		}
	}
	s.callAll("remove_files", files)
	for _, dir := range extraDirs {
		if !path.IsAbs(dir) || path.Clean(dir) != dir || strings.Count(dir, "/") < 2 {
			return &ApplyError{Machine: r.Name(), Step: Step{Kind: StepRemove}, Err: fmt.Errorf("refusing to delete %q", dir)}
		}
		s.call("remove_directory", dir)
	}
	for _, b := range want.Binaries {
		s.call("forget", b.SHA256)
	}
	if len(units) > 0 {
		s.call("daemon_reload")
		s.call("systemctl reset-failed 2>/dev/null --", units...)
	}
	s.call("frame", "removed")

	var left []string
	var failed *ApplyError
	out, err := r.Run(ctx, remote.Command{Name: "remove",
		Script: l.preamble() + applyFunctions + downloadFunctions + removeFunctions + s.String() + ":\n", Sudo: true})
	for frame := range strings.SplitSeq(string(out.Stdout), "\x00") {
		switch kind, rest, _ := strings.Cut(frame, " "); kind {
		case "left":
			left = append(left, remote.Redact(rest))
		case "failed":
			failed = stepError(r.Name(), rest, want)
		}
	}
	switch {
	case failed != nil:
		return failed
	case err != nil:
		return fmt.Errorf("remove: %w", err)
	case len(left) > 0:
		said := strings.Join(left, "; ")
		return &ApplyError{Machine: r.Name(), Step: Step{Kind: StepRemove}, Err: errors.New(said), Said: said}
	}
	return nil
}
