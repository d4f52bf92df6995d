package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// engine returns the rollout engine.
func (d *providerData) engine(ctx context.Context) *rollout.Engine {
	return &rollout.Engine{Fleet: d.fleet(ctx)}
}

// fleet returns the access to the machines. What is done on them is logged.
func (d *providerData) fleet(ctx context.Context) *fleet.Fleet {
	return &fleet.Fleet{
		Pool:   d.pool,
		Store:  d.store,
		Clock:  d.now,
		Rand:   d.rand,
		Timing: d.timing,
		Progress: func(machine, message string) {
			tflog.Info(ctx, message, map[string]any{"machine": machine})
		},
	}
}
