package rollout

import (
	"context"
	"fmt"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// leave takes a member out of the cluster, when the rest has a quorum. One
// that has left already is fine.
func (o *etcdOperation) leave(ctx context.Context, s Step) error {
	members, err := o.members(ctx, o.reached())
	if err != nil {
		return err
	}
	i := slices.IndexFunc(members, func(m etcd.Member) bool { return m.Label() == s.Machine })
	if i < 0 {
		return nil
	}
	healthy := o.health(ctx, members)
	if err := guardRemovals(etcdFacts{members: members, healthy: healthy},
		[]removal{{member: members[i], machine: s.Machine}}, 0, nil); err != nil {
		return err
	}
	c, err := o.otherVoter(ctx, members, healthy, s.Machine)
	if err != nil {
		return err
	}
	remove := func(ctx context.Context) error {
		return within(ctx, gateBudget, "removal of etcd member "+s.Machine, func(ctx context.Context) error {
			return c.Remove(ctx, members[i].ID)
		})
	}
	m := o.machineOf(members[i])
	if m == nil || !healthy[members[i].ID] {
		return remove(ctx)
	}
	o.handOver(ctx, m)
	return o.removeLiving(ctx, o.role.name, m, o.writers(members, healthy), mayStopFirst(members, healthy, members[i].ID), remove)
}

// everybody is every machine that is or was to be a member's.
func (o *etcdOperation) everybody() []*Machine { return slices.Concat(o.reached(), o.leavers) }

func (o *etcdOperation) writers(members []etcd.Member, healthy map[etcd.ID]bool) writers {
	return writers{
		machines: func(context.Context) []*Machine { return o.everybody() },
		settled:  settled(members, healthy, o.health),
	}
}

// machineOf returns the machine of a member, nil when it is not one of ours.
func (o *etcdOperation) machineOf(member etcd.Member) *Machine {
	machines := o.everybody()
	if i := slices.IndexFunc(machines, func(m *Machine) bool { return m.Name() == member.Name }); i >= 0 {
		return machines[i]
	}
	return nil
}

// otherVoter returns the client of a healthy voter on a machine that stays.
func (o *etcdOperation) otherVoter(ctx context.Context, members []etcd.Member, healthy map[etcd.ID]bool, leaver string) (*etcd.Client, error) {
	for _, m := range o.reached() {
		if m.Name() != leaver && slices.ContainsFunc(members, func(e etcd.Member) bool {
			return e.Name == m.Name() && !e.Learner && healthy[e.ID]
		}) {
			return o.client(ctx, m)
		}
	}
	return nil, fmt.Errorf("removing etcd member %s: no healthy member to ask", leaver)
}

// mayStopFirst tells whether a member that is to leave may be stopped before it
// is removed. Until then it counts: the others must be a quorum of all voters.
func mayStopFirst(members []etcd.Member, healthy map[etcd.ID]bool, leaver etcd.ID) bool {
	voters, others := 0, 0
	for _, m := range members {
		if m.Learner {
			continue
		}
		voters++
		if m.ID != leaver && healthy[m.ID] {
			others++
		}
	}
	return others >= etcd.Quorum(voters)
}

// removeLiving takes a member that serves, and does not lead, out of its
// cluster. It is stopped first, since then it ends the requests it has: one that
// finds itself removed takes more, answers none of them and ends a second
// later. Where its vote is needed for its own removal, the API servers are held
// until it has been removed and ended at once. by names who does it, for the progress.
func (e *Engine) removeLiving(ctx context.Context, by string, m *Machine, w writers, stopFirst bool, remove func(context.Context) error) error {
	if !stopFirst {
		return e.calmly(ctx, m.Name(), w, func(ctx context.Context) error {
			if err := remove(ctx); err != nil {
				return err
			}
			kill := killUnits([]desired.Unit{{Name: component.EtcdUnit}})
			if _, err := m.Remote.Run(ctx, remote.Command{Script: kill, Sudo: true}); err != nil {
				m.Say("etcd: its removed member ends by itself: %v", err)
			}
			return nil
		})
	}
	if err := m.Stop(ctx, by, component.EtcdUnit); err != nil {
		return err
	}
	err := remove(ctx)
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveBudget)
		defer cancel()
		if _, err := m.Remote.Run(ctx, remote.Command{Script: "systemctl start --no-block " + component.EtcdUnit, Sudo: true}); err != nil {
			m.Say("etcd: its member could not be started again: %v", err)
		}
	}
	return err
}

// handOver has the member on a machine hand the leadership, if it has it, to
// one that stays. Where that fails etcd does it while it stops, or holds an
// election.
func (o *etcdOperation) handOver(ctx context.Context, m *Machine) {
	c, err := o.client(ctx, m)
	if err != nil {
		return
	}
	members, err := c.Members(ctx)
	if err != nil {
		return
	}
	healthy := o.health(ctx, members)
	to := slices.IndexFunc(members, func(e etcd.Member) bool {
		return !e.Learner && healthy[e.ID] && e.Name != m.Name() && o.byName(e.Name) != nil
	})
	if to < 0 {
		return
	}
	if err := o.moveLeader(ctx, m, c, members[to], o.writers(members, healthy)); err != nil {
		m.Say("etcd: %v", err)
	}
}

// settled returns what asks all members that were healthy to read what the
// leader has: a member passes on what it was asked in the order it was asked.
func settled(members []etcd.Member, healthy map[etcd.ID]bool,
	health func(context.Context, []etcd.Member) map[etcd.ID]bool,
) func(context.Context) error {
	return func(ctx context.Context) error {
		now := health(ctx, members)
		for _, m := range members {
			if healthy[m.ID] && !now[m.ID] {
				return fmt.Errorf("etcd member %s does not answer", m.Label())
			}
		}
		return nil
	}
}

// moveLeader has the member on m, if it leads, hand the leadership to another
// while nobody writes.
func (e *Engine) moveLeader(ctx context.Context, m *Machine, c *etcd.Client, to etcd.Member, w writers) error {
	if s, err := c.Status(ctx); err != nil || s.Leader != s.ID {
		return err
	}
	err := e.calmly(ctx, m.Name(), w, func(ctx context.Context) error { return c.MoveLeader(ctx, to.ID) })
	if err == nil {
		m.Say("etcd: %s leads now", to.Label())
	}
	return err
}
