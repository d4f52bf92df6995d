package provider

import (
	"context"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// patiently is [tf.WithTimeout] for what waits for machines of a cluster. If the timeouts block allows more time
// than the default, each single wait may take longer in proportion: machines that need it are slow in everything.
func patiently(ctx context.Context, get func(context.Context, time.Duration) (time.Duration, diag.Diagnostics), fallback time.Duration, diags *diag.Diagnostics) (context.Context, context.CancelFunc) {
	limit, _ := get(ctx, fallback) // WithTimeout reports what is wrong with it
	return tf.WithTimeout(patience.With(ctx, float64(limit)/float64(fallback)), get, fallback, diags)
}
