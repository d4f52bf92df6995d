package etcdcluster

import (
	"context"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// A snapshot is taken before changes that only a snapshot can undo: upgrades, rotations, and the
// removal of members.

// keyFiles are the files that change with a rotation.
var keyFiles = []string{component.EtcdCAPath}

// snapshotBefore takes a snapshot if the plan is an upgrade, a rotation, or removes a member. If it
// can't be taken, a member that is not healthy is removed nevertheless: that is a repair.
func (o *operation) snapshotBefore(ctx context.Context, f clusterFacts, plan rollout.Plan) error {
	if f.members == nil {
		return nil
	}
	var change string
	for _, m := range o.Reachable() {
		if m.Running(component.EtcdUnit) && change == "" {
			change = rollout.Upheaval(m.Changes, component.EtcdUnit, "etcd", keyFiles)
		}
	}
	planned := change != ""
	for _, s := range slices.Concat(plan...) {
		if s.Action != actionLeave || planned {
			continue
		}
		change = "the removal of etcd member " + s.Machine
		planned = slices.ContainsFunc(f.members, func(m etcd.Member) bool { return m.Label() == s.Machine && f.healthy[m.ID] })
	}
	if change == "" {
		return nil
	}
	err := fleet.SnapshotBefore(ctx, o.Reached(), change)
	if err != nil && !planned && ctx.Err() == nil {
		o.Fleet.Say(o.Machines[0].Name(), "etcd: %v; it is not healthy, so it is removed without", err)
		return nil
	}
	return err
}
