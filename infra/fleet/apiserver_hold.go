package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
)

// Writers are those whose writes to etcd must not be under way at a time.
type Writers struct {
	// Machines are those that may run an API server.
	Machines func(context.Context) []*Machine
	// Settled returns once what etcd was asked before has reached its leader.
	Settled func(context.Context) error
}

// withoutWrites runs move while nothing that API servers ask of etcd is under way.
//
// A leader drops what is proposed to it while it hands its leadership on: what
// its own clients asked is answered "raft proposal dropped", what came through
// other members never is, and times out after seven seconds. API servers try
// neither again. So they are held for that instant: their processes stand
// still, their connections stay, and clients get their answers a moment later.
//
// move must be repeatable: it is tried holdAttempts times, and then once without
// holding anybody, since that improves the odds and is no condition.
func (f *Fleet) withoutWrites(ctx context.Context, who string, w Writers, move func(context.Context) error) error {
	servers := f.apiServers(ctx, w.Machines(ctx))
	var err error
	for range holdAttempts {
		if err = f.whileHeld(ctx, who, servers, w.Settled, move); err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(holdPause):
		}
	}
	f.Say(who, "etcd: going on without holding the API servers, a write under way may be lost: %v", err)
	return move(ctx)
}

// apiServers returns those of the machines on which an API server runs. It
// also sees to it that they are connected to by the time that matters.
func (f *Fleet) apiServers(ctx context.Context, machines []*Machine) []*Machine {
	ctx, cancel := context.WithTimeout(ctx, ProbeBudget)
	defer cancel()
	var mu sync.Mutex
	runs := map[string]bool{}
	errs := EachAll(ctx, machines, func(ctx context.Context, m *Machine) error {
		active, _, err := host.ReadActive(ctx, m.Remote, host.UnitFiles{Unit: component.APIServerUnit})
		mu.Lock()
		defer mu.Unlock()
		runs[m.Name()] = len(active) > 0
		return err
	})
	var out []*Machine
	for _, m := range machines {
		switch err := errs[m.Name()]; {
		case err != nil:
			m.Say("etcd: its API server, if it runs, cannot be held: %v", err)
		case runs[m.Name()]:
			out = append(out, m)
		}
	}
	return out
}

// whileHeld holds the API servers, waits until all is settled, and moves, within
// holdLimit, after which they would go on by themselves.
func (f *Fleet) whileHeld(ctx context.Context, who string, servers []*Machine, settled, move func(context.Context) error) error {
	began := time.Now()
	held, cancel := context.WithTimeoutCause(ctx, holdLimit, fmt.Errorf("not within the %s API servers are held", holdLimit))
	defer cancel()
	defer f.release(ctx, servers)
	errs := EachAll(held, servers, func(ctx context.Context, m *Machine) error {
		return deed.Hold(ctx, m.Remote, component.APIServerUnit, holdLimit)
	})
	for _, name := range slices.Sorted(maps.Keys(errs)) {
		return fmt.Errorf("hold the API server on %s: %w", name, errs[name])
	}
	select {
	case <-held.Done():
	case <-time.After(holdGrace):
	}
	if err := settled(held); err != nil {
		return err
	}
	if took := time.Since(began); took > holdLimit-moveBudget {
		return fmt.Errorf("it took %s until nothing was under way", took.Round(time.Millisecond))
	}
	err := move(held)
	if held.Err() != nil && ctx.Err() == nil {
		f.Say(who, "etcd: the API servers went on while the leadership was moving, a write under way may be lost")
	}
	return err
}

// release lets held API servers go on. Where that fails they do by themselves.
func (f *Fleet) release(ctx context.Context, servers []*Machine) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ProbeBudget)
	defer cancel()
	EachAll(ctx, servers, func(ctx context.Context, m *Machine) error { return deed.Release(ctx, m.Remote) })
}
