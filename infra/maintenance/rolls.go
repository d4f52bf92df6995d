package maintenance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
)

// Rolls lets this process replace one machine of a cluster at a time. The zero value is ready for use. It
// is safe for concurrent use.
type Rolls struct {
	mu    sync.Mutex
	taken map[string]string // machine by cluster
}

// Turn returns nil if a machine may be replaced now: this process replaces no other machine of its cluster,
// and all others of its kind do their work. kind finds the machines of its kind that run, and works returns
// an error unless a machine does its work, as [Works] does. Otherwise the error says why not.
func (r *Rolls) Turn(ctx context.Context, cluster, machine string, kind func(context.Context) ([]fleet.Target, error), works func(context.Context, fleet.Target) error) error {
	if first := r.take(cluster, machine); first != machine {
		return fmt.Errorf("%s is replaced first", first)
	}
	others, err := kind(ctx)
	if err != nil {
		return err
	}
	others = slices.DeleteFunc(others, func(t fleet.Target) bool { return t.Node.Name == machine })
	return fleet.Each(ctx, others, func(ctx context.Context, t fleet.Target) error {
		if err := works(ctx, t); err != nil {
			return fmt.Errorf("%s: %w", t.Node.Name, err)
		}
		return nil
	})
}

// take returns the machine of the cluster whose turn it is: this one unless there is one.
func (r *Rolls) take(cluster, machine string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken == nil {
		r.taken = map[string]string{}
	}
	if r.taken[cluster] == "" {
		r.taken[cluster] = machine
	}
	return r.taken[cluster]
}

// Works returns an error unless a machine does something for its cluster, as find finds out.
func Works(find func(context.Context, fleet.Target) (*Duty, error)) func(context.Context, fleet.Target) error {
	return func(ctx context.Context, t fleet.Target) error {
		found, err := find(ctx, t)
		if err == nil && found.Idle() {
			err = errors.New("it does nothing for the cluster yet")
		}
		return err
	}
}
