// Package rollout brings the machines of a role to the wanted state: which machine, in which order,
// behind which health gate. It is the engine that all roles share: a [Role] is a value, with four
// operations: [Engine.Observe], [Engine.Apply], [Engine.Remove] and [Files]. Import is here too. Each
// role is in a package below this one, and its methods use what an [Operation] can do.
//
// Every change works the same way: certificates and secrets are made, every machine is observed,
// compared and applied to (package host), and what was applied is recorded as hashes. First
// installation, repair, change, upgrade and scaling differ only in their order. Pure functions
// compute the order as a [Plan] before anything is changed.
//
// Package component decides what a machine must look like; packages fleet and deed have what can be
// done to it. What may not enter: a role and what only one of them needs, taking a machine down for
// other reasons (package maintenance), Terraform and AWS.
package rollout

import (
	"context"
	"errors"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
)

// Engine rolls out roles. It holds no state of its own and is safe for concurrent use.
type Engine struct {
	Fleet *fleet.Fleet
}

// Observe compares a role's machines, and what the cluster knows of them, with what is wanted. It
// changes nothing. A machine that cannot be reached is no error; the report names it.
func (e *Engine) Observe(ctx context.Context, want Role, rec Record) (Report, error) {
	o, err := NewOperation(e.Fleet, want, nil, rec)
	if err != nil {
		return Report{}, err
	}
	defer o.Access.Close()
	var r Report
	err = parallel.Safely(ctx, o.role.Name, func() error {
		r = want.Observe(ctx, o)
		if len(rec.Left) > 0 {
			o.observeLeft(ctx, &r)
		}
		return nil
	})
	return r, err
}

// Removal is what a removal did not remove.
type Removal struct {
	// Left are the machines that could not be reached, by name.
	Left map[string]Leftover
	// Kept are the machines with the claim of another record, see [Record].
	Kept []string
}

// Apply brings a role to the wanted state, behind health gates where it is in use. prior is the role as it
// was wanted before, of the same kind, nil on creation; machines that are only in prior leave the role,
// unless another record has claimed them. Machines are identified by their names. If another machine now
// has the name of a machine in prior, the former machine leaves too, unless it is an EC2 instance: then
// whoever has made it ends it. The record is valid also with an error: it says what was done until then.
// Machines that cannot be reached are left as they are and named by a [fleet.SkippedError]. Those among
// them that leave the role are no error; they are in the record (Left).
func (e *Engine) Apply(ctx context.Context, want, prior Role, rec Record) (Record, error) {
	if rec.Claim == "" {
		rec.Claim = newClaim()
	}
	o, err := NewOperation(e.Fleet, want, prior, rec)
	if err != nil {
		return rec, err
	}
	defer o.Access.Close()
	err = parallel.Safely(ctx, o.role.Name, func() error { return o.apply(ctx, want, prior, len(rec.Left) > 0) })
	return o.Record(), err
}

func (o *Operation) apply(ctx context.Context, want, prior Role, left bool) error {
	if prior != nil {
		o.Prior.Targets = fleet.Except(o.Prior.Targets, o.others(ctx, departing(o.role.Targets, o.Prior.Targets)))
	}
	err := want.Apply(ctx, o, prior)
	var skipped *fleet.SkippedError
	if err == nil || prior != nil && errors.As(err, &skipped) { // without prior, a failed create: its record is lost
		err = errors.Join(err, o.writeClaims(ctx))
	}
	if left && ctx.Err() == nil {
		err = errors.Join(err, o.removeLeft(ctx))
	}
	return err
}

// Remove stops everything of a role on its machines and deletes its files and data. Machines that
// cannot be reached, and machines that another record has claimed, are no error.
func (e *Engine) Remove(ctx context.Context, have Role, rec Record) (Removal, error) {
	o, err := NewOperation(e.Fleet, have, nil, rec)
	if err != nil {
		return Removal{Left: rec.Left}, err
	}
	defer o.Access.Close()
	err = parallel.Safely(ctx, o.role.Name, func() error { return errors.Join(o.removeLeft(ctx), have.Remove(ctx, o)) })
	return Removal{Left: o.Record().Left, Kept: slices.Sorted(slices.Values(o.kept))}, err
}
