package fleet

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

func TestPatience(t *testing.T) {
	for _, c := range []struct {
		name string
		ctx  func(context.Context) context.Context
		want time.Duration
	}{
		{"none", func(ctx context.Context) context.Context { return ctx }, 2 * time.Minute},
		{"three times", func(ctx context.Context) context.Context { return patience.With(ctx, 3) }, 6 * time.Minute},
		{"less", func(ctx context.Context) context.Context { return patience.With(ctx, 0.1) }, 2 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				err := Within(c.ctx(t.Context()), 2*time.Minute, "a thing", func(ctx context.Context) error {
					<-ctx.Done()
					return ctx.Err()
				})
				if took := time.Since(began); took != c.want {
					t.Errorf("the wait took %s, wanted %s", took, c.want)
				}
				if want := "a thing: not within " + c.want.String() + ": context deadline exceeded"; err == nil || err.Error() != want {
					t.Errorf("%v, wanted %s", err, want)
				}
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v is not the end of a deadline", err)
				}
			})
		})
	}
}
