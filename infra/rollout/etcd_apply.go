package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
)

// Apply implements Role. It starts members in parallel when there is no cluster yet. Otherwise it changes one member at
// a time behind health gates.
func (x Etcd) Apply(ctx context.Context, base *Operation, _ Role) error {
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
	o.Note(func(r *Record) {
		if r.Restored != nil {
			r.Restored.Settled = true
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

// guardCopies refuses to delete the data of machines that leave unless the members that stay are a
// cluster with a quorum, and no machine that leaves serves another one. A member that has left
// serves nothing any more, once it has noticed.
func (o *etcdOperation) guardCopies(ctx context.Context) error {
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
			Reason: "no member that stays tells whether it has a copy: " + err.Error(), Advice: keepCopies}
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

const keepCopies = "it may be the last copy: look at every machine with etcdctl endpoint status --cluster, bring the members that stay back, and apply again"

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
		reason = fmt.Sprintf("of the %d voters that stay %d are healthy, and a quorum is %d", voters, well, etcd.Quorum(voters))
	case len(serving) > 0:
		reason = fmt.Sprintf("etcd on %s is no member of the cluster of those that stay, and still serves one", fleet.List(serving))
	default:
		return nil
	}
	return &fleet.GuardError{Refused: "delete the data of etcd on " + fleet.List(leavers), Reason: reason, Advice: keepCopies}
}

func namesOf(machines []*fleet.Machine) []string {
	var out []string
	for _, m := range machines {
		out = append(out, m.Name())
	}
	return out
}

// converge plans and carries out the plan. It does so once more when the first plan was only about
// getting a cluster that answers, or about an alarm.
func (o *etcdOperation) converge(ctx context.Context) error {
	for repaired := false; ; {
		if err := o.survey(ctx); err != nil {
			return err
		}
		f, err := o.facts(ctx)
		if err != nil {
			return err
		}
		f.repaired = repaired
		plan, err := planEtcd(f)
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
		o.SaveSettled()
		if repaired = f.members != nil && len(f.alarms) > 0; repaired {
			continue
		}
		formed := len(plan) == 1 && len(plan[0]) == len(o.Machines) && plan[0][0].Then == fleet.GateSelf
		if f.members != nil || formed {
			o.Note(func(r *Record) { r.Formed = true })
			return errors.Join(err, o.Skipped())
		}
	}
}

// survey observes the machines, with their data volumes mounted, and chooses the token of a new cluster.
func (o *etcdOperation) survey(ctx context.Context) error {
	if err := o.look(ctx); err != nil {
		return err
	}
	if err := o.mountData(ctx); err != nil {
		return err
	}
	changed, err := o.identify(ctx)
	if err != nil || !changed {
		return err
	}
	return o.look(ctx)
}

// look observes the machines, and checks what members need of one another.
func (o *etcdOperation) look(ctx context.Context) error {
	if err := o.Survey(ctx); err != nil {
		return err
	}
	return o.CheckReach(ctx, o.needsPeers)
}

// carryOut takes the steps of a plan.
func (o *etcdOperation) carryOut(ctx context.Context, plan Plan) error {
	return o.Stages(ctx, plan, func(ctx context.Context, m *Machine, s Step) error {
		switch s.Action {
		case actionLeave:
			return o.leave(ctx, s)
		case actionCompact, actionDefragment, actionDisarm:
			return o.tidy(ctx, s)
		}
		return o.step(ctx, m, s)
	})
}

func (o *etcdOperation) step(ctx context.Context, m *Machine, s Step) error {
	if err := o.gate(ctx, m.Machine, s.Gate); err != nil {
		return err
	}
	if s.Action == ActionRoll {
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
	case ActionQuiet:
		err = o.ApplyWithin(ctx, m, quietChanges(m.Changes), fleet.EtcdBudget, component.EtcdUnit)
	default:
		err = o.ApplyWithin(ctx, m, m.Changes, fleet.EtcdBudget, component.EtcdUnit)
	}
	if err != nil {
		return err
	}
	return o.then(ctx, m.Machine, s.Then)
}

// quietChanges returns the changes that do not restart etcd.
func quietChanges(all []host.Change) []host.Change {
	return slices.DeleteFunc(slices.Clone(all), func(c host.Change) bool { return slices.Contains(c.Restarts, component.EtcdUnit) })
}

// then waits for what must hold after a step.
func (o *etcdOperation) then(ctx context.Context, m *fleet.Machine, g fleet.Gate) error {
	if g != fleet.GateSelf && g != fleet.GateServes {
		return nil
	}
	c, err := o.Access.Member(ctx, m)
	switch {
	case err != nil:
		return err
	case g == fleet.GateServes:
		return m.WaitServes(ctx, c)
	}
	return m.WaitMember(ctx, c)
}

// gate waits until the gate's condition holds.
func (o *etcdOperation) gate(ctx context.Context, m *fleet.Machine, g fleet.Gate) error {
	if g == fleet.GateNone {
		return nil
	}
	quorum := g == fleet.GateQuorum || g == fleet.GateQuorumServes
	sick, err := fleet.UntilNone(ctx, fleet.GateBudget, string(g), func(ctx context.Context) []string {
		members, err := o.members(ctx, o.Reached())
		if err != nil {
			return []string{err.Error()}
		}
		var sick []string
		ask, voters := o.health, 0
		if g == fleet.GateQuorumServes || g == fleet.GateOthersServe {
			ask = o.serving
		}
		healthy := ask(ctx, members)
		for _, member := range members {
			if member.Learner {
				continue
			}
			voters++
			if !healthy[member.ID] && (quorum || member.Name != m.Name()) {
				sick = append(sick, member.Label())
			}
		}
		if quorum && voters-len(sick) >= etcd.Quorum(voters) {
			return nil
		}
		return sick
	})
	if err == nil {
		return nil
	}
	var alarms string
	for _, s := range o.statuses(ctx, o.Reached()) {
		for _, a := range s.Alarms {
			alarms = fmt.Sprintf("; etcd has the alarm %s", a.Type)
		}
	}
	return &fleet.StepError{Machine: m.Name(), Step: "wait until " + string(g),
		Err:  fmt.Errorf("%w (not healthy: %s%s)", err, fleet.List(sick), alarms),
		Next: m.SSH("sudo systemctl status " + component.EtcdUnit)}
}

// Remove implements Role.
func (x Etcd) Remove(ctx context.Context, o *Operation) error { return o.Remove(ctx) }
