package etcdcluster

import (
	"context"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// carryOut takes the steps of a plan.
func (o *operation) carryOut(ctx context.Context, plan rollout.Plan) error {
	return o.Batches(ctx, plan, func(ctx context.Context, m *rollout.Machine, s rollout.Step) error {
		switch s.Action {
		case actionLeave:
			return o.leave(ctx, s)
		case actionCompact, actionDefragment, actionDisarm:
			return o.tidy(ctx, s)
		}
		return o.step(ctx, m, s)
	})
}

func (o *operation) step(ctx context.Context, m *rollout.Machine, s rollout.Step) error {
	if err := o.gate(ctx, m.Machine, s.Gate); err != nil {
		return err
	}
	if s.Action == rollout.ActionRoll {
		o.moveLeader(ctx, m.Machine)
	}
	if s.Action == actionMove {
		if err := o.move(ctx, m.Machine); err != nil {
			return err
		}
	}
	var err error
	switch s.Action {
	case actionJoin:
		err = o.join(ctx, m)
	case rollout.ActionQuiet:
		err = o.ApplyWithin(ctx, m, quietChanges(m), fleet.EtcdBudget, component.EtcdUnit)
	default:
		err = o.ApplyWithin(ctx, m, m.Changes, fleet.EtcdBudget, component.EtcdUnit)
	}
	if err != nil {
		return err
	}
	return o.then(ctx, m.Machine, s.Then)
}

// quietChanges returns the changes that restart neither etcd nor a unit of others.
func quietChanges(m *rollout.Machine) []host.Change {
	return slices.DeleteFunc(slices.Clone(m.Changes), func(c host.Change) bool {
		return slices.Contains(c.Restarts, component.EtcdUnit) || m.RestartsForeign([]host.Change{c})
	})
}
