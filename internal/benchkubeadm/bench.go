package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/release"
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
	dir    string // .bench-kubeadm
	out    io.Writer
	report *progress.Reporter

	cli   string // terraform or tofu
	files release.Kubeadm
}

func (b *bench) path(elem ...string) string {
	return filepath.Join(append([]string{b.dir}, elem...)...)
}

// run measures both sides, or only one of them, in turn, and prints what each took. Logs stay in
// the directory. Of the labs nothing is left.
func (b *bench) run(ctx context.Context, rounds int, only string) error {
	if err := b.setUp(ctx); err != nil {
		return err
	}
	sides := []struct {
		name    string
		measure func(context.Context, *lab, clock) error
	}{{sideKubeadm, b.kubeadm}, {sideApply, b.apply}}
	found := figures{}
	for n := range rounds {
		for _, side := range sides {
			if only != "" && side.name != only {
				continue
			}
			b.report.Line(fmt.Sprintf("==> round %d of %d: %s", n+1, rounds, side.name))
			took, err := b.inLab(ctx, fmt.Sprintf("%d-%s", n+1, side.name), side.measure)
			if err != nil {
				return fmt.Errorf("round %d, %s: %w\nThe output of all programs is in %s", n+1, side.name, err, b.path("logs"))
			}
			b.report.Line("    " + took.String())
			found[side.name] = append(found[side.name], took)
		}
	}
	_, err := io.WriteString(b.out, "\n"+found.text(thisComputer()))
	return err
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
	if b.files, err = release.EnsureKubeadm(ctx, options); err != nil {
		return err
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
// name is that of the log.
func (b *bench) inLab(ctx context.Context, name string, measure func(context.Context, *lab, clock) error) (took measurement, err error) {
	log, err := os.Create(b.path("logs", name+".log"))
	if err != nil {
		return took, err
	}
	defer func() { err = errors.Join(err, b.down(context.WithoutCancel(ctx)), log.Close()) }()
	l, err := b.up(ctx, log)
	if err != nil {
		return took, err
	}
	err = measure(ctx, l, func(measured func(context.Context) error) error {
		syscall.Sync() // what was prepared is on the disk when the clock starts
		ctx, cancel := context.WithTimeoutCause(ctx, measureLimit, fmt.Errorf("not done within %s", measureLimit))
		defer cancel()
		before, began := processorTime(), time.Now()
		err := measured(ctx)
		took = measurement{Took: time.Since(began), Processors: processorTime() - before}
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return err
	})
	return took, err
}

// clock measures a function.
type clock func(measured func(context.Context) error) error

// apply measures a whole apply of the example, from nothing to the end of its last resource.
func (b *bench) apply(ctx context.Context, l *lab, clock clock) error {
	ws, err := l.workspace(ctx, filepath.Join(b.root, "examples", "ha-cluster"))
	if err != nil {
		return err
	}
	return clock(func(ctx context.Context) error {
		_, err := ws.Apply(ctx)
		return err
	})
}
