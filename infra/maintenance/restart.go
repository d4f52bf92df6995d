package maintenance

import (
	"context"
	"fmt"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// Change is a change of a machine's power.
type Change struct {
	Runs    bool // it runs now
	Stops   bool // it is off afterwards
	Restart bool // it is stopped and started, such as for another instance type
	Pauses  bool // it stops with its whole cluster
	Resumes bool // it was stopped with its whole cluster
}

// Restart is the stop, the start, or both, of one machine.
type Restart struct {
	Done func() // ends the machine's turn; never nil

	m         Machine
	turns     *Turns
	change    Change
	duty      *Duty // nil until what the machine does is known
	suspended bool  // the machine has been prepared to be stopped, and the others run on
}

// Begin waits for the machine's turn if the change stops it. A machine that is off does not wait for its
// turn; if it is to run, the others wait for it. A whole cluster that is paused takes one turn, see
// [Turns.Pause]. The restart is never nil; the error is the context's.
func Begin(ctx context.Context, turns *Turns, m Machine, c Change) (*Restart, error) {
	r := &Restart{m: m, Done: func() {}, turns: turns, change: c}
	var err error
	switch {
	case c.Stops && (!c.Runs || c.Pauses):
	case !c.Runs:
		r.Done = turns.Start(m.Name)
	case c.Stops, c.Restart:
		r.Done, err = turns.Take(ctx)
	}
	return r, err
}

// Stop prepares the machine to be stopped, see [Duty.Suspend].
func (r *Restart) Stop(ctx context.Context, now Sight) error {
	duty, err := now.Find(ctx)
	if err != nil {
		return fmt.Errorf("not stopped, since what runs on it is not known: %w", err)
	}
	r.duty = duty
	err = duty.Suspend(ctx, r.turns.Leaving)
	r.suspended = err == nil
	return err
}

// Suspended reports whether the machine has been prepared to be stopped while the others run on.
func (r *Restart) Suspended() bool { return r.suspended }

// Resume waits until the started machine is healthy again. A machine that was found stopped does
// again what an interrupted change has noted on it; on a machine that somebody has stopped there is
// nothing to wait for. Machines of a cluster that was paused do not wait: the roles renew
// certificates and start what the machines need from one another.
func (r *Restart) Resume(ctx context.Context, now Sight) error {
	if r.change.Resumes {
		return nil
	}
	if r.duty == nil {
		duty, err := now.Find(ctx)
		if err != nil {
			return fmt.Errorf("started, but what it was stopped from is not known: %w", err)
		}
		if !duty.Interrupted() {
			return nil
		}
		r.duty = duty
	}
	return r.duty.Resume(ctx, now.At.Host)
}

// Abandon undoes Stop if the machine runs: it was not stopped after all, or it was started again.
func (r *Restart) Abandon(ctx context.Context) {
	if !r.suspended {
		return // Suspend itself has undone what it did
	}
	if now, err := r.m.look(ctx); err == nil && now.Power == Running {
		r.duty.Restore(ctx, now.At.Host)
	}
}

// Notes returns what failed without stopping the restart.
func (r *Restart) Notes() []finding.Finding {
	if r.duty == nil {
		return nil
	}
	return slices.Compact(r.duty.Notes())
}
