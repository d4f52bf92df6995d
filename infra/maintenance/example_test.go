package maintenance_test

import (
	"context"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/maintenance"
)

// Stops and starts machines without an interruption of their cluster, one machine of a cluster at a
// time.
func Example() {
	var clusters maintenance.Clusters // one for the whole program
	restart := func(ctx context.Context, f *fleet.Fleet, controllers []fleet.Target, t fleet.Target, stopAndStart func() (stopped bool, err error)) error {
		turns := clusters.Turns("demo")
		done, err := turns.Take(ctx)
		defer done()
		if err != nil {
			return err
		}
		duty, err := maintenance.Find(ctx, f, t)
		if err != nil {
			return err
		}
		duty.SetControllers(func(context.Context) ([]fleet.Target, error) { return controllers, nil })
		if err := duty.Suspend(ctx, turns.Leaving); err != nil {
			return err
		}
		if stopped, err := stopAndStart(); err != nil {
			if !stopped {
				duty.Restore(ctx, t.Host) // its units run again, and its node takes pods
			}
			return err
		}
		return duty.Resume(ctx, t.Host)
	}
	_ = restart // with machines to reach
}
