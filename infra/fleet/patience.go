package fleet

import (
	"context"
	"fmt"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// Observing limits ctx by [ObserveBudget].
func Observing(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := patience.Of(ctx, ObserveBudget)
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
}

// Probing limits ctx by [ProbeBudget].
func Probing(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := patience.Of(ctx, ProbeBudget)
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s", limit))
}
