package maintenance_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/maintenance"
)

// Stops and starts machines without an interruption of their cluster, one machine of a cluster at a
// time.
func ExampleBegin() {
	var clusters maintenance.Clusters // one for the whole program
	restart := func(ctx context.Context, m maintenance.Machine, stopAndStart func() error) error {
		r, err := maintenance.Begin(ctx, clusters.Turns("demo"), m, maintenance.Change{Runs: true, Restart: true})
		defer r.Done()
		if err != nil {
			return err
		}
		now, err := m.Look(ctx)
		if err != nil {
			return err
		}
		if err := r.Stop(ctx, now); err != nil {
			return err
		}
		if err := stopAndStart(); err != nil {
			r.Abandon(ctx) // if it runs, its units run again, and its node takes pods
			return err
		}
		if now, err = m.Look(ctx); err != nil {
			return err
		}
		return r.Resume(ctx, now)
	}
	_ = restart // with machines to reach
}

// Terminates a machine, for which no other one follows, after it has left its cluster.
func ExampleDepart() {
	var clusters maintenance.Clusters
	end := func(ctx context.Context, m maintenance.Machine, terminate func() error) error {
		left, err := maintenance.Depart(ctx, clusters.Turns("demo"), maintenance.Departing{
			Machine: m, Next: maintenance.NoSuccessor, Member: true, Stop: "pull its plug",
			Within: func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithCancel(ctx) },
		})
		defer left.Done()
		if err != nil {
			return err
		}
		if err := terminate(); err != nil {
			_, failed := left.Undo(ctx)
			return fmt.Errorf("%w; not brought back: %v", err, failed)
		}
		return nil
	}
	_ = end // with machines to reach
}

// Finds out whether two of three members may get other machines at once.
func ExampleCheckQuorum() {
	before := []maintenance.Member{{Name: "controller-0", Instance: "i-0"}, {Name: "controller-1", Instance: "i-1"}, {Name: "controller-2", Instance: "i-2"}}
	after := []maintenance.Member{{Name: "controller-0", Unmade: true}, {Name: "controller-1", Unmade: true}, {Name: "controller-2", Instance: "i-2"}}
	terminated := func(string) bool { return false }
	c := maintenance.CheckQuorum(before, after, terminated)
	fmt.Println(c.Verdict == maintenance.QuorumLost, c.Left, "of", c.Members, "would run, a quorum is", c.Quorum)
	// Output: true 1 of 3 would run, a quorum is 2
}

// Replaces machines one at a time, and only while the others do their work.
func ExampleRolls() {
	var rolls maintenance.Rolls // one for the whole program
	workers := func(context.Context) ([]fleet.Target, error) {
		var all []fleet.Target
		for _, name := range []string{"worker-0", "worker-1"} {
			t := fleet.Target{}
			t.Node.Name = name
			all = append(all, t)
		}
		return all, nil
	}
	working := func(context.Context, fleet.Target) error { return nil }
	broken := func(context.Context, fleet.Target) error { return errors.New("its node is not ready") }
	fmt.Println(rolls.Turn(context.Background(), "a", "worker-0", workers, working))
	fmt.Println(rolls.Turn(context.Background(), "a", "worker-1", workers, working))
	fmt.Println(rolls.Turn(context.Background(), "b", "worker-0", workers, broken))
	// Output:
	// <nil>
	// worker-0 is replaced first
	// worker-1: its node is not ready
}
