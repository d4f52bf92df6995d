package rollout

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
)

func (x LoadBalancer) observe(ctx context.Context, o *operation) Report { return o.report(ctx, nil) }

// apply waits until HAProxy's port answers, on each machine and at the virtual address. It does not wait for a
// healthy API server behind it, because the load balancer is installed first.
func (x LoadBalancer) apply(ctx context.Context, o *operation, prior Role) error {
	if err := x.balance(ctx, o, prior); err != nil {
		return err
	}
	if prior != nil {
		// A machine that leaves may have the virtual address until then.
		if err := o.removeLeaving(ctx, prior); err != nil {
			return err
		}
	}
	return x.waitAddress(ctx, o.reached())
}

func (x LoadBalancer) remove(ctx context.Context, o *operation) error { return o.remove(ctx) }

func (x LoadBalancer) balance(ctx context.Context, o *operation, prior Role) error {
	if err := o.observeAndFill(ctx); err != nil {
		return err
	}
	if err := x.checkInterfaces(ctx, o); err != nil {
		return err
	}
	if err := x.checkFree(ctx, o, prior); err != nil {
		return err
	}
	one := func(ctx context.Context, m *convergence) error {
		if err := o.apply(ctx, m, m.changes); err != nil {
			return err
		}
		return waitPort(ctx, m.Machine, x.Spec.ListenPort())
	}
	if err := eachInTurn(ctx, o.reachable(), one); err != nil {
		return err
	}
	o.saveSettled()
	return o.skipped()
}

// eachInTurn changes load balancers one after another: the others carry the virtual address meanwhile. None
// does before the first installation, which is parallel.
func eachInTurn(ctx context.Context, machines []*convergence, change func(context.Context, *convergence) error) error {
	if !slices.ContainsFunc(machines, func(m *convergence) bool { return m.running(component.HAProxyUnit) }) {
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
