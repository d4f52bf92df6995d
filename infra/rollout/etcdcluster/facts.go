package etcdcluster

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// facts observes the cluster. If units run but no member answers, it waits fleet.EtcdAnswerBudget.
func (o *operation) facts(ctx context.Context) (clusterFacts, error) {
	rec := o.Record()
	f := clusterFacts{formed: rec.Formed, restored: o.want.Restore.Wanted() && rec.Restored != nil, replaceData: mayReplace(rec.Restored, o.want.restore())}
	f.release, _ = version.Parse(o.want.Spec.Version) // cannot fail: the version has been rendered
	var running []*fleet.Machine
	for _, m := range o.Machines {
		if m.Running(component.EtcdUnit) {
			running = append(running, m.Machine)
		}
		f.wanted = append(f.wanted, memberFacts{
			name: m.Name(), peerURL: component.EtcdPeerURL(m.Node), reachable: m.Gone == nil,
			running: m.Running(component.EtcdUnit), data: hasData(m),
			changes: len(m.Changes) > 0, restarts: rollout.Restarts(m.Changes, component.EtcdUnit) || m.RestartsForeign(m.Changes), rules: changesRules(m),
		})
	}
	if len(running) == 0 {
		return f, o.learnStarted(ctx, &f)
	}
	if _, err := o.Access.Keys.Admin(ctx, pki.EtcdCA); err != nil {
		return f, err // without a key no member can be asked; that is not the same as no answer
	}
	waitCtx, cancel := context.WithTimeout(ctx, patience.Of(ctx, fleet.EtcdAnswerBudget))
	defer cancel()
	_ = wait.PollUntilContextCancel(waitCtx, fleet.Poll, true, func(ctx context.Context) (bool, error) {
		members, err := o.members(ctx, running)
		f.members = members
		return err == nil, nil
	})
	if ctx.Err() != nil {
		return f, ctx.Err()
	}
	if f.members == nil {
		return f, o.learnStarted(ctx, &f)
	}
	f.healthy = o.health(ctx, f.members)
	f.learn(o.statuses(ctx, o.allMachines()), o.want.Spec.EffectiveQuota())
	origins, err := o.origins(ctx)
	if err != nil {
		return f, err
	}
	for i := range f.wanted {
		f.wanted[i].origin = origins[f.wanted[i].name]
	}
	return f, ctx.Err()
}

// learnStarted takes from the machines which of them have been a member, unless it is known that
// there is a cluster.
func (o *operation) learnStarted(ctx context.Context, f *clusterFacts) error {
	if f.formed {
		return nil
	}
	settings, err := o.bootstrapSettings(ctx)
	for i, w := range f.wanted {
		f.wanted[i].started = component.EtcdHasStarted(settings[w.name])
	}
	return err
}

// learn takes what the members say of themselves, by machine.
func (f *clusterFacts) learn(statuses map[string]etcd.Status, quota int64) {
	f.quota, f.spaces = quota, map[string]etcd.Space{}
	var known [][]etcd.Alarm
	for name, s := range statuses {
		f.spaces[name] = s.Space(quota)
		if s.Leader == s.ID {
			f.leader = name
		}
		if s.Leader != 0 { // without a quorum a member may know an old state of the alarms
			known, f.cluster = append(known, s.Alarms), s.Cluster
		}
		if i := slices.IndexFunc(f.wanted, func(w memberFacts) bool { return w.name == name }); i >= 0 {
			f.wanted[i].release, _ = version.Parse(s.Version)
			f.wanted[i].storage, _ = version.Parse(s.StorageVersion)
		}
	}
	f.alarms = etcd.Alarms(known...)
}
