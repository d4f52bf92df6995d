package host

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// hanging is a machine on which a command never ends.
type hanging struct{ begins bool }

func (hanging) Name() string { return "m" }

func (h hanging) Run(ctx context.Context, cmd remote.Command) (remote.Output, error) {
	if h.begins {
		_, _ = cmd.Tee.Write([]byte("begun\x00"))
	}
	<-ctx.Done()
	return remote.Output{}, ctx.Err()
}

// TestRemoveHangs: a machine that does not even begin does not get all the time of a removal.
func TestRemoveHangs(t *testing.T) {
	for begins, want := range map[bool]time.Duration{false: removeSilence, true: 20 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
			defer cancel()
			asked := time.Now()
			err := Remove(ctx, hanging{begins}, Removal{})
			if took := time.Since(asked); took != want || errors.Is(err, errSilent) == begins {
				t.Errorf("begins %t: after %s: %v", begins, took, err)
			}
		})
	}
}
