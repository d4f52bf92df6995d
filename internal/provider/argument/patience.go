package argument

import (
	"context"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// Patiently is [tf.WithTimeout] for what waits for machines of a cluster: it is patient, too.
func Patiently(ctx context.Context, get func(context.Context, time.Duration) (time.Duration, diag.Diagnostics), fallback time.Duration, diags *diag.Diagnostics) (context.Context, context.CancelFunc) {
	return tf.WithTimeout(Patient(ctx, get, fallback), get, fallback, diags)
}

// Patient lets each single wait take longer if the timeouts block allows more time than the default, in proportion:
// machines that need it are slow in everything.
func Patient(ctx context.Context, get func(context.Context, time.Duration) (time.Duration, diag.Diagnostics), fallback time.Duration) context.Context {
	limit, _ := get(ctx, fallback) // WithTimeout reports what is wrong with it
	return patience.With(ctx, float64(limit)/float64(fallback))
}
