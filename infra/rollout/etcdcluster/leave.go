package etcdcluster

import (
	"context"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// leave removes a member from the cluster if the others have a quorum. It does nothing if the
// member has left already.
func (o *operation) leave(ctx context.Context, s rollout.Step) error {
	members, err := o.members(ctx, o.Reached())
	if err != nil {
		return err
	}
	i := slices.IndexFunc(members, func(m etcd.Member) bool { return m.Label() == s.Machine })
	if i < 0 {
		return nil
	}
	healthy := o.health(ctx, members)
	if err := guardRemovals(clusterFacts{members: members, healthy: healthy},
		[]removal{{member: members[i], machine: s.Machine}}, 0, nil); err != nil {
		return err
	}
	c, err := o.otherVoter(ctx, members, healthy, s.Machine)
	if err != nil {
		return err
	}
	remove := func(ctx context.Context) error {
		return fleet.Within(ctx, fleet.GateBudget, "removal of etcd member "+s.Machine, func(ctx context.Context) error {
			return c.Remove(ctx, members[i].ID)
		})
	}
	m := o.machineOf(members[i])
	if m == nil || !healthy[members[i].ID] {
		return remove(ctx)
	}
	o.moveLeader(ctx, m)
	return fleet.RemoveMember(ctx, name, m, o.writers(members, healthy), fleet.MayStopFirst(members, healthy, members[i].ID), remove)
}

func (o *operation) writers(members []etcd.Member, serving map[etcd.ID]bool) fleet.Writers {
	return fleet.Writers{
		Machines: o.apiMachines,
		Flushed:  fleet.Flushed(members, serving, o.serving),
	}
}

// apiMachines returns the machines that may run an API server: those of the members, and the controllers.
func (o *operation) apiMachines(ctx context.Context) []*fleet.Machine {
	machines := o.allMachines()
	if o.want.Controllers == nil {
		return machines
	}
	finding, cancel := fleet.Probing(ctx) // it may ask a cloud that does not answer
	defer cancel()
	targets, err := o.want.Controllers(finding)
	if err != nil {
		o.Fleet.Say(name, "etcd: the API servers on other machines are not held: %v", err)
	}
	for _, t := range targets {
		if !slices.ContainsFunc(machines, func(m *fleet.Machine) bool { return m.Name() == t.Node.Name }) {
			machines = append(machines, o.Fleet.Machine(t))
		}
	}
	return machines
}

// moveLeader transfers the leadership from the member on a machine, if it leads, to a member that
// stays. If that fails, etcd transfers it while it stops, or elects a leader.
func (o *operation) moveLeader(ctx context.Context, m *fleet.Machine) {
	c, err := o.Access.Member(ctx, m)
	if err != nil {
		return
	}
	members, err := c.Members(ctx)
	if err != nil {
		return
	}
	serving := o.serving(ctx, members)
	to := slices.IndexFunc(members, func(e etcd.Member) bool {
		return !e.Learner && serving[e.ID] && e.Name != m.Name() && o.ByName(e.Name) != nil
	})
	if to < 0 {
		return
	}
	if err := fleet.MoveLeader(ctx, m, c, members[to], o.writers(members, serving)); err != nil {
		m.Say("etcd: %v", err)
	}
}
