package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// engine returns a roll-out engine that reports what it does to the log.
func (d *providerData) engine(ctx context.Context) *rollout.Engine {
	return &rollout.Engine{
		Pool:  d.pool,
		Store: d.store,
		Now:   d.now,
		Rand:  d.rand,
		Progress: func(machine, message string) {
			tflog.Info(ctx, message, map[string]any{"machine": machine})
		},
	}
}
