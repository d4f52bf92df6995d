package rollout

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote/remotetest"
)

// claimedRole is a role that finds everything as wanted. during runs while it is applied.
type claimedRole struct {
	targets []fleet.Target
	during  func()
	skipped error
}

func (x claimedRole) Definition() Definition {
	return Definition{Name: "worker", Targets: x.targets, Machine: func(component.Node) (component.Machine, error) {
		return component.Machine{State: desired.State{Files: []desired.File{{Path: "/etc/kubernetes/kubelet.yaml", Content: []byte("x")}}}}, nil
	}}
}
func (x claimedRole) Observe(context.Context, *Operation) Report { return Report{} }
func (x claimedRole) Apply(ctx context.Context, o *Operation, prior Role) error {
	if x.during != nil {
		x.during()
	}
	for _, m := range o.Machines {
		m.claim = host.Diff(o.claimed(), host.Observation{}, host.Record{})
	}
	if x.skipped != nil || prior == nil {
		return x.skipped
	}
	return o.RemoveLeaving(ctx)
}
func (x claimedRole) Remove(ctx context.Context, o *Operation) error { return o.Remove(ctx) }

// claimedMachine is a machine with a claim, which counts what is done to it.
type claimedMachine struct {
	fleet.Target
	mu               sync.Mutex
	claim            string
	removed, written int
}

func newClaimedMachine(t *testing.T, name, claim string) *claimedMachine {
	t.Helper()
	m := &claimedMachine{claim: claim}
	const path = "/var/lib/k8s-from-scratch/claims/worker"
	server := remotetest.New(t, name, func(script string) (string, int) {
		m.mu.Lock()
		defer m.mu.Unlock()
		switch {
		case strings.Contains(script, "remove_units"):
			if m.claim != "" && !strings.Contains(script, "unless_claimed '"+path+"' '"+m.claim+"'") {
				return "claimed\x00", 0
			}
			m.removed++
		case strings.Contains(script, "settle()") && strings.Contains(script, path):
			m.written++
		case strings.Contains(script, path) && m.claim != "":
			return path + "\x00" + m.claim + "\n\x00", 0
		}
		return "", 0
	})
	m.Target = fleet.Target{Host: server.Host, Node: component.Node{Name: name}}
	return m
}

func (m *claimedMachine) set(claim string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.claim = claim
}

func (m *claimedMachine) gone() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.removed > 0
}

// TestUnreadClaim: when a machine that could not be reached answers a moment later, nothing is done
// to it: it is left over. A later removal removes the role unless it is another record's by then.
func TestUnreadClaim(t *testing.T) {
	t.Parallel()
	var away atomic.Bool
	var silent atomic.Int32
	pool := remote.NewPool(remote.Config{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if away.Load() {
			return nil, errors.New("it is down")
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}})
	t.Cleanup(func() { pool.Close() })
	engine := &Engine{Fleet: &fleet.Fleet{Pool: pool, Progress: func(_, what string) {
		if strings.HasPrefix(what, "worker: cannot be reached") && silent.Add(1) == 2 {
			away.Store(false)
		}
	}}}
	moved, mine := newClaimedMachine(t, "moved", "b"), newClaimedMachine(t, "mine", "a")
	away.Store(true)
	r, err := engine.Remove(t.Context(), claimedRole{targets: []fleet.Target{moved.Target, mine.Target}}, Record{Claim: "a"})
	if err != nil || moved.gone() || mine.gone() || len(r.Left) != 2 {
		t.Errorf("removed %t and %t, left %v: %v", moved.gone(), mine.gone(), r.Left, err)
	}
	away.Store(false)
	rec, err := engine.Apply(t.Context(), claimedRole{}, claimedRole{}, Record{Claim: "a", Left: r.Left})
	if err != nil || moved.gone() || !mine.gone() || len(rec.Left) > 0 {
		t.Errorf("removed %t and %t, left %v: %v", moved.gone(), mine.gone(), rec.Left, err)
	}
}

// TestClaims removes a role from machines with its claim, with another one and without one.
func TestClaims(t *testing.T) {
	t.Parallel()
	pool := remote.NewPool(remote.Config{})
	t.Cleanup(func() { pool.Close() })
	engine := &Engine{Fleet: &fleet.Fleet{Pool: pool}}
	for _, tt := range []struct {
		record, machine string
		removed         bool
	}{
		{"a", "a", true}, {"a", "b", false}, {"a", "", true},
		{"", "", true}, {"", "b", false}, // a record that was lost
	} {
		m := newClaimedMachine(t, "w", tt.machine)
		r, err := engine.Remove(t.Context(), claimedRole{targets: []fleet.Target{m.Target}}, Record{Claim: tt.record})
		if err != nil || m.gone() != tt.removed || slices.Equal(r.Kept, []string{"w"}) == tt.removed {
			t.Errorf("record %q, machine %q: removed %t, kept %v, %v", tt.record, tt.machine, m.gone(), r.Kept, err)
		}
	}

	// Another pool takes a machine over while this one, which it leaves, is still at work
	// elsewhere.
	stays, leaves := newClaimedMachine(t, "v", "a"), newClaimedMachine(t, "w", "a")
	prior := claimedRole{targets: []fleet.Target{stays.Target, leaves.Target}}
	want := claimedRole{targets: []fleet.Target{stays.Target}, during: func() { leaves.set("b") }}
	if _, err := engine.Apply(t.Context(), want, prior, Record{Claim: "a"}); leaves.gone() {
		t.Errorf("removed what another has taken over: %v", err)
	}

	// A machine that was replaced in the meantime does not keep the rest from being done.
	leaves.Host.HostKeys, leaves.removed = []string{otherKey(t)}, 0
	began := false
	want.during = func() { began = true }
	prior.targets[1] = leaves.Target
	if _, err := engine.Apply(t.Context(), want, prior, Record{Claim: "a"}); err == nil || !began {
		t.Errorf("applied %t: %v", began, err)
	}
	if _, err := engine.Remove(t.Context(), prior, Record{Claim: "a"}); err == nil || !stays.gone() || leaves.gone() {
		t.Errorf("removed %t and %t: %v", stays.gone(), leaves.gone(), err)
	}

	// Nobody keeps the record of a create that has skipped a machine, so it claims nothing.
	m := newClaimedMachine(t, "w", "a")
	want = claimedRole{targets: []fleet.Target{m.Target}, skipped: &fleet.SkippedError{Machines: map[string]error{"down": context.DeadlineExceeded}}}
	for _, prior := range []Role{nil, claimedRole{targets: want.targets}} {
		rec, err := engine.Apply(t.Context(), want, prior, Record{})
		if err == nil || rec.Claim == "" || (m.written > 0) != (prior != nil) {
			t.Errorf("after a prior role %t: written %d, %v", prior != nil, m.written, err)
		}
	}
}

// TestArrivals: a machine that comes from another record is claimed before anything is done, and the record that it
// leaves reads its owner again.
func TestArrivals(t *testing.T) {
	t.Parallel()
	pool := remote.NewPool(remote.Config{})
	t.Cleanup(func() { pool.Close() })
	f := &fleet.Fleet{Pool: pool}
	for _, tt := range []struct {
		name    string
		has     string // the claim on the machine
		prior   Role
		written int
	}{
		{"it comes from another pool", "b", claimedRole{}, 1},
		{"it is new", "", claimedRole{}, 0},
		{"a creation", "b", nil, 0},
	} {
		m := newClaimedMachine(t, "w", tt.has)
		want := claimedRole{targets: []fleet.Target{m.Target}}
		o, err := NewOperation(f, want, tt.prior, Record{Claim: "a"})
		if err != nil {
			t.Fatal(err)
		}
		seen := host.Observation{}
		if tt.has != "" {
			seen.Files = map[string]host.File{o.role.claimPath(): {Mode: 0o644, SHA256: "another"}}
		}
		o.Machines[0].claim = host.Diff(o.claimed(), seen, host.Record{})
		if err := o.claimArrivals(t.Context()); m.written != tt.written { // the machine of this test confirms nothing
			t.Errorf("%s: written %d, %v", tt.name, m.written, err)
		}
		own := o.Own(t.Context(), want.targets)
		if theirs := tt.has == "b"; len(own) == 0 != theirs {
			t.Errorf("%s: of the targets it has %v", tt.name, own)
		}
		o.Access.Close()
	}
}
