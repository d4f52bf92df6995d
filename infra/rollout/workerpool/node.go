package workerpool

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// operation is an operation on a worker pool.
type operation struct {
	*rollout.Operation
	want Pool
	api  *kube.Client

	mu sync.Mutex
	// ready are the machines whose node was Ready when the operation began, and unproven those on which
	// no pod is known to have started since their units started.
	ready, unproven map[string]bool
	// outgrown are the machines on which the kubelet's new settings do not fit the resources that it has given
	// to pods. stale are the files in which a kubelet has noted these resources, and with which it may not
	// start.
	outgrown map[string]bool
	stale    map[string][]string
}

// operate makes o an operation on this worker pool. It fetches a key from the store for the API
// server's client; it does not wait for an answer of the API server.
func (x Pool) operate(ctx context.Context, o *rollout.Operation) (*operation, error) {
	c, err := o.Access.API(ctx, x.Endpoint)
	if err != nil {
		return nil, err
	}
	return &operation{Operation: o, want: x, api: c, ready: map[string]bool{}, unproven: map[string]bool{},
		outgrown: map[string]bool{}, stale: map[string][]string{}}, nil
}

// nodeSpec returns the wanted state of a worker's Node object.
func (x Pool) nodeSpec(n component.Node) kube.NodeSpec {
	spec := kube.NodeSpec{Name: n.Name, Labels: x.Spec.Kubelet.NodeLabels(n), ProviderID: x.Spec.Kubelet.ProviderID(n)}
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
func (x Pool) condition(n component.Node) kube.NodeCondition {
	c := kube.NodeCondition{Name: n.Name, InternalIP: n.PrivateIP.String(), Registered: x.Spec.CNI.Network == component.CNINone}
	if v, err := version.Parse(x.Spec.Version); err == nil {
		c.Version = v.Tag()
	}
	return c
}

// nodes returns the nodes of the cluster, once an API server is ready.
func (o *operation) nodes(ctx context.Context) ([]kube.Node, error) {
	err := fleet.Within(ctx, fleet.GateBudget, "API server", func(ctx context.Context) error { return o.api.WaitReady(ctx, fleet.Poll, nil) })
	if err != nil {
		return nil, err
	}
	return o.api.Nodes(ctx)
}

// nodesReady waits until the machines' nodes are registered, sets what is wanted on their Node
// objects, and waits until they are Ready and a pod has started there. It uncordons nodes that a
// roll-out has cordoned.
func (o *operation) nodesReady(ctx context.Context, machines []*rollout.Machine) error {
	return fleet.Each(ctx, machines, func(ctx context.Context, m *rollout.Machine) error {
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
func (o *operation) nodeReady(ctx context.Context, m *rollout.Machine, runs nodeRuns) error {
	if err := o.identify(ctx, m, runs.boot); err != nil {
		return err
	}
	condition := o.want.condition(m.Node)
	condition.Registered = condition.Registered && !o.ready[m.Name()]
	condition.BootID = runs.boot
	if err := o.api.WaitNodes(ctx, []kube.NodeCondition{condition}, m.Watch(component.KubeletUnit)); err != nil {
		return err
	}
	m.Say("node: Ready")
	return nil
}

// identify waits until a machine's node is registered, by a kubelet of this boot unless boot is empty, and sets what is
// wanted on its Node object.
func (o *operation) identify(ctx context.Context, m *rollout.Machine, boot string) error {
	condition := o.want.condition(m.Node)
	condition.Registered, condition.BootID = true, boot
	if err := o.api.WaitNodes(ctx, []kube.NodeCondition{condition}, m.Watch(component.KubeletUnit)); err != nil {
		return err
	}
	return o.api.ReconcileNode(ctx, o.want.nodeSpec(m.Node))
}

// inParallel runs functions in parallel; the first error cancels the others.
func inParallel(ctx context.Context, all ...func(context.Context) error) error {
	group, ctx := parallel.WithContext(ctx)
	for _, f := range all {
		group.Go(func() error { return f(ctx) })
	}
	return group.Wait()
}
