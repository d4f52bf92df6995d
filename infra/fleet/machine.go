package fleet

import (
	"cmp"
	"context"
	"sync"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/timing"
)

// Target is a machine's place in the cluster and how to reach it.
type Target struct {
	Host remote.Host
	Node component.Node // whose InstanceID tells this machine from another one with the same name and address
}

// Machine is one machine of a cluster and the operations on it. It does not know what is wanted
// there. It is safe for concurrent use.
type Machine struct {
	Target
	// Remote is the connection to it.
	Remote *remote.Machine
	fleet  *Fleet
}

// Machine returns the machine of a target. It does no I/O.
func (f *Fleet) Machine(t Target) *Machine {
	return &Machine{Target: t, Remote: f.Pool.Machine(t.Host), fleet: f}
}

// Machines returns the machines of several targets, in their order.
func (f *Fleet) Machines(targets []Target) []*Machine {
	out := make([]*Machine, len(targets))
	for i, t := range targets {
		out[i] = f.Machine(t)
	}
	return out
}

// Nodes returns the nodes of several targets, in their order.
func Nodes(targets []Target) []component.Node {
	out := make([]component.Node, len(targets))
	for i, t := range targets {
		out[i] = t.Node
	}
	return out
}

// Name returns the machine's name, which is also its node's.
func (t Target) Name() string { return t.Node.Name }

// Say reports progress on the machine.
func (m *Machine) Say(format string, args ...any) { m.fleet.Say(m.Name(), format, args...) }

// Each runs f for the given machines in parallel. The first error cancels the rest. A panic is an error
// of its machine.
func Each[M any](ctx context.Context, machines []M, f func(context.Context, M) error) error {
	group, ctx := parallel.WithContext(ctx)
	group.SetLimit(ParallelMachines)
	for _, m := range machines {
		what := ""
		if named, ok := any(m).(interface{ Name() string }); ok {
			what = "machine " + named.Name()
		}
		group.GoFor(what, func() error {
			ctx, end := timing.Begin(ctx, cmp.Or(what, "part"))
			defer end()
			return f(ctx, m)
		})
	}
	return group.Wait()
}

// EachAll runs f for the given machines in parallel and returns the errors by machine name. An
// error on one machine does not cancel the others.
func EachAll[M interface{ Name() string }](ctx context.Context, machines []M, f func(context.Context, M) error) map[string]error {
	var (
		mu   sync.Mutex
		errs = map[string]error{}
	)
	_ = Each(ctx, machines, func(ctx context.Context, m M) error {
		err := parallel.Safely(ctx, "machine "+m.Name(), func() error { return f(ctx, m) })
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			errs[m.Name()] = err
		}
		return nil
	})
	return errs
}
