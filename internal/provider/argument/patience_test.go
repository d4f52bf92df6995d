package argument

import (
	"context"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// TestTimeLimit: patience lengthens the default of a time limit, but no configured limit.
func TestTimeLimit(t *testing.T) {
	configured := func(limit time.Duration) func(context.Context, time.Duration) (time.Duration, diag.Diagnostics) {
		return func(_ context.Context, fallback time.Duration) (time.Duration, diag.Diagnostics) {
			if limit == 0 {
				return fallback, nil
			}
			return limit, nil
		}
	}
	for name, tt := range map[string]struct {
		patience         float64
		configured, want time.Duration
	}{
		"the default":               {1, 0, 10 * time.Minute},
		"three times the default":   {3, 0, 30 * time.Minute},
		"a configured limit":        {1, 7 * time.Minute, 7 * time.Minute},
		"a configured limit, three": {3, 7 * time.Minute, 7 * time.Minute},
	} {
		var diags diag.Diagnostics
		ctx, cancel := WithTimeout(patience.With(t.Context(), tt.patience), configured(tt.configured), 10*time.Minute, &diags)
		deadline, limited := ctx.Deadline()
		cancel()
		if got := time.Until(deadline).Round(time.Minute); !limited || got != tt.want || diags.HasError() {
			t.Errorf("%s: %s, wanted %s", name, got, tt.want)
		}
	}
}
