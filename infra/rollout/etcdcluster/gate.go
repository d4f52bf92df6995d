package etcdcluster

import (
	"context"
	"fmt"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
)

// gate waits until the gate's condition holds.
func (o *operation) gate(ctx context.Context, m *fleet.Machine, g fleet.Gate) error {
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

// then waits for what must hold after a step.
func (o *operation) then(ctx context.Context, m *fleet.Machine, g fleet.Gate) error {
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
