package rollout

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// workerOperation is an operation on a worker pool.
type workerOperation struct {
	*operation
	want Workers
	api  *kube.Client
}

// operate makes o an operation on this worker pool. It fetches a key from the store for the API
// server's client; it does not wait for an answer of the API server.
func (x Workers) operate(ctx context.Context, o *operation) (*workerOperation, error) {
	c, err := o.access.API(ctx, x.Endpoint)
	if err != nil {
		return nil, err
	}
	return &workerOperation{operation: o, want: x, api: c}, nil
}

// nodeSpec returns the wanted state of a worker's Node object.
func (x Workers) nodeSpec(n component.Node) kube.NodeSpec {
	spec := kube.NodeSpec{Name: n.Name, Labels: x.Spec.Kubelet.NodeLabels(n)}
	for _, t := range x.Spec.Kubelet.Taints {
		spec.Taints = append(spec.Taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	if n.PodCIDR.IsValid() {
		spec.PodCIDR = n.PodCIDR.String()
	}
	return spec
}

// condition is what a worker's node must reach. Without a network of ours a new node cannot be Ready
// before somebody installs one.
func (x Workers) condition(n component.Node) kube.NodeCondition {
	c := kube.NodeCondition{Name: n.Name, InternalIP: n.PrivateIP.String(), Registered: x.Spec.CNI.Network == component.CNINone}
	if v, err := version.Parse(x.Spec.Version); err == nil {
		c.Version = v.Tag()
	}
	return c
}

// observe also compares the Node objects (labels, taints, pod CIDR) with what is wanted.
func (x Workers) observe(ctx context.Context, o *operation) Report {
	return o.report(ctx, func(ctx context.Context, r *Report) {
		if err := nodeDrift(ctx, o.access, x, r); err != nil {
			r.unjudged(finding.Nodes, "", err)
		}
	})
}

func nodeDrift(ctx context.Context, a *fleet.Access, want Workers, r *Report) error {
	nodes, err := fleet.AskAPI(ctx, a, want.Endpoint, func(ctx context.Context, c *kube.Client) ([]corev1.Node, error) {
		return c.NodeObjects(ctx)
	})
	if err != nil {
		return err
	}
	for _, t := range want.Targets {
		i := slices.IndexFunc(nodes, func(n corev1.Node) bool { return n.Name == t.Node.Name })
		if i < 0 {
			r.find(finding.Finding{Subject: t.Node.Name, Kind: finding.Node, Problem: finding.Missing})
			continue
		}
		r.find(kube.NodeDrift(&nodes[i], want.nodeSpec(t.Node))...)
	}
	return nil
}

// apply waits until the nodes are Ready and a pod has started on each node that was changed or
// started.
//
// A change that restarts containerd or replaces the kubelet's binary drains the node first. Any
// other restart of the kubelet or kube-proxy, a repaired file or a renewed certificate does not:
// running pods are not affected. A node whose kubelet does not run is repaired without draining,
// because it cannot end pods gracefully.
func (x Workers) apply(ctx context.Context, base *operation, prior Role) error {
	o, err := x.operate(ctx, base)
	if err != nil {
		return err
	}
	before, changed := prior.(Workers)
	if !changed {
		return o.converge(ctx)
	}
	superseded := fleet.Superseded(x.Targets, before.Targets)
	if err := o.successorsAnswer(ctx, superseded); err != nil {
		return err
	}
	// Two kubelets of one name would take turns at its Node object.
	if err := o.removeNodes(ctx, before, superseded); err != nil {
		return err
	}
	return o.convergeAndLeave(ctx, before)
}

func (o *workerOperation) converge(ctx context.Context) error {
	if err := o.observeAndFill(ctx); err != nil {
		return err
	}
	if err := o.registerAgain(ctx); err != nil {
		return err
	}
	if err := o.findUnproven(ctx); err != nil {
		return err
	}
	var facts []workerFacts
	for _, m := range o.machines {
		reloads, rest := splitReloads(m.state.Units, m.changes)
		facts = append(facts, workerFacts{
			name: m.Name(), reachable: m.gone == nil, running: m.running(component.KubeletUnit), unproven: m.unproven,
			reloads: len(reloads) > 0, changes: len(rest) > 0, rolls: rollsNode(rest), drain: disturbsPods(rest),
		})
	}
	plan := planWorkers(facts)
	if plan.disturbs() {
		if err := o.prepare(ctx, plan); err != nil {
			return err
		}
		if err := o.proveOthers(ctx); err != nil {
			return err
		}
	}
	for _, stage := range plan {
		if err := o.carryOut(ctx, stage); err != nil {
			return err
		}
	}
	o.saveSettled()
	if err := o.restartExpired(ctx); err != nil {
		return err
	}
	if err := o.nodesReady(ctx, o.reachable()); err != nil {
		return err
	}
	return o.skipped()
}

// nodes returns the nodes of the cluster, once an API server is ready.
func (o *workerOperation) nodes(ctx context.Context) ([]kube.Node, error) {
	err := fleet.Within(ctx, fleet.GateBudget, "API server", func(ctx context.Context) error { return o.api.WaitReady(ctx, fleet.Poll, nil) })
	if err != nil {
		return nil, err
	}
	return o.api.Nodes(ctx)
}

// registerAgain restarts running kubelets whose Node objects were deleted: a kubelet registers its
// node only when it starts.
func (o *workerOperation) registerAgain(ctx context.Context) error {
	running := slices.DeleteFunc(o.reachable(), func(m *convergence) bool { return !m.running(component.KubeletUnit) })
	if len(running) == 0 {
		return nil
	}
	nodes, err := o.nodes(ctx)
	if err != nil {
		return err
	}
	return fleet.Each(ctx, running, func(ctx context.Context, m *convergence) error {
		if slices.ContainsFunc(nodes, func(n kube.Node) bool { return n.Name == m.Name() }) {
			return nil
		}
		m.Say("worker: its Node object is gone, restarting the kubelet")
		if err := deed.Restart(ctx, m.Remote, component.KubeletUnit); err != nil {
			return m.UnitError(ctx, "restart the kubelet", component.KubeletUnit, err)
		}
		err := fleet.Within(ctx, fleet.NodeBudget, "node", func(ctx context.Context) error {
			return o.api.WaitNodes(ctx, []kube.NodeCondition{{Name: m.Name(), Registered: true}}, m.Watch(component.KubeletUnit))
		})
		return m.UnitError(ctx, "wait for the node", component.KubeletUnit, err)
	})
}

// nodesReady waits until the machines' nodes are registered, sets what is wanted on their Node
// objects, and waits until they are Ready and a pod has started there. It uncordons nodes that a
// roll-out has cordoned.
func (o *workerOperation) nodesReady(ctx context.Context, machines []*convergence) error {
	return fleet.Each(ctx, machines, func(ctx context.Context, m *convergence) error {
		runs, err := readRuns(ctx, m.Machine)
		if err != nil {
			return err
		}
		err = fleet.Within(ctx, fleet.NodeBudget, "node", func(ctx context.Context) error {
			err := inParallel(ctx,
				func(ctx context.Context) error { return o.nodeReady(ctx, m, runs) },
				func(ctx context.Context) error { return o.prove(ctx, m, runs) })
			if err != nil {
				return err
			}
			return o.api.Uncordon(ctx, m.Name())
		})
		return nodeError(ctx, m.Machine, err)
	})
}

// nodeReady is the part of nodesReady that needs only the Node object. A node that was Ready has to become
// Ready again, whatever its network is.
func (o *workerOperation) nodeReady(ctx context.Context, m *convergence, runs nodeRuns) error {
	watch := m.Watch(component.KubeletUnit)
	condition := o.want.condition(m.Node)
	condition.Registered = condition.Registered && !m.ready
	condition.BootID = runs.boot
	registered := condition
	registered.Registered = true
	if err := o.api.WaitNodes(ctx, []kube.NodeCondition{registered}, watch); err != nil {
		return err
	}
	if err := o.api.ReconcileNode(ctx, o.want.nodeSpec(m.Node)); err != nil {
		return err
	}
	if err := o.api.WaitNodes(ctx, []kube.NodeCondition{condition}, watch); err != nil {
		return err
	}
	m.Say("node: Ready")
	return nil
}

// remove also deletes the Node objects. It does not drain, because there may be no node to move to.
// It skips API servers that cannot be reached.
func (x Workers) remove(ctx context.Context, base *operation) error {
	if err := base.remove(ctx); err != nil {
		return err
	}
	o, err := x.operate(ctx, base)
	if err == nil {
		err = fleet.Within(ctx, fleet.LeaveBudget, "deletion of the Node objects", func(ctx context.Context) error {
			return o.deleteNodes(ctx, withoutTargets(x.Targets, base.kept))
		})
	}
	if err != nil {
		for _, t := range x.Targets {
			base.fleet.Say(t.Name(), "worker: its Node object was not deleted: %v", err)
		}
	}
	return nil
}

// NodeLabels returns the labels that the pool has set on a node for its specification.
func (x Workers) NodeLabels(ctx context.Context, f *fleet.Fleet, n component.Node) (map[string]string, error) {
	node := n.Name
	a := f.Access(x.Spec.Cluster.PKI)
	defer a.Close()
	nodes, err := fleet.AskAPI(ctx, a, x.Endpoint, func(ctx context.Context, c *kube.Client) ([]corev1.Node, error) {
		return c.NodeObjects(ctx, node)
	})
	if err != nil {
		return nil, fmt.Errorf("labels of node %s: %w", node, err)
	}
	if len(nodes) == 0 {
		return nil, fmt.Errorf("labels of node %s: there is no such node", node)
	}
	return component.OwnLabels(n, kube.OwnedLabels(&nodes[0])), nil
}
