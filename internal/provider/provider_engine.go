package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// engine returns the roll-out engine of the fleet.
func (d *providerData) engine(ctx context.Context) *rollout.Engine {
	return &rollout.Engine{Fleet: d.fleet(ctx)}
}

// fleet returns how machines are reached. What is done to them goes to the log.
func (d *providerData) fleet(ctx context.Context) *fleet.Fleet {
	return &fleet.Fleet{
		Pool:  d.pool,
		Store: d.store,
		Clock: d.now,
		Rand:  d.rand,
		Progress: func(machine, message string) {
			tflog.Info(ctx, message, map[string]any{"machine": machine})
		},
	}
}
