// Package controlplane is the role of the API servers, controller managers and schedulers of a cluster:
// one controller at a time behind the others, the objects that every cluster needs, the encryption of
// secrets in etcd, and the publication of changed authorities. What may not enter: members of etcd, other
// roles, Terraform and AWS.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// ControlPlane is the API servers, controller managers and schedulers of a cluster. Spec.Nodes is
// derived from Targets.
type ControlPlane struct {
	Spec    component.ControlPlaneSpec
	Targets []fleet.Target
	// Balancer is the load balancer as clients reach it, https://<host>:6443; empty if there is none.
	Balancer string
}

// Definition implements Role.
func (x ControlPlane) Definition() rollout.Definition {
	spec := x.Spec
	spec.Nodes = fleet.Nodes(x.Targets)
	return rollout.Definition{Name: "control plane", PKI: spec.Cluster.PKI, Targets: x.Targets, Artifacts: x.Spec.Artifacts,
		Machine: func(n component.Node) (component.Machine, error) { return component.ControlPlane(spec, n) },
		Traces:  spec.Traces(),
		ReadSettings: func(n component.Node, f component.Found) (_ rollout.Role, err error) {
			x.Spec, err = spec.Read(n, f)
			return x, err
		},
		AsksMachines: true, AskedAt: component.APIServerPort}
}

// Observe implements Role. It also compares the RBAC objects that the cluster needs, and the keys that encrypt
// secrets in etcd, with what is wanted, and what the API servers have loaded with what is on their machines.
func (x ControlPlane) Observe(ctx context.Context, base *rollout.Operation) rollout.Report {
	o := &operation{Operation: base, want: x}
	return o.Report(ctx, func(ctx context.Context, r *rollout.Report) {
		o.objectDrift(ctx, r)
		o.sealingDrift(ctx, r)
		o.loadedDrift(ctx, r)
	})
}

// Apply implements Role. It installs all controllers in parallel when no API server runs yet. Otherwise it changes one
// controller at a time.
func (x ControlPlane) Apply(ctx context.Context, base *rollout.Operation, prior rollout.Role) error {
	o := &operation{Operation: base, want: x}
	if before, ok := prior.(ControlPlane); ok {
		o.had = kube.RefsOf(before.Spec.SystemObjects())
	}
	if err := o.converge(ctx); err != nil {
		return err
	}
	if o.Prior == nil {
		return nil
	}
	if err := o.publishTrust(ctx, o.Prior.PKI); err != nil {
		return err
	}
	return o.RemoveLeaving(ctx)
}

// Remove implements Role.
func (x ControlPlane) Remove(ctx context.Context, o *rollout.Operation) error { return o.Remove(ctx) }

var managerUnits = []string{component.ControllerManagerUnit, component.SchedulerUnit}

// splitManagers splits changes into those that concern only the controller manager or the
// scheduler, and the rest.
func splitManagers(changes []host.Change) (managers, rest []host.Change) {
	isManager := func(unit string) bool { return slices.Contains(managerUnits, unit) }
	for _, c := range changes {
		theirs := len(c.Restarts) > 0 && !slices.ContainsFunc(c.Restarts, func(u string) bool { return !isManager(u) })
		if theirs || c.Kind == finding.Unit && isManager(c.Target) {
			managers = append(managers, c)
		} else {
			rest = append(rest, c)
		}
	}
	return managers, rest
}

func (o *operation) converge(ctx context.Context) error {
	if err := o.Survey(ctx); err != nil {
		return err
	}
	o.restartChanged()
	plan, held := planControlPlane(o.facts())
	// A first installation waits for etcd. Whether its programs accept their settings is found out before.
	first := !plan.Disturbs()
	if first && plan.Starts() {
		if err := o.Prepare(ctx, plan); err != nil {
			return err
		}
	}
	if err := o.CheckReach(ctx, func(*rollout.Machine) *rollout.Need { return rollout.OneOf("etcd", o.want.Spec.EtcdEndpoints...) }); err != nil {
		return err
	}
	if err := o.guard(ctx); err != nil {
		return err
	}
	if err := o.etcdServes(ctx, plan, o.want.Spec.EtcdEndpoints); err != nil {
		return errors.Join(err, held, o.Skipped())
	}
	if !first {
		if err := o.Prepare(ctx, plan); err != nil {
			return err
		}
	}
	if err := o.snapshotBefore(ctx); err != nil {
		return err
	}
	if err := o.carryOut(ctx, plan); err != nil {
		return err
	}
	o.SaveUnchanged()
	err := o.applyObjects(ctx)
	if err == nil {
		err = o.waitLoaded(ctx)
	}
	if err == nil {
		err = o.seal(ctx)
	}
	return errors.Join(err, held, o.Skipped())
}

func (o *operation) facts() []controllerFacts {
	var facts []controllerFacts
	for _, m := range o.Machines {
		managers, rest := splitManagers(m.Changes)
		facts = append(facts, controllerFacts{
			name: m.Name(), reachable: m.Gone == nil, serving: m.Running(component.APIServerUnit),
			changes: len(rest) > 0, restarts: rollout.Restarts(rest, component.APIServerUnit) || m.RestartsForeign(rest), managers: len(managers) > 0,
			unproven: m.Record.Unproven && o.want.Balancer != "",
		})
	}
	return facts
}

// guard refuses changes that would break the control plane. It checks the release first, because
// the check of dropped keys may rewrite secrets.
func (o *operation) guard(ctx context.Context) error {
	if err := o.guardRelease(ctx); err != nil {
		return err
	}
	return o.mayDropKeys(ctx)
}

// guardRelease asks the running API servers for their version if one of them will be upgraded.
// Terraform's state may be outdated, because a roll-out that stopped halfway has changed some of
// them. Servers that do not answer are ignored, so that a control plane on which nothing answers
// can still be repaired.
func (o *operation) guardRelease(ctx context.Context) error {
	upgrades := slices.DeleteFunc(o.Reachable(), func(m *rollout.Machine) bool {
		return !m.Running(component.APIServerUnit) || !slices.ContainsFunc(m.Changes, func(c host.Change) bool {
			return c.Kind == finding.Binary && slices.Contains(c.Restarts, component.APIServerUnit)
		})
	})
	if len(upgrades) == 0 {
		return nil
	}
	var mu sync.Mutex
	var serving []version.Version
	errs := fleet.EachAll(ctx, o.Reached(), func(ctx context.Context, m *fleet.Machine) error {
		c, err := o.Access.APIServer(ctx, m)
		if err != nil {
			return err
		}
		tag, err := c.Version(ctx)
		if err != nil {
			return err
		}
		v, err := version.Parse(tag)
		if err == nil {
			mu.Lock()
			serving = append(serving, v)
			mu.Unlock()
		}
		return err
	})
	wanted, err := version.Parse(o.want.Spec.Version)
	if err != nil {
		return err
	}
	silent := slices.Sorted(maps.Keys(errs))
	for _, m := range o.Machines {
		if m.Gone != nil {
			silent = append(silent, m.Name())
		}
	}
	return guardKubernetes(wanted, serving, silent)
}

func (o *operation) carryOut(ctx context.Context, plan rollout.Plan) error {
	return o.Batches(ctx, plan, func(ctx context.Context, m *rollout.Machine, s rollout.Step) error {
		if err := o.gate(ctx, m.Machine, s.Gate); err != nil {
			return err
		}
		managers, rest := splitManagers(m.Changes)
		if s.Then == fleet.GateSelf && o.want.Balancer != "" {
			o.noteUnproven(m.Name(), true)
		}
		var err error
		switch s.Action {
		case actionProve: // the gate is all
		case rollout.ActionInstall:
			err = o.Apply(ctx, m, m.Changes) // downloads too; systemd bounds the starts
		case actionRollManagers:
			err = o.ApplyWithin(ctx, m, managers, fleet.APIBudget, component.ControllerManagerUnit)
		default:
			// A leading manager exits when its API server is away for longer than the lease lasts,
			// and systemd starts it again.
			bystanders := slices.DeleteFunc(slices.Clone(managerUnits),
				func(unit string) bool { return rollout.Restarts(rest, unit) })
			err = o.ApplyWithin(ctx, m, rest, fleet.APIBudget, component.APIServerUnit, bystanders...)
		}
		if err != nil {
			return err
		}
		if s.Then != fleet.GateSelf {
			return nil
		}
		if err := o.waitReady(ctx, m.Machine); err != nil {
			return err
		}
		if err := o.balanced(ctx, m.Machine); err != nil {
			return err
		}
		return waitManagers(ctx, m)
	})
}

// waitManagers waits until systemd has restarted the managers that exited while their API server
// was away, so that the next observation finds them running. It does not wait for managers that did
// not run before or are still to be changed.
func waitManagers(ctx context.Context, m *rollout.Machine) error {
	for _, unit := range managerUnits {
		changes := rollout.Restarts(m.Changes, unit) || slices.ContainsFunc(m.Changes, func(c host.Change) bool { return c.Target == unit })
		if changes || !m.Running(unit) {
			continue
		}
		if err := m.WaitActive(ctx, unit); err != nil {
			return err
		}
	}
	return nil
}

// gate waits until every other reachable API server is ready. At least one has to be, unless this
// is the only controller.
func (o *operation) gate(ctx context.Context, m *fleet.Machine, g fleet.Gate) error {
	if g == fleet.GateNone || len(o.Machines) == 1 {
		return nil
	}
	others := slices.DeleteFunc(o.Reached(), func(x *fleet.Machine) bool { return x == m })
	sick, err := fleet.UntilNone(ctx, fleet.GateBudget, string(g), func(ctx context.Context) []string {
		if len(others) == 0 {
			return []string{"no other machine can be reached"}
		}
		errs := fleet.EachAll(ctx, others, func(ctx context.Context, x *fleet.Machine) error {
			_, err := o.ready(ctx, x)
			return err
		})
		var sick []string
		for _, name := range slices.Sorted(maps.Keys(errs)) {
			sick = append(sick, errs[name].Error())
		}
		return sick
	})
	if err == nil {
		return nil
	}
	return &fleet.StepError{Machine: m.Name(), Step: "wait until " + string(g),
		Err: fmt.Errorf("%w (%s)", err, fleet.List(sick)), Unit: component.APIServerUnit}
}
