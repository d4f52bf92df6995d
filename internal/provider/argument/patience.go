package argument

import (
	"context"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// WithTimeout is [tf.WithTimeout] with a fallback that the provider's patience lengthens.
func WithTimeout(ctx context.Context, get tf.Limit, fallback time.Duration, diags *diag.Diagnostics) (context.Context, context.CancelFunc) {
	return tf.WithTimeout(ctx, get, patience.Of(ctx, fallback), diags)
}
