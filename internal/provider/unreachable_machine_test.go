package provider

import (
	"context"
	"errors"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// refusing is a machine that cannot be reached.
type refusing struct{ name string }

func (r refusing) WaitReady(context.Context, time.Duration) error {
	return &remote.UnreachableError{Machine: r.name, Address: "203.0.113.10:22", Err: errors.New("connection refused")}
}

func (r refusing) Run(ctx context.Context, _ remote.Command) (remote.Output, error) {
	return remote.Output{}, r.WaitReady(ctx, 0)
}
