package maintenance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// Power is whether a machine runs.
type Power int

const (
	Off      Power = iota // it is stopped or gone, or about to be
	Starting              // it will run
	Running
)

// Sight is the state of a machine at one moment, according to its owner.
type Sight struct {
	Power Power
	At    fleet.Target // where it is reached, if it runs
	// Find waits until it has booted, and finds out what it does, as the function [Find] does. It also calls
	// [Duty.SetControllers].
	Find func(context.Context) (*Duty, error)
}

// Machine is a machine whose power its owner changes.
type Machine struct {
	Name string
	Look func(context.Context) (Sight, error) // asks its owner; a machine that is gone is Off
}

const (
	// askAgain is the pause before a machine that did not say what runs on it is asked once more.
	askAgain = 2 * time.Second
	// lastLook limits the question whether a machine runs after a change has failed.
	lastLook = 30 * time.Second
)

// look is Look after a change, whose context may have ended. A machine that is starting is awaited.
func (m Machine) look(ctx context.Context) (Sight, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience.Of(ctx, lastLook))
	defer cancel()
	for {
		now, err := m.Look(ctx)
		if err != nil || now.Power != Starting {
			return now, err
		}
		select {
		case <-ctx.Done():
			return now, nil
		case <-time.After(askAgain):
		}
	}
}

// Succession is what follows a machine that is terminated.
type Succession int

const (
	NoSuccessor    Succession = iota // the machine ends for good
	WithoutItsData                   // another machine follows, and the data of its etcd member end with it
	WithItsData                      // the machine that follows has the volume with the data of its etcd member
)

// Departing is a machine that is about to be terminated.
type Departing struct {
	Machine
	PrivateIP string
	Next      Succession
	// Idle says that it has nothing to leave, such as the machine of a load balancer. It is not asked.
	Idle bool
	// Member says that it may have a member of etcd. If such a machine answers but does not say what runs
	// on it, it is not terminated: a member that has not left may cost the cluster its quorum. Any other
	// machine that does not say what runs on it is terminated anyway, since it may be broken.
	Member bool
	// Stop says how its owner stops it, such as "stop the instance i-0123". A stopped machine is not
	// asked.
	Stop string
	// Within limits what follows once it is the machine's turn. It must be set.
	Within func(context.Context) (context.Context, context.CancelFunc)
}

// Departure is what a machine has done to leave its cluster.
type Departure struct {
	Done   func() // ends the machine's turn; never nil
	Unseen error  // why it is not known what runs on it, and it may be terminated anyway

	m    Departing
	at   fleet.Target // where it was then
	duty *Duty        // nil if it had nothing to leave
	left bool
}

// Depart lets a machine that is about to be terminated leave its cluster gracefully, in its turn, if anything
// of the cluster runs on it. The departure is never nil. After an error the machine does again what it did.
func Depart(ctx context.Context, turns *Turns, m Departing) (*Departure, error) {
	d := &Departure{m: m, Done: func() {}}
	turns.Leave(m.Name, m.PrivateIP)
	if m.Idle {
		return d, nil
	}
	now, err := m.Look(ctx)
	if err != nil || now.Power != Running {
		return d, nil //nolint:nilerr // the termination reports it
	}
	d.at = now.At
	duty, err := now.Find(ctx)
	if answered(err) { // systemd may have been busy
		select {
		case <-ctx.Done():
		case <-time.After(askAgain):
		}
		duty, err = now.Find(ctx)
	}
	switch {
	case answered(err) && m.Member:
		return d, fmt.Errorf("not terminated: it answers, but does not say what runs on it, and an etcd member that is terminated before it leaves may cost the cluster its quorum: %w\nnext: repair or "+
			"reboot %s and apply again; if it is beyond repair, %s, since a stopped machine need not answer before it is terminated", err, m.Name, m.Stop)
	case err != nil:
		d.Unseen = err
		return d, nil
	case duty.Idle():
		return d, nil
	}
	d.duty = duty
	duty.Cordon(ctx)
	if d.Done, err = turns.Take(ctx); err != nil {
		duty.Restore(ctx, d.at.Host)
		return d, err
	}
	ctx, cancel := m.Within(ctx)
	defer cancel()
	if m.Next == WithItsData {
		err = duty.StepAside(ctx, turns.Leaving)
	} else {
		err = duty.Leave(ctx, turns.Leaving, m.Next == WithoutItsData)
	}
	d.left = err == nil
	return d, err
}

// Notes returns what failed without stopping the departure.
func (d *Departure) Notes() []finding.Finding {
	if d.duty == nil {
		return nil
	}
	return d.duty.Notes()
}

// Undo brings the machine back after its termination has failed, and reports whether there was anything to
// bring back. There is nothing if the machine no longer runs. An etcd member that has left does not join
// again. failed lists what could not be brought back.
func (d *Departure) Undo(ctx context.Context) (undone bool, failed []finding.Finding) {
	if !d.left {
		return false, nil
	}
	now, err := d.m.look(ctx)
	switch {
	case err != nil:
		now.At = d.at
	case now.Power != Running:
		return false, nil
	}
	known := len(d.duty.Notes())
	d.duty.Restore(ctx, now.At.Host)
	return true, d.duty.Notes()[known:]
}

// answered reports whether the machine was reached and the command failed on it.
func answered(err error) bool {
	var failed *remote.ExitError
	return errors.As(err, &failed)
}
