package rollout

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
		return component.Machine{State: desired.State{Files: []desired.File{{Path: "/etc/kubernetes/kubelet.yaml", Mode: 0o644, Content: []byte("x")}}}}, nil
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

// movingRole is a role of one file, which an apply installs where it is missing.
type movingRole struct {
	claimedRole
	fails error // after the survey
}

func (x movingRole) Apply(ctx context.Context, o *Operation, _ Role) error {
	if err := errors.Join(o.Survey(ctx), x.fails); err != nil {
		return err
	}
	for _, m := range o.Machines {
		if err := o.Apply(ctx, m, m.Changes); err != nil {
			return err
		}
	}
	return o.RemoveLeaving(ctx)
}

// movingHost is a machine on which two records have the role, each with a connection of its own. It runs one script at a
// time, as the lock of the scripts demands.
type movingHost struct {
	mu    sync.Mutex
	files map[string]string
	// before is called before each script of a record.
	before func(claim string)
}

const (
	movingFile = "/etc/kubernetes/kubelet.yaml"
	movingLock = "/var/lib/k8s-from-scratch/claims/worker"
)

// reachedBy returns the machine as the record with a claim reaches it.
func (h *movingHost) reachedBy(t *testing.T, claim string) fleet.Target {
	t.Helper()
	server := remotetest.New(t, "w", func(script string) (string, int) {
		h.before(claim)
		h.mu.Lock()
		defer h.mu.Unlock()
		switch {
		case strings.Contains(script, "\nunless_claimed '"):
			if has := h.files[movingLock]; has != "" && has != claim+"\n" {
				return "claimed\x00", 0
			}
			clear(h.files)
			return "", 0
		case strings.Contains(script, "\nread_files '"):
			if has := h.files[movingLock]; has != "" {
				return movingLock + "\x00" + has + "\x00", 0
			}
			return "", 0
		}
		for path, content := range map[string]string{movingFile: "x", movingLock: claim + "\n"} {
			if strings.Contains(script, "\nput '0' 'root:root' '"+path+"'") {
				h.files[path] = content
			}
		}
		out := "observation 1\x00"
		for path, content := range h.files {
			out += fmt.Sprintf("file 81a4:0:0:root:root:%d:1.000000000:1:%s\x00%s  %s\x00", len(content), path, desired.Sum([]byte(content)), path)
		}
		return out + "time 1\x00observation end\x00", 0
	})
	return fleet.Target{Host: server.Host, Node: component.Node{Name: "w"}}
}

// TestMoves: a host moves from one record to another while both are applied. One apply happens before each round trip of the
// other in turn. In the end the record that gets the host has the role there, whichever was faster.
func TestMoves(t *testing.T) {
	t.Parallel()
	pool := remote.NewPool(remote.Config{})
	t.Cleanup(func() { pool.Close() })
	engine := &Engine{Fleet: &fleet.Fleet{Pool: pool, Clock: func() time.Time { return time.Unix(1, 0) }}}
	for _, tt := range []struct {
		name, claim string
		both        bool // the record that keeps the host has had it as well
	}{
		{"a host with a claim", "from", false},
		{"a host without one", "", false},
		{"a host that was in both", "from", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, first := range []string{"from", "to"} {
				for n, reached := 0, true; reached; n++ {
					h := &movingHost{files: map[string]string{movingFile: "x"}}
					if tt.claim != "" {
						h.files[movingLock] = tt.claim + "\n"
					}
					from, to := movingRole{}, movingRole{}
					from.targets, to.targets = []fleet.Target{h.reachedBy(t, "from")}, []fleet.Target{h.reachedBy(t, "to")}
					apply := map[string]func() error{
						"from": func() error {
							_, err := engine.Apply(t.Context(), movingRole{}, from, Record{Claim: "from"})
							return err
						},
						"to": func() error {
							prior := movingRole{}
							if tt.both {
								prior = to
							}
							_, err := engine.Apply(t.Context(), to, prior, Record{Claim: "to"})
							return err
						},
					}
					second := map[string]string{"from": "to", "to": "from"}[first]
					trips := 0
					reached = false
					h.before = func(claim string) {
						if claim != first {
							return
						}
						if trips++; trips == n+1 {
							reached = true
							if err := apply[second](); err != nil {
								t.Errorf("record %q, before trip %d of the other: %v", second, n, err)
							}
						}
					}
					if err := apply[first](); err != nil {
						t.Errorf("record %q, with the other before trip %d: %v", first, n, err)
					}
					if !reached {
						if err := apply[second](); err != nil {
							t.Errorf("record %q, after the other: %v", second, err)
						}
					}
					if h.files[movingFile] != "x" || h.files[movingLock] != "to\n" {
						t.Errorf("record %q, with the other before trip %d: the host has %q", first, n, h.files)
					}
				}
			}
		})
	}

	t.Run("to a creation that fails", func(t *testing.T) {
		h := &movingHost{files: map[string]string{movingFile: "x", movingLock: "from\n"}, before: func(string) {}}
		to := movingRole{fails: errors.New("no")}
		to.targets = []fleet.Target{h.reachedBy(t, "to")}
		if _, err := engine.Apply(t.Context(), to, nil, Record{Claim: "to"}); !errors.Is(err, to.fails) || h.files[movingLock] != "from\n" {
			t.Errorf("%v, the host has %q", err, h.files)
		}
	})
}

// TestArrivesRebooting: another instance takes the place of a machine, and reboots when it is claimed. It is waited for.
func TestArrivesRebooting(t *testing.T) {
	t.Parallel()
	var machine *remotetest.Machine
	var rebooted atomic.Bool
	machine = remotetest.New(t, "w", func(string) (string, int) {
		if rebooted.CompareAndSwap(false, true) {
			machine.Leave()
		}
		return "observation 1\x00file 81a4:0:0:root:root:2:1.000000000:1:" + movingLock + "\x00" + desired.Sum([]byte("a\n")) + "  " + movingLock + "\x00time 1\x00observation end\x00", 0
	})
	pool := remote.NewPool(remote.Config{})
	t.Cleanup(func() { pool.Close() })
	f := &fleet.Fleet{Pool: pool, Clock: func() time.Time { return time.Unix(1, 0) }, Progress: func(_, what string) {
		if strings.Contains(what, "waiting until it is back") {
			machine.Return()
		}
	}}
	role := func(instance string) (x movingRole) {
		x.targets = []fleet.Target{{Host: machine.Host, Node: component.Node{Name: "w", InstanceID: instance}}}
		return x
	}
	o, err := NewOperation(f, role("i-new"), role("i-old"), Record{Claim: "a", Machines: map[string]MachineRecord{"w": {}}})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Access.Close()
	if err := errors.Join(o.Survey(t.Context()), o.Skipped()); err != nil {
		t.Error(err)
	}
}
