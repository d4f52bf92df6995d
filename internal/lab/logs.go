package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/nxadm/tail"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
)

// Logs writes the daemon's log, or the log of API calls, with its older parts. If follow is set it
// waits for more until ctx ends.
func (l *Lab) Logs(ctx context.Context, w io.Writer, calls, follow bool) error {
	name := logFile
	if calls {
		name = callsFile
	}
	parts, err := l.logParts(name)
	if err != nil {
		return err
	}
	for n, part := range parts {
		last := n == len(parts)-1
		if _, err := os.Stat(part); last && errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: there is no %s", ErrNotRunning, part)
		}
		if err := show(ctx, w, part, follow && last); err != nil {
			return err
		}
	}
	return nil
}

// Console writes what an instance's console printed, over all its boots. The instance may be
// stopped; it is given as in Exec. If follow is set it waits for more until ctx ends.
func (l *Lab) Console(ctx context.Context, instance string, w io.Writer, follow bool) error {
	o, err := l.Overview(ctx)
	if err != nil {
		return err
	}
	i, err := choose(o.Instances, instance)
	if err != nil {
		return err
	}
	return show(ctx, w, machine.ConsoleLog(l.dir, i.ID), follow)
}

// show writes a file's lines. If follow is set it waits for more, also after a rotation.
func show(ctx context.Context, w io.Writer, name string, follow bool) error {
	t, err := tail.TailFile(name, tail.Config{Follow: follow, ReOpen: follow, MustExist: true, Logger: tail.DiscardingLogger})
	if err != nil {
		return fmt.Errorf("reading a log: %w", err)
	}
	defer t.Cleanup()
	for {
		select {
		case <-ctx.Done():
			return t.Stop()
		case line, ok := <-t.Lines:
			if !ok {
				return t.Wait()
			}
			if _, err := io.WriteString(w, line.Text+"\n"); err != nil {
				return errors.Join(err, t.Stop())
			}
		}
	}
}
