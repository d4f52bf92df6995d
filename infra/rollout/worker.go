package rollout

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// Workers is a pool of worker machines.
type Workers struct {
	Spec    component.WorkerSpec
	Targets []fleet.Target
	// Endpoint is the API server's public endpoint: https://<host>:6443.
	Endpoint string
	// MaxUnavailable is how many nodes a roll-out may take down at a time; 0 means 1. The next node
	// is taken down as soon as one is Ready again.
	MaxUnavailable int
	// DrainTimeout bounds the draining of one node; 0 means fleet.DefaultDrainTimeout.
	DrainTimeout time.Duration
}

// name is how the role is called in progress, in errors and in claims.
const workerName = "worker"

// Definition implements Role.
func (x Workers) Definition() Definition {
	return Definition{Name: workerName, PKI: x.Spec.Cluster.PKI, Targets: x.Targets, Artifacts: x.Spec.Artifacts,
		Machine: func(n component.Node) (component.Machine, error) { return component.Worker(x.Spec, n) },
		Traces:  x.Spec.Traces(),
		ReadSettings: func(n component.Node, f component.Found) (_ Role, err error) {
			x.Spec, err = x.Spec.Read(n, f)
			return x, err
		},
		Dirs:     []string{"/var/lib/kubelet", "/var/lib/containerd", "/var/lib/cni"},
		EndFirst: deed.EndPods(component.KubeletUnit, component.KubeProxyUnit, component.ContainerdUnit)}
}

// workerOperation is an operation on a worker pool.
type workerOperation struct {
	*Operation
	want Workers
	api  *kube.Client

	mu sync.Mutex
	// ready are the machines whose node was Ready when the operation began, and unproven those on which
	// no pod is known to have started since their units started.
	ready, unproven map[string]bool
}

// operate makes o an operation on this worker pool. It fetches a key from the store for the API
// server's client; it does not wait for an answer of the API server.
func (x Workers) operate(ctx context.Context, o *Operation) (*workerOperation, error) {
	c, err := o.Access.API(ctx, x.Endpoint)
	if err != nil {
		return nil, err
	}
	return &workerOperation{Operation: o, want: x, api: c, ready: map[string]bool{}, unproven: map[string]bool{}}, nil
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

// Observe implements Role. It also compares the Node objects (labels, taints, pod CIDR) with what is wanted.
func (x Workers) Observe(ctx context.Context, o *Operation) Report {
	return o.Report(ctx, func(ctx context.Context, r *Report) {
		if err := nodeDrift(ctx, o.Access, x, r); err != nil {
			r.CannotJudge(finding.Nodes, "", err)
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
			r.Find(finding.Finding{Subject: t.Node.Name, Kind: finding.Node, Problem: finding.Missing})
			continue
		}
		r.Find(kube.NodeDrift(&nodes[i], want.nodeSpec(t.Node))...)
	}
	return nil
}

// Apply implements Role. It waits until the nodes are Ready and a pod has started on each node that was changed or
// started.
//
// A change that restarts containerd or replaces the kubelet's binary drains the node first. Any
// other restart of the kubelet or kube-proxy, a repaired file or a renewed certificate does not:
// running pods are not affected. A node whose kubelet does not run is repaired without draining,
// because it cannot end pods gracefully.
func (x Workers) Apply(ctx context.Context, base *Operation, prior Role) error {
	o, err := x.operate(ctx, base)
	if err != nil {
		return err
	}
	before, changed := prior.(Workers)
	if !changed {
		return o.converge(ctx)
	}
	superseded := fleet.Superseded(x.Targets, o.Prior.Targets)
	if err := o.successorsAnswer(ctx, superseded); err != nil {
		return err
	}
	// Two kubelets of one name would take turns at its Node object.
	if err := o.removeNodes(ctx, superseded); err != nil {
		return err
	}
	return o.convergeAndLeave(ctx, before)
}

func (o *workerOperation) converge(ctx context.Context) error {
	if err := o.Survey(ctx); err != nil {
		return err
	}
	if err := o.CheckReach(ctx, func(*Machine) *Need { return OneOf("the API server", o.want.Spec.ControlPlaneEndpoint) }); err != nil {
		return err
	}
	if err := o.registerAgain(ctx); err != nil {
		return err
	}
	if err := o.findUnproven(ctx); err != nil {
		return err
	}
	var facts []workerFacts
	for _, m := range o.Machines {
		reloads, rest := splitReloads(m.State.Units, m.Changes)
		facts = append(facts, workerFacts{
			name: m.Name(), reachable: m.Gone == nil, running: m.Running(component.KubeletUnit), unproven: o.unproven[m.Name()],
			reloads: len(reloads) > 0, changes: len(rest) > 0, rolls: rollsNode(rest), drain: disturbsPods(rest),
		})
	}
	plan := planWorkers(facts)
	if plan.Disturbs() {
		if err := o.Prepare(ctx, plan); err != nil {
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
	o.SaveSettled()
	if err := o.restartExpired(ctx); err != nil {
		return err
	}
	if err := o.nodesReady(ctx, o.Reachable()); err != nil {
		return err
	}
	return o.Skipped()
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
	running := slices.DeleteFunc(o.Reachable(), func(m *Machine) bool { return !m.Running(component.KubeletUnit) })
	if len(running) == 0 {
		return nil
	}
	nodes, err := o.nodes(ctx)
	if err != nil {
		return err
	}
	return fleet.Each(ctx, running, func(ctx context.Context, m *Machine) error {
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
func (o *workerOperation) nodesReady(ctx context.Context, machines []*Machine) error {
	return fleet.Each(ctx, machines, func(ctx context.Context, m *Machine) error {
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
func (o *workerOperation) nodeReady(ctx context.Context, m *Machine, runs nodeRuns) error {
	watch := m.Watch(component.KubeletUnit)
	condition := o.want.condition(m.Node)
	condition.Registered = condition.Registered && !o.ready[m.Name()]
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

// Remove implements Role. It also deletes the Node objects. It does not drain, because there may be no node to move to.
// It skips API servers that cannot be reached.
func (x Workers) Remove(ctx context.Context, base *Operation) error {
	if err := base.Remove(ctx); err != nil {
		return err
	}
	o, err := x.operate(ctx, base)
	if err == nil {
		err = fleet.Within(ctx, fleet.LeaveBudget, "deletion of the Node objects", func(ctx context.Context) error {
			return o.deleteNodes(ctx, fleet.Except(x.Targets, base.Kept()))
		})
	}
	if err != nil {
		for _, t := range x.Targets {
			base.Fleet.Say(t.Name(), "worker: its Node object was not deleted: %v", err)
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
