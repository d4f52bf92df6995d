package rollout

import (
	"context"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
)

// Before a change from which only a snapshot leads back, one is taken: upgrades, rotations, and the
// removal of members.

// etcdKeyFiles and apiServerKeyFiles are the files that change with a rotation.
var (
	etcdKeyFiles      = []string{component.EtcdCAPath}
	apiServerKeyFiles = []string{component.CAPath, component.APIServerEtcdCAPath, component.FrontProxyCAPath, component.ServiceAccountPubPath,
		component.ServiceAccountKeyPath, component.EncryptionConfigPath}
)

// upheaval says what of a program's changes on one machine needs a snapshot before: its upgrade or a
// rotation of keys. It is empty if nothing does. A program or file that is missing, or has another mode
// or owner, is a repair.
func upheaval(changes []host.Change, unit, program string, keyFiles []string) string {
	for _, c := range changes {
		switch {
		case !slices.Contains([]finding.Problem{finding.Version, finding.Content, finding.SecretContent}, c.Problem):
		case c.Kind == finding.Binary && slices.Contains(c.Restarts, unit):
			return "the upgrade of " + program
		case c.Kind == finding.File && slices.Contains(keyFiles, c.Target):
			return "the rotation of keys"
		}
	}
	return ""
}

// snapshotBefore takes a snapshot if the plan is an upgrade, a rotation, or removes a member. If it
// can't be taken, a member that is not healthy is removed nevertheless: that is a repair.
func (o *etcdOperation) snapshotBefore(ctx context.Context, f etcdFacts, plan Plan) error {
	if f.members == nil {
		return nil
	}
	var change string
	for _, m := range o.reachable() {
		if m.running(component.EtcdUnit) && change == "" {
			change = upheaval(m.changes, component.EtcdUnit, "etcd", etcdKeyFiles)
		}
	}
	planned := change != ""
	for _, s := range slices.Concat(plan...) {
		if s.Action != ActionLeave || planned {
			continue
		}
		change = "the removal of etcd member " + s.Machine
		planned = slices.ContainsFunc(f.members, func(m etcd.Member) bool { return m.Label() == s.Machine && f.healthy[m.ID] })
	}
	if change == "" {
		return nil
	}
	err := fleet.SnapshotBefore(ctx, o.reached(), change)
	if err != nil && !planned && ctx.Err() == nil {
		o.fleet.Say(o.machines[0].Name(), "etcd: %v; it is not healthy, so it is removed without", err)
		return nil
	}
	return err
}

// snapshotBefore takes a snapshot if the changes are an upgrade or a rotation, on a controller that
// is an etcd member too.
func (o *controlOperation) snapshotBefore(ctx context.Context) error {
	for _, m := range o.reachable() {
		if !m.running(component.APIServerUnit) {
			continue
		}
		if change := upheaval(m.changes, component.APIServerUnit, "kube-apiserver", apiServerKeyFiles); change != "" {
			return fleet.SnapshotBefore(ctx, o.reached(), change)
		}
	}
	return nil
}
