// Package workerpool is the role of a pool of worker machines: their nodes are drained, rolled, proven by a
// pod that starts, and removed. What may not enter: machines of the control plane, other roles, taking a
// machine down for other reasons (package maintenance), Terraform and AWS.
package workerpool

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// Pool is a pool of worker machines.
type Pool struct {
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
const name = "worker"

// Definition implements Role.
func (x Pool) Definition() rollout.Definition {
	return rollout.Definition{Name: name, PKI: x.Spec.Cluster.PKI, Targets: x.Targets, Artifacts: x.Spec.Artifacts,
		Machine: component.Workers(x.Spec),
		Traces:  x.Spec.Traces(),
		ReadSettings: func(n component.Node, f component.Found) (_ rollout.Role, err error) {
			x.Spec, err = x.Spec.Read(n, f)
			return x, err
		},
		Dirs:     component.WorkerDirs,
		EndFirst: deed.EndPods(component.KubeletUnit, component.KubeProxyUnit, component.ContainerdUnit)}
}

// Observe implements Role. It also compares the Node objects (labels, taints, pod CIDR, provider ID) with what is wanted.
func (x Pool) Observe(ctx context.Context, o *rollout.Operation) rollout.Report {
	if len(x.Targets) == 0 {
		return o.Report(ctx, nil) // nothing is asked of a cluster that may be paused
	}
	return o.Report(ctx, func(ctx context.Context, r *rollout.Report) {
		if err := nodeDrift(ctx, o.Access, x, r); err != nil {
			r.CannotJudge(finding.Nodes, "", err)
		}
	})
}

func nodeDrift(ctx context.Context, a *fleet.Access, want Pool, r *rollout.Report) error {
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
// A change that restarts containerd, replaces the kubelet's binary, or changes how the kubelet places
// pods on processors, memory and cgroups, drains the node first. Any other restart of the kubelet or
// kube-proxy, a repaired file or a renewed certificate does not: running pods are not affected. A node
// whose kubelet does not run is repaired without draining, because it cannot end pods gracefully.
func (x Pool) Apply(ctx context.Context, base *rollout.Operation, prior rollout.Role) error {
	o, err := x.operate(ctx, base)
	if err != nil {
		return err
	}
	before, changed := prior.(Pool)
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

// convergeAndLeave brings the pool to the wanted state and removes nodes that leave. The routes to these go last.
func (o *operation) convergeAndLeave(ctx context.Context, prior Pool) error {
	x := o.want
	leavers := fleet.Leaving(x.Targets, o.Prior.Targets)
	meanwhile, kept := x.untilGone(prior, leavers)
	if kept {
		if err := o.wantInstead(meanwhile); err != nil {
			return err
		}
	}
	if err := o.converge(ctx); err != nil {
		return err
	}
	if err := o.removeNodes(ctx, leavers); err != nil || !kept {
		return err
	}
	if err := o.wantInstead(x); err != nil {
		return err
	}
	return o.converge(ctx)
}

func (o *operation) converge(ctx context.Context) error {
	if err := o.Survey(ctx); err != nil {
		return err
	}
	if err := o.CheckReach(ctx, func(*rollout.Machine) *rollout.Need {
		return rollout.OneOf("the API server", o.want.Spec.ControlPlaneEndpoint)
	}); err != nil {
		return err
	}
	if err := o.registerAgain(ctx); err != nil {
		return err
	}
	if err := o.findUnproven(ctx); err != nil {
		return err
	}
	if err := o.findOutgrown(ctx); err != nil {
		return err
	}
	var facts []workerFacts
	for _, m := range o.Machines {
		reloads, rest := splitReloads(m.State.Units, m.Changes)
		facts = append(facts, workerFacts{
			name: m.Name(), reachable: m.Gone == nil, running: m.Running(component.KubeletUnit), unproven: o.unproven[m.Name()], unready: !o.ready[m.Name()],
			reloads: len(reloads) > 0, changes: len(rest) > 0, rolls: rollsNode(rest), drain: disturbsPods(rest) || o.outgrown[m.Name()],
		})
	}
	plan := planWorkers(facts)
	if plan.Starts() {
		if err := o.Prepare(ctx, plan); err != nil {
			return err
		}
	}
	if plan.Disturbs() {
		if err := o.proveOthers(ctx); err != nil {
			return err
		}
	}
	for _, batch := range plan {
		if err := o.carryOut(ctx, batch); err != nil {
			return err
		}
	}
	o.SaveUnchanged()
	if err := o.restartExpired(ctx); err != nil {
		return err
	}
	if err := o.nodesReady(ctx, o.Reachable()); err != nil {
		return err
	}
	if err := o.registerAnew(ctx); err != nil {
		return err
	}
	return o.Skipped()
}

// Remove implements Role. It also deletes the Node objects. It does not drain, because there may be no node to move to.
// It skips API servers that cannot be reached.
func (x Pool) Remove(ctx context.Context, base *rollout.Operation) error {
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
func (x Pool) NodeLabels(ctx context.Context, f *fleet.Fleet, n component.Node) (map[string]string, error) {
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
