package workerpool

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// rollsNode reports whether changes are made to MaxUnavailable nodes at a time: something restarts or
// ends for good, or another program will start pods. The latter interrupts nothing, but shows on the
// first node whether pods still start.
func rollsNode(changes []host.Change) bool {
	return restartsAny(changes) || slices.ContainsFunc(changes, func(c host.Change) bool {
		return c.Kind == finding.Binary || c.Kind == finding.Unit && c.Problem == finding.NotWanted
	})
}

// splitReloads splits changes into changes of lists that units only read again, and the rest. A unit that
// another change restarts reads its list at the restart.
func splitReloads(units []desired.Unit, changes []host.Change) (reloads, rest []host.Change) {
	reads := func(unit, list string) bool {
		return slices.ContainsFunc(units, func(u desired.Unit) bool {
			return u.Name == unit && u.Undoes && slices.Contains(u.ReloadOn, list)
		})
	}
	for _, c := range changes {
		only := len(c.Restarts) > 0 && c.Kind == finding.File
		for _, unit := range c.Restarts {
			only = only && reads(unit, c.Target) && !slices.ContainsFunc(changes, func(o host.Change) bool {
				return o.Target == unit || slices.Contains(o.Restarts, unit) && !reads(unit, o.Target)
			})
		}
		if only {
			reloads = append(reloads, c)
		} else {
			rest = append(rest, c)
		}
	}
	return reloads, rest
}

func restartsAny(changes []host.Change) bool {
	return slices.ContainsFunc(changes, func(c host.Change) bool { return len(c.Restarts) > 0 })
}

// disturbsPods reports whether changes need a drained node, whatever is on it: containerd restarts, or the
// kubelet's program is replaced.
func disturbsPods(changes []host.Change) bool {
	return rollout.Restarts(changes, component.ContainerdUnit) || replacesKubelet(changes)
}

func replacesKubelet(changes []host.Change) bool {
	return slices.ContainsFunc(changes, func(c host.Change) bool {
		return c.Kind == finding.Binary && slices.Contains(c.Restarts, component.KubeletUnit)
	})
}

// findOutgrown compares the new settings of the kubelets that will restart with what they have noted about
// processors and memory, and with what their machines have. Another release may not read the notes of this one.
func (o *operation) findOutgrown(ctx context.Context) error {
	clear(o.outgrown)
	clear(o.stale)
	restarting := slices.DeleteFunc(o.Reachable(), func(m *rollout.Machine) bool { return !rollout.Restarts(m.Changes, component.KubeletUnit) })
	return fleet.Each(ctx, restarting, func(ctx context.Context, m *rollout.Machine) error {
		files, err := host.Read(ctx, m.Remote, o.want.Spec.NodeTraces().Files, nil)
		if err != nil {
			return err
		}
		why, noted, err := component.Found{Files: files}.JudgeNode(m.State)
		if err != nil {
			return &fleet.StepError{Machine: m.Name(), Step: "compare the kubelet's settings with the machine", Err: err,
				Next: "reserve less in kubelet_config, or choose a larger machine; nothing has been stopped or changed"}
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.outgrown[m.Name()] = len(why) > 0
		if len(why) > 0 || replacesKubelet(m.Changes) {
			o.stale[m.Name()] = noted
		}
		if len(why) > 0 && m.Running(component.KubeletUnit) {
			m.Say("worker: to be drained, because pods have been placed with other settings: %s", fleet.List(why))
		}
		return nil
	})
}

// carryOut takes the steps of a stage: all at once if they interrupt nothing, otherwise
// MaxUnavailable at a time. The next step begins as soon as one is done. After a failure no step
// begins, and those in progress are finished.
func (o *operation) carryOut(ctx context.Context, batch rollout.Batch) error {
	if !batch[0].Action.Disturbs {
		return o.Batches(ctx, rollout.Plan{batch}, o.step)
	}
	var (
		group  parallel.Group
		mu     sync.Mutex
		errs   []error
		begun  []rollout.Step
		inHand = map[string]bool{}
	)
	group.SetLimit(max(o.want.MaxUnavailable, 1))
	for _, s := range batch {
		group.Go(func() error {
			mu.Lock()
			if len(errs) > 0 {
				mu.Unlock()
				return nil
			}
			begun = append(begun, s)
			inHand[s.Machine] = true
			taken := maps.Clone(inHand)
			mu.Unlock()
			err := o.roll(ctx, s, taken)
			mu.Lock()
			defer mu.Unlock()
			delete(inHand, s.Machine)
			if err != nil {
				errs = append(errs, err)
			}
			return nil
		})
	}
	_ = group.Wait() // the errors are collected above
	return rollout.Stopped(errors.Join(errs...), begun, batch)
}

// roll takes one node down and up again, once all other nodes not taken down are healthy.
func (o *operation) roll(ctx context.Context, s rollout.Step, taken map[string]bool) error {
	if err := o.gate(ctx, s, taken); err != nil {
		return err
	}
	o.Fleet.Say(s.Machine, "%s: %s", name, s.Action)
	return o.step(ctx, o.ByName(s.Machine), s)
}

func (o *operation) step(ctx context.Context, m *rollout.Machine, s rollout.Step) error {
	if s.Action == actionDrainRoll {
		if err := o.empty(ctx, m.Name()); err != nil {
			return err
		}
	}
	if stale := o.stale[m.Name()]; len(stale) > 0 && s.Action != actionReload {
		if err := deed.Wipe(ctx, m.Remote, component.KubeletUnit, stale...); err != nil {
			return &fleet.StepError{Machine: m.Name(), Step: "remove what the kubelet has noted about processors and memory", Err: err}
		}
	}
	if s.Action == rollout.ActionInstall {
		if err := o.Apply(ctx, m, m.Changes); err != nil { // downloads too; systemd bounds the starts
			return err
		}
		// Pods come to the new node while others are rolled. Whether it is Ready is seen to at the end.
		if err := fleet.Within(ctx, fleet.NodeBudget, "node", func(ctx context.Context) error { return o.identify(ctx, m, "") }); err != nil {
			m.Say("worker: its Node object is not as wanted yet: %v", err)
		}
		return nil
	}
	changes := m.Changes
	if s.Action == actionReload {
		changes, _ = splitReloads(m.State.Units, m.Changes)
	}
	if err := o.ApplyWithin(ctx, m, changes, fleet.NodeBudget, component.KubeletUnit); err != nil {
		return err
	}
	if s.Then == fleet.GateNodeReady {
		return o.nodesReady(ctx, []*rollout.Machine{m})
	}
	return nil
}

// gateConditions returns the conditions of the nodes that are not taken down when a machine is: they are Ready. If the
// user installs the network of pods, this is required only once one of them is Ready. Of several broken nodes
// with changes none waits for the others, which this operation has yet to repair.
func (o *operation) gateConditions(machine string, taken map[string]bool) []kube.NodeCondition {
	var out []kube.NodeCondition
	networked := slices.ContainsFunc(o.Machines, func(m *rollout.Machine) bool { return o.ready[m.Name()] })
	for _, m := range o.Reachable() {
		broken := !o.ready[machine] && !o.ready[m.Name()] && len(m.Changes) > 0
		if !taken[m.Name()] && !broken {
			c := o.want.condition(m.Node)
			c.Registered = c.Registered && !networked
			c.Version = "" // it may not have been rolled yet
			out = append(out, c)
		}
	}
	return out
}

// gate waits until the nodes that are not taken down are Ready. It skips those that cannot be
// reached, which are down already.
func (o *operation) gate(ctx context.Context, s rollout.Step, taken map[string]bool) error {
	conditions := o.gateConditions(s.Machine, taken)
	err := fleet.Within(ctx, fleet.GateBudget, string(s.Gate), func(ctx context.Context) error {
		return o.api.WaitNodes(ctx, conditions, nil)
	})
	if err != nil {
		return &fleet.StepError{Machine: s.Machine, Step: "wait until " + string(s.Gate), Err: err, Next: "kubectl get nodes"}
	}
	return nil
}

// empty drains a node, or leaves it as it was.
func (o *operation) empty(ctx context.Context, node string) error {
	err := o.drain(ctx, node)
	if err == nil {
		return nil
	}
	o.uncordonNode(ctx, node)
	return &fleet.StepError{Machine: node, Step: "drain", Err: err, Next: "kubectl get pods --all-namespaces --field-selector spec.nodeName=" + node}
}

func (o *operation) drain(ctx context.Context, node string) error {
	if err := o.api.Cordon(ctx, node); err != nil {
		return err
	}
	timeout := o.want.DrainTimeout
	if timeout == 0 {
		timeout = patience.Of(ctx, fleet.DefaultDrainTimeout)
	}
	o.Fleet.Say(node, "worker: draining")
	return o.api.Drain(ctx, node, timeout, func(line string) { o.Fleet.Say(node, "%s", line) })
}

// uncordonNode uncordons a node that could not be drained; nothing on it was changed.
func (o *operation) uncordonNode(ctx context.Context, node string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience.Of(ctx, fleet.LeaveBudget))
	defer cancel()
	if err := o.api.Uncordon(ctx, node); err != nil {
		o.Fleet.Say(node, "worker: could not be uncordoned: %v", err)
	}
}
