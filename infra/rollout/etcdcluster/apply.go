package etcdcluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// Apply implements Role. It starts members in parallel when there is no cluster yet. Otherwise it changes one member at
// a time behind health gates.
func (x Cluster) Apply(ctx context.Context, base *rollout.Operation, _ rollout.Role) error {
	o := x.operate(base)
	if err := o.useToken(o.ownToken()); err != nil {
		return err
	}
	if err := o.restoreOnce(ctx); err != nil {
		return err
	}
	if err := o.converge(ctx); err != nil {
		return err
	}
	o.Note(func(r *rollout.Record) {
		if r.Restored != nil {
			r.Restored.Ended = true
		}
	})
	if o.Prior == nil {
		return nil
	}
	if err := o.guardCopies(ctx); err != nil {
		return err
	}
	return o.RemoveLeaving(ctx)
}

// guardCopies refuses to delete the data of machines that leave unless the remaining members are a
// cluster with a quorum, and no machine that leaves serves another cluster. A member that has left
// stops serving once it has noticed.
func (o *operation) guardCopies(ctx context.Context) error {
	leavers := slices.Concat(o.leavers, o.former)
	if len(leavers) == 0 {
		return nil
	}
	members, err := o.members(ctx, o.Reached())
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return &fleet.GuardError{Refused: "delete the data of etcd on " + fleet.List(namesOf(leavers)),
			Reason: "no remaining member says whether it has a copy: " + err.Error(), Advice: keepCopies}
	}
	serving, err := fleet.UntilNone(ctx, fleet.GateBudget, "the members that leave to end", func(ctx context.Context) []string {
		return slices.Sorted(maps.Keys(fleet.EachAll(ctx, leavers, func(ctx context.Context, m *fleet.Machine) error {
			c, err := o.Access.Member(ctx, m)
			if err != nil || c.Serves(ctx) != nil {
				return nil //nolint:nilerr // it does not serve
			}
			return errServes
		})))
	})
	if ctx.Err() != nil {
		return err
	}
	return checkCopies(namesOf(leavers), members, o.health(ctx, members), serving)
}

var errServes = errors.New("it serves reads")

const keepCopies = "it may be the last copy: look at every machine with etcdctl endpoint status --cluster, bring the remaining members back, and apply again"

// checkCopies refuses to delete the data on the machines that leave if they may be the last copy.
func checkCopies(leavers []string, members []etcd.Member, healthy map[etcd.ID]bool, serving []string) error {
	voters, well := 0, 0
	for _, m := range members {
		if m.Learner {
			continue
		}
		voters++
		if healthy[m.ID] {
			well++
		}
	}
	var reason string
	switch {
	case well < etcd.Quorum(voters):
		reason = fmt.Sprintf("%[2]d of the %[1]d remaining voters are healthy, and a quorum is %[3]d", voters, well, etcd.Quorum(voters))
	case len(serving) > 0:
		reason = fmt.Sprintf("etcd on %s is not a member of the cluster of the remaining machines, and still serves another cluster", fleet.List(serving))
	default:
		return nil
	}
	return &fleet.GuardError{Refused: "delete the data of etcd on " + fleet.List(leavers), Reason: reason, Advice: keepCopies}
}

// converge plans and carries out the plan. It does so once more when the first plan was only about
// getting a cluster that answers, or about an alarm.
func (o *operation) converge(ctx context.Context) error {
	for repaired := false; ; {
		if err := o.survey(ctx); err != nil {
			return err
		}
		f, err := o.facts(ctx)
		if err != nil {
			return err
		}
		f.repaired = repaired
		plan, err := planNext(f)
		if plan == nil && err != nil {
			return errors.Join(err, o.Skipped())
		}
		if err := o.checkRoom(ctx); err != nil {
			return err
		}
		if err := o.Prepare(ctx, plan); err != nil {
			return err
		}
		if err := o.snapshotBefore(ctx, f, plan); err != nil {
			return err
		}
		if err := o.carryOut(ctx, plan); err != nil {
			return err
		}
		o.SaveUnchanged()
		if repaired = f.members != nil && len(f.alarms) > 0; repaired {
			continue
		}
		formed := len(plan) == 1 && len(plan[0]) == len(o.Machines) && plan[0][0].Then == fleet.GateSelf
		if f.members != nil || formed {
			o.Note(func(r *rollout.Record) { r.Formed = true })
			return errors.Join(err, o.Skipped())
		}
	}
}

// Remove implements Role.
func (x Cluster) Remove(ctx context.Context, o *rollout.Operation) error { return o.Remove(ctx) }
