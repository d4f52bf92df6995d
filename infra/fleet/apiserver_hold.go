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
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// Writers are the API servers to hold, and what to wait for once they are held.
type Writers struct {
	// Machines returns the machines that may run an API server.
	Machines func(context.Context) []*Machine
	// Flushed returns once requests already sent to etcd have reached its leader.
	Flushed func(context.Context) error
}

// withoutWrites runs move while no API server has a request to etcd in progress.
//
// A leader drops proposals while it transfers its leadership. Its own clients get "raft proposal
// dropped"; requests that came through other members get no answer and time out after seven
// seconds. API servers retry neither. So their processes are stopped for that time: connections
// stay open, and clients get their answers a moment later.
//
// move must be repeatable. It is tried holdAttempts times with the API servers held, and then once
// without, because a transfer usually succeeds without that.
func (f *Fleet) withoutWrites(ctx context.Context, who string, w Writers, move func(context.Context) error) error {
	servers := apiServers(ctx, w.Machines(ctx))
	var err error
	for range holdAttempts {
		if err = f.whileHeld(ctx, who, servers, w.Flushed, move); err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(holdPause):
		}
	}
	f.Say(who, "etcd: going on without holding the API servers, a write in progress may be lost: %v", err)
	return move(ctx)
}

// apiServers returns those of the machines on which an API server runs. It also opens the SSH
// connections that the hold needs.
func apiServers(ctx context.Context, machines []*Machine) []*Machine {
	ctx, cancel := Probing(ctx)
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

// whileHeld holds the API servers, waits for settled, and calls move, all within holdLimit: after
// that the API servers continue by themselves.
func (f *Fleet) whileHeld(ctx context.Context, who string, servers []*Machine, flushed, move func(context.Context) error) error {
	began := time.Now()
	held, cancel := context.WithTimeoutCause(ctx, holdLimit, fmt.Errorf("not within the %s API servers are held", holdLimit))
	defer cancel()
	defer release(ctx, servers)
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
	if err := flushed(held); err != nil {
		return err
	}
	if took := time.Since(began); took > holdLimit-moveBudget {
		return fmt.Errorf("it took %s until no request was in progress", took.Round(time.Millisecond))
	}
	err := move(held)
	if held.Err() != nil && ctx.Err() == nil {
		f.Say(who, "etcd: the API servers went on while the leadership was moving, a write in progress may be lost")
	}
	return err
}

// release lets held API servers continue. If that fails, they continue after holdLimit.
func release(ctx context.Context, servers []*Machine) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience.Of(ctx, ProbeBudget))
	defer cancel()
	EachAll(ctx, servers, func(ctx context.Context, m *Machine) error { return deed.Release(ctx, m.Remote) })
}
