package apply

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/release"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/prepared"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

// Time limits. Each is several times what the work takes on two slow processors.
const (
	prepareLimit = 15 * time.Minute // machines, and everything on them
	measureLimit = 15 * time.Minute
	downLimit    = 3 * time.Minute
)

type bench struct {
	root   string // of the repository
	dir    string // .bench-apply
	out    io.Writer
	report *progress.Reporter
	sides  []string
	line   line

	cli   string // terraform or tofu
	files release.Kubeadm
	image string // the AMI that has everything that roles install; empty if no side needs it
}

// line is what each machine gets from the internet, see "k8s-lab fault line --help". The zero line has no
// limits.
type line struct {
	mbit         float64
	milliseconds int
}

func (b *bench) path(elem ...string) string {
	return filepath.Join(append([]string{b.dir}, elem...)...)
}

// run measures the sides in turn, every second round in the opposite order, and prints what each
// took. Logs stay in the directory. Nothing of the labs is left.
func (b *bench) run(ctx context.Context, rounds int) error {
	unlock, err := b.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := b.setUp(ctx); err != nil {
		return err
	}
	image := []string{"-var", "ami=" + b.image}
	measure := map[string]func(context.Context, *lab, clock) error{
		sideKubeadm: b.kubeadm(false), sideNothing: b.kubeadm(true), sideApply: b.applies(way{}), sideUnstaged: b.applies(way{override: unstaged()}),
		sideImage: b.applies(way{args: image}), sideRoles: b.applies(way{args: image, machines: true}),
	}
	var found figures
	for n := range rounds {
		order := slices.Clone(b.sides)
		if n%2 == 1 {
			slices.Reverse(order)
		}
		for _, side := range order {
			b.report.Line(fmt.Sprintf("==> round %d of %d: %s", n+1, rounds, side))
			took, err := b.inLab(ctx, fmt.Sprintf("%d-%s", n+1, side), measure[side])
			if err != nil {
				return fmt.Errorf("round %d, %s: %w\nThe output of all programs is in %s", n+1, side, err, b.path("logs"))
			}
			for _, m := range took {
				m.Side, m.Round = side, n+1
				b.report.Line("    " + m.String())
				found = append(found, m)
			}
		}
	}
	_, err = io.WriteString(b.out, "\n"+found.text(b.sides, thisComputer()))
	return err
}

// lock fails if another process measures in the directory, since each would end the other's labs.
func (b *bench) lock() (unlock func(), err error) {
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return nil, err
	}
	l := flock.New(b.path("lock"))
	switch locked, err := l.TryLock(); {
	case err != nil:
		return nil, err
	case !locked:
		return nil, fmt.Errorf("another run is under way in %s", b.dir)
	}
	return func() { _ = l.Unlock() }, nil
}

// setUp builds the programs, and removes what an earlier run has left.
func (b *bench) setUp(ctx context.Context) error {
	for _, dir := range []string{"bin", "logs"} {
		if err := os.MkdirAll(b.path(dir), 0o755); err != nil {
			return err
		}
	}
	b.report.Line("==> programs")
	stop := b.report.Quiet("go build")
	err := workspace.Build(ctx, b.root, b.path("bin"), ".", "./cmd/...")
	stop()
	if err != nil {
		return err
	}
	options := release.Options{Progress: b.report}
	if slices.Contains(b.sides, sideKubeadm) || slices.Contains(b.sides, sideNothing) {
		if b.files, err = release.EnsureKubeadm(ctx, options); err != nil {
			return err
		}
	}
	if slices.Contains(b.sides, sideImage) || slices.Contains(b.sides, sideRoles) {
		img, err := prepared.Ensure(ctx, prepared.Options{Program: b.path("bin", "k8s-lab"), For: b.path("lab"), Progress: b.report})
		if err != nil {
			return err
		}
		b.image = img.ID
	}
	b.cli, err = workspace.FindCLI(func() (string, error) {
		dir, err := release.EnsureTools(ctx, options)
		return filepath.Join(dir, "tofu"), err
	})
	if err != nil {
		return err
	}
	return b.down(ctx)
}

// inLab starts a lab, measures in it, and ends it with everything in it, also when ctx has ended.
// name is the name of the log.
func (b *bench) inLab(ctx context.Context, name string, measure func(context.Context, *lab, clock) error) (took []measurement, err error) {
	log, err := os.Create(b.path("logs", name+".log"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.down(context.WithoutCancel(ctx)), log.Close()) }()
	l, err := b.up(ctx, log)
	if err != nil {
		return nil, err
	}
	err = measure(ctx, l, func(what string, measured func(context.Context) error) error {
		syscall.Sync() // what was prepared is on the disk when the clock starts
		ctx, cancel := context.WithTimeoutCause(ctx, measureLimit, fmt.Errorf("not done within %s", measureLimit))
		defer cancel()
		before, began := processorTime(), time.Now()
		err := measured(ctx)
		took = append(took, measurement{What: what, Took: time.Since(began), Processors: processorTime() - before})
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return err
	})
	return took, err
}

// clock measures a function that does something.
type clock func(what string, measured func(context.Context) error) error

// way is one way to apply the example.
type way struct {
	override string   // configuration that is added
	args     []string // of each apply
	machines bool     // that are made before the clock starts; then no other worker is measured
}

// unstaged is configuration without staging.
func unstaged() string {
	var b strings.Builder
	for _, name := range []string{"controller", "worker", "lb"} {
		fmt.Fprintf(&b, "resource \"k8s_machine\" %q {\n  stage = null\n}\n", name)
	}
	return b.String()
}

// applies measures a whole apply of the example, to the end of its last resource, and the apply of one more worker.
func (b *bench) applies(w way) func(context.Context, *lab, clock) error {
	return func(ctx context.Context, l *lab, clock clock) error {
		ws, err := l.workspace(ctx, filepath.Join(b.root, "examples", "ha-cluster"))
		if err == nil {
			err = ws.WriteFile("bench_override.tf", w.override)
		}
		if err == nil && w.machines {
			_, err = ws.Apply(ctx, append([]string{"-target", "k8s_machine.controller", "-target", "k8s_machine.worker", "-target", "k8s_machine.lb"}, w.args...)...)
		}
		if err != nil {
			return err
		}
		for _, a := range []struct{ what, workers string }{{whatCluster, "2"}, {whatWorker, "3"}} {
			if w.machines && a.what == whatWorker {
				break
			}
			if err := clock(a.what, func(ctx context.Context) error {
				_, err := ws.Apply(ctx, append([]string{"-var", "workers=" + a.workers}, w.args...)...)
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	}
}
