package workerpool

import (
	"context"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// A kubelet registers its node only when it starts, and takes over a Node object of that name. Kubernetes does not
// change a provider ID. So the Node object of an earlier machine goes before the kubelet starts, and a Node object that
// got a wrong provider ID in another way is made anew.

// strange reports whether a machine's Node object has the provider ID of another machine.
func (o *operation) strange(m *rollout.Machine, n kube.Node) bool {
	want := o.want.Spec.Kubelet.ProviderID(m.Node)
	return want != "" && n.ProviderID != "" && n.ProviderID != want
}

// registerAgain restarts running kubelets whose Node objects were deleted. Before the kubelet of a machine that was
// replaced starts, it deletes the Node object of the earlier one.
func (o *operation) registerAgain(ctx context.Context) error {
	isNew := func(m *rollout.Machine) bool {
		return !m.Running(component.KubeletUnit) && (o.Prior == nil || !slices.ContainsFunc(o.Prior.Targets, func(t fleet.Target) bool { return t.Name() == m.Name() }))
	}
	machines := slices.DeleteFunc(o.Reachable(), isNew)
	if len(machines) == 0 {
		return nil
	}
	nodes, err := o.nodes(ctx)
	if err != nil {
		return err
	}
	return fleet.Each(ctx, machines, func(ctx context.Context, m *rollout.Machine) error {
		i := slices.IndexFunc(nodes, func(n kube.Node) bool { return n.Name == m.Name() })
		switch m.Seen.Units[component.KubeletUnit].ActiveState {
		case "active":
			if i < 0 {
				m.Say("worker: its Node object is gone, restarting the kubelet")
				return o.register(ctx, m)
			}
		case "", "inactive", "failed": // and none that is about to run: it would register before the deletion, or after it
			if i < 0 || m.Running(component.ContainerdUnit) {
				return nil
			}
			same := strings.HasSuffix(nodes[i].ProviderID, "/"+m.Node.InstanceID) // with another zone, or as the user wanted it
			if o.strange(m, nodes[i]) && !same {
				return o.bury(ctx, m.Name())
			}
		}
		return nil
	})
}

// bury deletes the Node object of an earlier machine. The API server may not have noticed yet that its kubelet
// has ended.
func (o *operation) bury(ctx context.Context, node string) error {
	o.Fleet.Say(node, "worker: deleting the Node object of an earlier machine")
	if err := o.api.Cordon(ctx, node); err == nil {
		_ = o.api.Drain(ctx, node, fleet.EvictBudget, nil) // no kubelet ends these pods
	}
	return o.api.DeleteNode(ctx, node)
}

// register restarts a kubelet and waits for its Node object.
func (o *operation) register(ctx context.Context, m *rollout.Machine) error {
	if err := deed.Restart(ctx, m.Remote, component.KubeletUnit); err != nil {
		return m.UnitError(ctx, "restart the kubelet", component.KubeletUnit, err)
	}
	err := fleet.Within(ctx, fleet.NodeBudget, "node", func(ctx context.Context) error {
		return o.api.WaitNodes(ctx, []kube.NodeCondition{{Name: m.Name(), Registered: true}}, m.Watch(component.KubeletUnit))
	})
	return m.UnitError(ctx, "wait for the node", component.KubeletUnit, err)
}

// registerAnew gives nodes that are Ready and have the provider ID of another machine their own, one node at a time.
func (o *operation) registerAnew(ctx context.Context) error {
	machines := o.Reachable()
	if len(machines) == 0 {
		return nil
	}
	nodes, err := o.nodes(ctx)
	for _, m := range machines {
		if err != nil {
			return err
		}
		i := slices.IndexFunc(nodes, func(n kube.Node) bool { return n.Name == m.Name() })
		if i < 0 || !o.strange(m, nodes[i]) {
			continue
		}
		if err := o.remake(ctx, m, nodes[i].ProviderID, slices.ContainsFunc(nodes, func(n kube.Node) bool { return n.Name != m.Name() && takesPods(n) })); err != nil {
			return err
		}
		if err := o.nodesReady(ctx, []*rollout.Machine{m}); err != nil {
			return err
		}
		nodes, err = o.nodes(ctx)
	}
	return err
}

// remake makes the Node object of a running machine anew. The node's pods go to other nodes if there are some that take
// them; else they keep running. The kubelet stops meanwhile: should this operation end here, the next one starts it.
func (o *operation) remake(ctx context.Context, m *rollout.Machine, found string, others bool) error {
	want := o.want.Spec.Kubelet.ProviderID(m.Node)
	m.Say("worker: its Node object is made anew, because spec.providerID is %s, wanted %s, and cannot be changed", found, want)
	if others {
		if err := o.empty(ctx, m.Name()); err != nil {
			return err
		}
	}
	if err := deed.Stop(ctx, m.Remote, component.KubeletUnit); err != nil {
		return m.UnitError(ctx, "stop the kubelet", component.KubeletUnit, err)
	}
	whole := context.WithoutCancel(ctx) // a node without its Node object loses its pods after a minute
	err := fleet.Within(whole, fleet.NodeBudget, "Node object", func(ctx context.Context) error {
		return o.api.RemakeNode(ctx, m.Name(), want)
	})
	if started := o.register(whole, m); err == nil {
		return started
	}
	o.uncordonNode(ctx, m.Name())
	return &fleet.StepError{Machine: m.Name(), Step: "change spec.providerID", Err: err, Next: "kubectl get node " + m.Name()}
}

// takesPods reports whether pods without tolerations can be scheduled to a node.
func takesPods(n kube.Node) bool { return n.Ready && !n.Unschedulable && !n.Tainted }
