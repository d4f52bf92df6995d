package controlplane

import (
	"context"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// operation is an operation on a control plane.
type operation struct {
	*rollout.Operation
	want ControlPlane
	had  []kube.ObjectRef // system objects of the prior control plane

	behind answers // that came through the load balancer
}

// ready returns the client of a controller's API server, if that is ready.
func (o *operation) ready(ctx context.Context, m *fleet.Machine) (*kube.Client, error) {
	c, err := o.Access.APIServer(ctx, m)
	if err == nil {
		err = c.Ready(ctx)
	}
	return c, err
}

// anyReady returns the client of the first API server that is ready.
func (o *operation) anyReady(ctx context.Context, machines []*fleet.Machine) (*kube.Client, error) {
	return fleet.FirstAnswer(ctx, machines, o.ready)
}

func (o *operation) waitReady(ctx context.Context, m *fleet.Machine) error {
	c, err := o.Access.APIServer(ctx, m)
	if err != nil {
		return err
	}
	return m.WaitAPIServer(ctx, c)
}
