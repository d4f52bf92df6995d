package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
)

func (e *Engine) applyEtcd(ctx context.Context, want Etcd, prior *Etcd, rec Record) (Record, error) {
	o, err := e.beginEtcd(want, prior, rec)
	if err != nil {
		return rec, err
	}
	defer o.close()
	err = o.converge(ctx)
	if err == nil && prior != nil {
		err = o.dismiss(ctx, prior.role())
	}
	return o.result(), err
}

// converge plans and carries out, and once more when the first plan was only
// about getting a cluster that answers.
func (o *etcdOperation) converge(ctx context.Context) error {
	for {
		if err := o.lookAndFill(ctx); err != nil {
			return err
		}
		f, err := o.facts(ctx)
		if err != nil {
			return err
		}
		plan, err := planEtcd(f)
		if plan == nil && err != nil {
			return errors.Join(err, o.left())
		}
		if err := o.prepare(ctx, plan); err != nil {
			return err
		}
		if err := o.carryOut(ctx, plan); err != nil {
			return err
		}
		o.saveSettled()
		complete := f.members != nil || len(plan) == 1 && len(plan[0]) == len(o.machines)
		if complete {
			o.record.Formed = true
			return errors.Join(err, o.left())
		}
	}
}

// carryOut takes the steps of a plan.
func (o *etcdOperation) carryOut(ctx context.Context, plan Plan) error {
	return o.stages(ctx, plan, func(ctx context.Context, m *machine, s Step) error {
		if s.Action == ActionLeave {
			return o.leave(ctx, s)
		}
		return o.step(ctx, m, s)
	})
}

func (o *etcdOperation) step(ctx context.Context, m *machine, s Step) error {
	if err := o.gate(ctx, m, s.Gate); err != nil {
		return err
	}
	if s.Action == ActionRoll {
		o.passOn(ctx, m)
	}
	var err error
	if s.Action == ActionJoin {
		err = o.join(ctx, m)
	} else {
		err = o.applyWithin(ctx, m, m.changes, etcdBudget, component.EtcdUnit)
	}
	if err != nil || s.Then != GateSelf {
		return err
	}
	return o.waitHealthy(ctx, m)
}

func (o *etcdOperation) waitHealthy(ctx context.Context, m *machine) error {
	c, err := o.client(ctx, m)
	if err != nil {
		return err
	}
	err = within(ctx, etcdBudget, "etcd member", func(ctx context.Context) error {
		return c.WaitHealthy(ctx, o.watchUnit(m, component.EtcdUnit))
	})
	if err == nil {
		o.say(m.name(), "etcd: healthy")
	}
	return o.unitError(ctx, m, "wait for the etcd member", component.EtcdUnit, err)
}

// gate waits until what must hold before a step holds.
func (o *etcdOperation) gate(ctx context.Context, m *machine, g Gate) error {
	if g == GateNone {
		return nil
	}
	var sick []string
	err := within(ctx, gateBudget, string(g), func(ctx context.Context) error {
		return wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
			members, err := o.members(ctx, o.reachable())
			if err != nil {
				sick = []string{err.Error()}
				return false, nil //nolint:nilerr // it is what is waited for to pass
			}
			healthy := o.health(ctx, members)
			sick = sick[:0]
			voters := 0
			for _, member := range members {
				if member.Learner {
					continue
				}
				voters++
				if !healthy[member.ID] && (g == GateQuorum || member.Name != m.name()) {
					sick = append(sick, memberLabel(member))
				}
			}
			if g == GateQuorum {
				return voters-len(sick) >= quorum(voters), nil
			}
			return len(sick) == 0, nil
		})
	})
	if err == nil {
		return nil
	}
	return &StepError{Machine: m.name(), Step: "wait until " + string(g),
		Err:  fmt.Errorf("%w (not healthy: %s)", err, listOf(sick)),
		Next: sshCommand(m.Host, "sudo systemctl status "+component.EtcdUnit)}
}

// leave takes a member out of the cluster, when the rest has a quorum. One
// that has left already is fine.
func (o *etcdOperation) leave(ctx context.Context, s Step) error {
	members, err := o.members(ctx, o.reachable())
	if err != nil {
		return err
	}
	i := slices.IndexFunc(members, func(m etcd.Member) bool { return memberLabel(m) == s.Machine })
	if i < 0 {
		return nil
	}
	healthy := o.health(ctx, members)
	if err := guardRemovals(etcdFacts{members: members, healthy: healthy},
		[]removal{{member: members[i], machine: s.Machine}}, 0, nil); err != nil {
		return err
	}
	for _, m := range o.reachable() {
		at := slices.IndexFunc(members, func(e etcd.Member) bool { return e.Name == m.name() })
		if at < 0 || at == i || !healthy[members[at].ID] || members[at].Learner {
			continue
		}
		c, err := o.client(ctx, m)
		if err != nil {
			return err
		}
		o.handOver(ctx, members[i], members[at].ID)
		return within(ctx, gateBudget, "removal of etcd member "+s.Machine, func(ctx context.Context) error {
			return c.Remove(ctx, members[i].ID)
		})
	}
	return fmt.Errorf("removing etcd member %s: no healthy member to ask", s.Machine)
}

// passOn has a member that is about to restart hand the leadership, if it has
// it, to another: now, while it still serves, it takes milliseconds.
func (o *etcdOperation) passOn(ctx context.Context, m *machine) {
	members, err := o.members(ctx, []*machine{m})
	if err != nil {
		return
	}
	from := slices.IndexFunc(members, func(e etcd.Member) bool { return e.Name == m.name() })
	healthy := o.health(ctx, members)
	to := slices.IndexFunc(members, func(e etcd.Member) bool { return !e.Learner && e.Name != m.name() && healthy[e.ID] })
	if from < 0 || to < 0 {
		return
	}
	o.yield(ctx, m, members[from], members[to].ID)
}

// handOver lets a member that is about to leave pass on the leadership, if it
// has it: without that the cluster would notice and hold an election, which
// works as well and takes a second.
func (o *etcdOperation) handOver(ctx context.Context, from etcd.Member, to etcd.ID) {
	i := slices.IndexFunc(o.leavers, func(m *machine) bool { return m.name() == from.Name })
	if i < 0 {
		return
	}
	o.yield(ctx, o.leavers[i], from, to)
}

// yield moves the leadership from a member that has it to another.
func (o *etcdOperation) yield(ctx context.Context, m *machine, from etcd.Member, to etcd.ID) {
	c, err := o.client(ctx, m)
	if err != nil {
		return
	}
	if status, err := c.Status(ctx); err != nil || status.Leader != from.ID {
		return
	}
	if err := c.MoveLeader(ctx, to); err != nil {
		o.say(from.Name, "etcd: %v", err)
	}
}

func (e *Engine) removeEtcd(ctx context.Context, have Etcd, rec Record) error {
	return e.remove(ctx, have.role(), rec)
}
