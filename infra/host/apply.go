package host

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

var (
	//go:embed apply.sh
	applyFunctions string
	//go:embed apply_download.sh
	downloadFunctions string
	//go:embed apply_packages.sh
	packageFunctions string
	//go:embed trust.sh
	trustFunctions string
)

const (
	// defaultLimit bounds all waits on the machine together (downloads, starts of units) when the
	// context has no earlier deadline.
	defaultLimit = 30 * time.Minute
	// reportTime is how long before the context's deadline a script gives up, so that it can still
	// report what it waited for.
	reportTime = 2 * time.Second
	// journalLines is how many lines of a failed unit's journal an error quotes.
	journalLines = 10
)

// Apply makes exactly the given changes in one round trip, and verifies the result by observing the
// machine again within it. The changes must come from Diff for the same want and rec.
//
// The machine downloads and verifies all programs before anything is installed. A file gets its
// name only when it is complete and has its owner and mode. Units restart in the order of want, and
// only those that a change names.
//
// To make only some of the changes, pass those with a want that leaves out what the others are
// about. If a change restarts a unit that is left out, the next Diff reports the restart as
// pending.
//
// The returned record describes what is on the machine now; with an error, as much as is known. The
// error is an [*ApplyError], a [*ChecksumError] or one of package remote's.
func Apply(ctx context.Context, r Runner, want desired.State, changes []Change, rec Record, opts Options) (Record, error) {
	return standardLayout().apply(ctx, r, want, changes, rec, opts)
}

func (l layout) apply(ctx context.Context, r Runner, want desired.State, changes []Change, rec Record, opts Options) (Record, error) {
	if len(changes) == 0 {
		return rec, nil
	}
	want = l.expand(want)
	if err := validate(want); err != nil {
		return rec, &ApplyError{Machine: r.Name(), Step: Step{Kind: StepPrepare}, Err: err}
	}
	p, err := l.newPlan(want, changes)
	if err != nil {
		return rec, &ApplyError{Machine: r.Name(), Step: Step{Kind: StepPrepare}, Err: err}
	}
	cmd := remote.Command{
		Name:   "apply",
		Script: l.preamble() + applyFunctions + downloadFunctions + packageFunctions + trustFunctions + l.script(p, want, opts, limit(ctx)) + l.observeScript(want, rec),
		Sudo:   true,
	}
	if len(p.files) > 0 {
		upload, err := archive(p.files)
		if err != nil {
			return rec, &ApplyError{Machine: r.Name(), Step: Step{Kind: StepPrepare}, Err: err}
		}
		cmd.Stdin = bytes.NewReader(upload)
	}
	a, out, err := runApply(ctx, r, cmd, want, rec, opts)
	if err != nil {
		return a.rec, err
	}
	return l.verify(ctx, r, p, want, a.rec, out, opts)
}

// runApply runs an apply script and reads its reports as they arrive.
func runApply(ctx context.Context, r Runner, cmd remote.Command, want desired.State, rec Record, opts Options) (*answers, remote.Output, error) {
	a := &answers{machine: r.Name(), want: want, progress: opts.Progress,
		rec: Record{Files: maps.Clone(rec.Files)}}
	cmd.Tee = a
	out, err := r.Run(ctx, cmd)
	var failed *ApplyError
	switch {
	case a.err != nil:
		err = a.err // more specific than the exit status
		if errors.As(err, &failed) {
			failed.explain(ctx, r)
		}
	case err != nil && a.last != "":
		err = fmt.Errorf("%s, while %s: %w", cmd.Name, a.last, err)
	case err != nil:
		err = fmt.Errorf("%s: %w", cmd.Name, err)
	}
	return a, out, err
}

// verify compares the machine after the changes with what is wanted.
func (l layout) verify(ctx context.Context, r Runner, p plan, want desired.State, rec Record, out remote.Output, opts Options) (Record, error) {
	obs, err := parseObservation(out.Stdout, observedUnits(want), rec)
	if err != nil {
		return rec, &ApplyError{Machine: r.Name(), Step: Step{Kind: StepVerify}, Err: err}
	}
	failure := &ApplyError{Machine: r.Name(), Step: Step{Kind: StepVerify}}
	left := slices.DeleteFunc(l.diff(want, obs, rec), func(c Change) bool {
		// If want is only a part of a state, unit files of the rest look foreign.
		return c.Kind == finding.DropIn && !slices.Contains(p.drops, c.Target) || c.Kind == finding.Unit && opts.SkipRestart
	})
	for _, u := range p.units {
		got, started := obs.Units[u.Name], u.Active && (u.ensure || u.action == "restart") && !opts.SkipRestart
		if started && (got.Restarts > 0 || got.waits()) {
			left = slices.DeleteFunc(left, func(c Change) bool { return c.Kind == finding.Unit && c.Target == u.Name })
			left = append(left, Change{Finding: finding.Finding{Kind: finding.Unit, Target: u.Name, Problem: finding.Activity,
				Found: finding.FailedAtStart, Wanted: finding.Running, Cause: got.cause()}})
		}
	}
	rec = l.adopt(want, obs, rec)
	if len(left) == 0 {
		return rec, nil
	}
	for _, c := range left {
		if c.Kind == finding.Unit && failure.Unit == "" {
			failure.Unit = c.Target
		}
	}
	failure.Err = &UnmetError{Left: Findings(left)}
	failure.explain(ctx, r)
	return rec, failure
}

// explain adds what the machine knows of the cause.
func (e *ApplyError) explain(ctx context.Context, r Runner) {
	if e.Unit != "" {
		e.Journal = Journal(ctx, r, e.Unit, journalLines)
	}
	e.Causes = Causes(ctx, r, e.Said+"\n"+e.Journal)
}

// Prefetch downloads and verifies the programs that the machine needs for want, without installing
// anything, so that a later Apply only moves them into place. It skips what is installed according
// to rec. The errors are Apply's.
func Prefetch(ctx context.Context, r Runner, want desired.State, rec Record) error {
	return standardLayout().prefetch(ctx, r, want, rec)
}

func (l layout) prefetch(ctx context.Context, r Runner, want desired.State, rec Record) error {
	if err := validate(want); err != nil {
		return &ApplyError{Machine: r.Name(), Step: Step{Kind: StepPrepare}, Err: err}
	}
	var needed []desired.Binary
	for _, b := range want.Binaries {
		if slices.ContainsFunc(b.Installs, func(i desired.Install) bool { return rec.Files[i.Path].Source != b.SHA256 }) {
			needed = append(needed, b)
		}
	}
	if len(needed) == 0 {
		return nil
	}
	var s script
	fmt.Fprintf(&s, "limit=%d\n", limit(ctx))
	s.call("begin")
	s.call("lock")
	s.trust(want)
	s.fetch(needed)
	s.fetched(needed)
	cmd := remote.Command{Name: "prefetch", Script: l.preamble() + applyFunctions + downloadFunctions + trustFunctions + s.String(), Sudo: true}
	_, _, err := runApply(ctx, r, cmd, want, rec, Options{})
	return err
}

// PrefetchedProgram returns where the program lies that Prefetch has downloaded for a path of want,
// before Apply installs it there. If it is in an archive, program is where to unpack member of it; name
// tells such programs apart. Apply removes what is left there.
func PrefetchedProgram(want desired.State, installed, name string) (program, archive, member string) {
	cache := standardLayout().cache
	for _, b := range want.Binaries {
		for _, i := range b.Installs {
			switch {
			case i.Path != installed:
			case i.Member == "":
				return path.Join(cache, b.SHA256), "", ""
			default:
				return path.Join(cache, name+".unpacked"), path.Join(cache, b.SHA256), i.Member
			}
		}
	}
	return installed, "", ""
}

// limit is how many seconds a script may wait so that it ends before the context does.
func limit(ctx context.Context) int {
	d := patience.Of(ctx, defaultLimit)
	if deadline, ok := ctx.Deadline(); ok {
		d = min(d, time.Until(deadline)-reportTime)
	}
	return max(int(d.Seconds()), 1)
}

// answers reads the frames that an apply script writes before its observation, as they arrive.
type answers struct {
	machine  string
	want     desired.State
	progress func(string)

	pending []byte
	done    bool
	last    string // progress
	rec     Record
	err     error
}

var _ io.Writer = (*answers)(nil)

// maxFrame bounds one report of a script. The longest ones quote what a program said.
const maxFrame = 1 << 20

// Write fails only for a report without an end, which ends the script.
func (a *answers) Write(p []byte) (int, error) {
	if a.done {
		return len(p), nil
	}
	a.pending = append(a.pending, p...)
	for {
		frame, rest, ok := bytes.Cut(a.pending, []byte{0})
		if len(frame) > maxFrame {
			a.pending, a.done = nil, true
			return 0, &foreign.TooMuchError{From: fmt.Sprintf("machine %s, in one report of its script,", a.machine), Limit: maxFrame}
		}
		if !ok {
			return len(p), nil
		}
		a.frame(string(frame))
		a.pending = rest
		if a.done {
			a.pending = nil
			return len(p), nil
		}
	}
}

// installs reports whether a program was to be installed as path: other programs do not get into the
// record.
func (a *answers) installs(path string) bool {
	return slices.ContainsFunc(a.want.Binaries, func(b desired.Binary) bool {
		return slices.ContainsFunc(b.Installs, func(i desired.Install) bool { return i.Path == path })
	})
}

func (a *answers) frame(frame string) {
	kind, rest, _ := strings.Cut(frame, " ")
	switch kind {
	case "progress":
		a.last = rest
		if a.progress != nil {
			a.progress(rest)
		}
	case "installed":
		fields := strings.SplitN(rest, " ", 3)
		if len(fields) != 3 {
			return
		}
		path, f, err := parseStat("0:0:0:::" + fields[2])
		if err != nil || !a.installs(path) {
			return
		}
		if a.rec.Files == nil {
			a.rec.Files = map[string]FileRecord{}
		}
		a.rec.Files[path] = FileRecord{SHA256: fields[0], Source: fields[1], Size: f.Size, MTime: f.MTime, Inode: f.Inode}
	case "mismatch":
		wanted, got, _ := strings.Cut(rest, " ")
		for _, b := range a.want.Binaries {
			if b.SHA256 == wanted {
				a.err = &ChecksumError{Machine: a.machine, Name: title(b), URL: b.URL, Wanted: wanted, Got: got}
			}
		}
	case "failed":
		a.err = stepError(a.machine, rest, a.want)
	case "observation":
		a.done = true
	}
}
