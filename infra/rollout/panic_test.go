package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// buggyRole is a role with a bug in what it does on one machine.
type buggyRole struct {
	claimedRole
	stages bool // in a stage of a plan, not on all machines at once
}

// bug panics on the second machine, once the others are done.
func (x buggyRole) bug(o *Operation, others *sync.WaitGroup, m *Machine) error {
	if m.Name() == "worker-1" {
		others.Wait()
		var none []int
		i := strings.Index("", "x")
		_ = none[i]
	}
	defer others.Done()
	m.Record.Host = host.Record{Files: map[string]host.FileRecord{"/usr/local/bin/kubelet": {SHA256: m.Name()}}}
	o.save(m)
	return nil
}

func (x buggyRole) Apply(ctx context.Context, o *Operation, _ Role) error {
	var others sync.WaitGroup
	others.Add(len(o.Machines) - 1)
	if !x.stages {
		return fleet.Each(ctx, o.Machines, func(_ context.Context, m *Machine) error { return x.bug(o, &others, m) })
	}
	var batch []Step
	for _, m := range o.Machines {
		batch = append(batch, Step{Machine: m.Name()})
	}
	return o.Batches(ctx, Plan{batch}, func(_ context.Context, m *Machine, _ Step) error { return x.bug(o, &others, m) })
}

func (x buggyRole) Observe(ctx context.Context, o *Operation) Report {
	return o.Report(ctx, func(context.Context, *Report) { panic("bug in what is asked beside the machines") })
}

// TestPanicOnOneMachine: a panic in the goroutine of one machine is an error of that machine, and the
// record has what was done on the others.
func TestPanicOnOneMachine(t *testing.T) {
	t.Parallel()
	pool := remote.NewPool(remote.Config{})
	t.Cleanup(func() { pool.Close() })
	engine := &Engine{Fleet: &fleet.Fleet{Pool: pool}}
	var targets []fleet.Target
	for n := range 3 {
		name := fmt.Sprintf("worker-%d", n)
		targets = append(targets, fleet.Target{Host: remote.Host{Name: name, Off: true}, Node: component.Node{Name: name}})
	}
	var mu sync.Mutex
	var stacks []string
	ctx := parallel.WithLog(t.Context(), func(_ context.Context, _, stack string) {
		mu.Lock()
		defer mu.Unlock()
		stacks = append(stacks, stack)
	})
	for _, batches := range []bool{false, true} {
		rec, err := engine.Apply(ctx, buggyRole{claimedRole{targets: targets}, batches}, nil, Record{})
		var panicked *parallel.PanicError
		if !errors.As(err, &panicked) || !strings.Contains(err.Error(), "machine worker-1: a bug of this program") {
			t.Errorf("%v", err)
		}
		for _, name := range []string{"worker-0", "worker-2"} {
			if rec.Machines[name].Host.Files["/usr/local/bin/kubelet"].SHA256 != name {
				t.Errorf("what was done on %s is not recorded: %v", name, rec.Machines)
			}
		}
	}
	if _, err := engine.Observe(ctx, buggyRole{claimedRole: claimedRole{targets: targets}}, Record{}); err == nil {
		t.Error("a bug in a refresh is no error")
	}
	if len(stacks) != 3 || !strings.Contains(stacks[0], "buggyRole") {
		t.Errorf("the log has %d stacks: %q", len(stacks), stacks)
	}
}
