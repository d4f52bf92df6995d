package rollout

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
)

// ObserveLoadBalancer compares the load balancer's machine with what is wanted.
func (e *Engine) ObserveLoadBalancer(ctx context.Context, want LoadBalancer, rec Record) (Report, error) {
	o, err := e.begin(want.role(), rec)
	if err != nil {
		return Report{}, err
	}
	return o.report(ctx, nil), nil
}

// ApplyLoadBalancer brings HAProxy to what is wanted and waits until its port
// answers. Whether there is a healthy API server behind it is not its concern:
// the load balancer comes first.
func (e *Engine) ApplyLoadBalancer(ctx context.Context, want LoadBalancer, prior *LoadBalancer, rec Record) (Record, error) {
	o, err := e.begin(want.role(), rec)
	if err != nil {
		return rec, err
	}
	err = o.balance(ctx, want.port())
	if err == nil && prior != nil {
		err = o.dismiss(ctx, prior.role())
	}
	return o.result(), err
}

func (x LoadBalancer) port() int {
	if x.Spec.Port == 0 {
		return component.APIServerPort
	}
	return x.Spec.Port
}

func (o *operation) balance(ctx context.Context, port int) error {
	if err := o.lookAndFill(ctx); err != nil {
		return err
	}
	if err := fleet.Each(ctx, o.reachable(), func(ctx context.Context, m *convergence) error {
		if err := o.apply(ctx, m, m.changes); err != nil {
			return err
		}
		return waitPort(ctx, m.Machine, port)
	}); err != nil {
		return err
	}
	o.saveSettled()
	return o.left()
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

// RemoveLoadBalancer stops HAProxy and deletes its files.
func (e *Engine) RemoveLoadBalancer(ctx context.Context, have LoadBalancer, rec Record) error {
	return e.remove(ctx, have.role(), rec)
}
