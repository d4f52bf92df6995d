// Package loadbalancer is the role of HAProxy in front of the API servers, on one machine or on several
// that share a virtual address. It waits for ports and for the address. What may not enter: what is
// behind the port, other roles, load balancers of a cloud, Terraform and AWS.
package loadbalancer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// LoadBalancer is HAProxy in front of the API servers, on one machine or on several that share a virtual
// address.
type LoadBalancer struct {
	Spec    component.LoadBalancerSpec
	Targets []fleet.Target
}

// Definition implements Role. HAProxy is a package of the distribution, so nothing is downloaded.
func (x LoadBalancer) Definition() rollout.Definition {
	x.Spec.Machines = fleet.Nodes(x.Targets)
	return rollout.Definition{Name: "load balancer", PKI: x.Spec.Cluster.PKI, Targets: x.Targets,
		Machine: func(n component.Node) (component.Machine, error) { return component.LoadBalancer(x.Spec, n) },
		Traces:  x.Spec.Traces(),
		AskedAt: x.Spec.ListenPort(),
		ReadSettings: func(_ component.Node, f component.Found) (_ rollout.Role, err error) {
			x.Spec, err = x.Spec.Read(f)
			return x, err
		}}
}

// Observe implements Role.
func (x LoadBalancer) Observe(ctx context.Context, o *rollout.Operation) rollout.Report {
	return o.Report(ctx, nil)
}

// Apply implements Role. It waits until HAProxy's port answers, on each machine and at the virtual address. It does not wait for a
// healthy API server behind it, because the load balancer is installed first.
func (x LoadBalancer) Apply(ctx context.Context, o *rollout.Operation, prior rollout.Role) error {
	if err := x.balance(ctx, o, prior); err != nil {
		return err
	}
	// A machine that leaves may have the virtual address until then.
	if err := o.RemoveLeaving(ctx); err != nil {
		return err
	}
	return x.waitAddress(ctx, o.Reached())
}

// Remove implements Role.
func (x LoadBalancer) Remove(ctx context.Context, o *rollout.Operation) error { return o.Remove(ctx) }

func (x LoadBalancer) balance(ctx context.Context, o *rollout.Operation, prior rollout.Role) error {
	if err := o.Survey(ctx); err != nil {
		return err
	}
	if err := x.checkInterfaces(ctx, o); err != nil {
		return err
	}
	if err := x.checkFree(ctx, o, prior); err != nil {
		return err
	}
	one := func(ctx context.Context, m *rollout.Machine) error {
		if err := o.Apply(ctx, m, m.Changes); err != nil {
			return err
		}
		return waitPort(ctx, m.Machine, x.Spec.ListenPort())
	}
	if err := eachInTurn(ctx, o.Reachable(), one); err != nil {
		return err
	}
	o.SaveUnchanged()
	return o.Skipped()
}

// portBudget is how long HAProxy may take to listen after its start.
const portBudget = 30 * time.Second

// eachInTurn changes load balancers one after another: the others carry the virtual address meanwhile. None
// does before the first installation, which is parallel.
func eachInTurn(ctx context.Context, machines []*rollout.Machine, change func(context.Context, *rollout.Machine) error) error {
	if !slices.ContainsFunc(machines, func(m *rollout.Machine) bool { return m.Running(component.HAProxyUnit) }) {
		return fleet.Each(ctx, machines, change)
	}
	for _, m := range machines {
		if err := change(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// waitPort waits until something listens on the port.
func waitPort(ctx context.Context, m *fleet.Machine, port int) error {
	var last error
	watch := m.Watch(component.HAProxyUnit)
	err := fleet.Within(ctx, portBudget, "HAProxy", func(ctx context.Context) error {
		return wait.PollUntilContextCancel(ctx, fleet.Poll, true, func(ctx context.Context) (bool, error) {
			conn, err := m.Remote.Dial(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err == nil {
				return true, conn.Close()
			}
			last = err
			return false, watch(ctx)
		})
	})
	if err != nil && last != nil {
		err = fmt.Errorf("%w (last: %w)", err, last)
	}
	return m.UnitError(ctx, "wait for the load balancer's port", component.HAProxyUnit, err)
}
