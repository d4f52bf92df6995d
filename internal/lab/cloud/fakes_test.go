package cloud_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/network"
)

// clock is a clock that tests move.
type clock struct {
	mu     sync.Mutex
	now    time.Time
	timers []timer
}

// timer is somebody who waits.
type timer struct {
	at time.Time
	ch chan time.Time
}

// Now implements ec2.Clock.
func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// After implements ec2.Clock.
func (c *clock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := make(chan time.Time, 1)
	c.timers = append(c.timers, timer{c.now.Add(d), ch})
	return ch
}

// waiting returns how many wait.
func (c *clock) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.timers)
}

// advance moves the clock, and wakes those whose time has come.
func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	c.timers = slices.DeleteFunc(c.timers, func(t timer) bool {
		if t.at.After(c.now) {
			return false
		}
		t.ch <- c.now
		return true
	})
}

// SignHTTP signs with the cloud's time instead of the host's.
func (c *clock) SignHTTP(ctx context.Context, creds aws.Credentials, r *http.Request, hash, service, region string, _ time.Time, opts ...func(*v4.SignerOptions)) error {
	return v4.NewSigner().SignHTTP(ctx, creds, r, hash, service, region, c.Now(), opts...)
}

// fakeNetwork is a network without packets, which keeps the last configuration applied.
type fakeNetwork struct {
	mu     sync.Mutex
	cfg    network.Config
	resets []string
	fail   error
	well   map[netip.AddrPort]bool // what health checks reach
	dials  map[string]int          // by the interface they come from
	ended  []netip.AddrPort
	server func(net.Conn) // the other ends of what is reached
}

// DialFrom reaches what is well.
func (n *fakeNetwork) DialFrom(_ context.Context, id string, to netip.AddrPort) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dials == nil {
		n.dials = map[string]int{}
	}
	n.dials[id]++
	if !n.well[to] {
		return nil, errors.New("nobody answers")
	}
	conn, other := net.Pipe()
	if n.server != nil {
		go n.server(other)
	}
	return conn, nil
}

// EndFlows takes note of the target.
func (n *fakeNetwork) EndFlows(_ context.Context, _ string, target netip.AddrPort) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended = append(n.ended, target)
	return nil
}

// dialed returns how many connections came from an interface.
func (n *fakeNetwork) dialed(id string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials[id]
}

// endedFlows returns the targets whose flows were ended, in order.
func (n *fakeNetwork) endedFlows() []netip.AddrPort {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.ended)
}

// resetCount returns how many interfaces were reset.
func (n *fakeNetwork) resetCount() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.resets)
}

// forget drops the configuration that was applied.
func (n *fakeNetwork) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cfg = network.Config{}
}

// setWell says whether health checks reach an address.
func (n *fakeNetwork) setWell(addr string, well bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.well == nil {
		n.well = map[netip.AddrPort]bool{}
	}
	n.well[netip.MustParseAddrPort(addr)] = well
}

// Apply keeps the configuration, or fails as setFail says.
func (n *fakeNetwork) Apply(_ context.Context, cfg network.Config) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fail != nil {
		return n.fail
	}
	n.cfg = cfg
	return nil
}

// ResetInterface takes note of the interface.
func (n *fakeNetwork) ResetInterface(_ context.Context, id string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.resets = append(n.resets, id)
	return nil
}

// InterfaceNetns returns a path at which there is nothing.
func (n *fakeNetwork) InterfaceNetns(id string) string { return "/run/netns/" + id }

// setFail makes changes of the network fail, until it is called with nil.
func (n *fakeNetwork) setFail(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fail = err
}

// vpc returns a VPC of the configuration that was applied last.
func (n *fakeNetwork) vpc(t *testing.T, id string) network.VPC {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, v := range n.cfg.VPCs {
		if v.ID == id {
			return v
		}
	}
	t.Fatalf("the network has no VPC %s", id)
	return network.VPC{}
}

// fakeMachines are machines that only have a state.
type fakeMachines struct {
	mu      sync.Mutex
	running map[string]machine.Spec
	exits   chan machine.Exit
	hold    chan struct{} // when set, each start and stop takes one from it
	fail    error         // of starts
	dir     string
	volumes map[string]machine.Volume // that have content, with their last size
	mounted map[string]bool           // volumes that cannot be detached
}

// wait waits for its turn.
func (m *fakeMachines) wait(ctx context.Context) error {
	m.mu.Lock()
	hold := m.hold
	m.mu.Unlock()
	if hold == nil {
		return nil
	}
	select {
	case <-hold:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Start implements ec2.Machines, as the methods without a comment do.
func (m *fakeMachines) Start(ctx context.Context, s machine.Spec) error {
	if err := m.wait(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	for _, v := range s.Volumes {
		m.volumes[v.ID] = v
	}
	m.running[s.ID] = s
	return nil
}

func (m *fakeMachines) AttachVolume(_ context.Context, id string, v machine.Volume) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.running[id]
	if !ok {
		return errors.New("it is not running")
	}
	s.Volumes = append(slices.DeleteFunc(slices.Clone(s.Volumes), func(has machine.Volume) bool { return has.ID == v.ID }), v)
	m.running[id], m.volumes[v.ID] = s, v
	return nil
}

func (m *fakeMachines) GrowRoot(_ context.Context, id string, root machine.Volume) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.running[id]
	if !ok {
		return errors.New("it is not running")
	}
	s.Root = root
	m.running[id] = s
	return nil
}

func (m *fakeMachines) DetachVolume(_ context.Context, id, volume string, force bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mounted[volume] && !force {
		return fmt.Errorf("%w: mounted", machine.ErrVolumeInUse)
	}
	s := m.running[id]
	s.Volumes = slices.DeleteFunc(slices.Clone(s.Volumes), func(has machine.Volume) bool { return has.ID == volume })
	m.running[id] = s
	return nil
}

func (m *fakeMachines) RemoveVolume(volume string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.volumes, volume)
	return nil
}

func (m *fakeMachines) Volumes() ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.volumes)), nil
}

// leave keeps the content of a volume that nobody knows, as a crash may.
func (m *fakeMachines) leave(volume string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.volumes[volume] = machine.Volume{ID: volume}
}

// setMounted says whether a volume can be detached only by force.
func (m *fakeMachines) setMounted(volume string, mounted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mounted[volume] = mounted
}

func (m *fakeMachines) Stop(ctx context.Context, id string) error {
	if err := m.wait(ctx); err != nil {
		return err
	}
	return m.Kill(ctx, id)
}

func (m *fakeMachines) Kill(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.running, id)
	return nil
}

func (m *fakeMachines) Terminate(ctx context.Context, id string) error { return m.Stop(ctx, id) }

func (m *fakeMachines) Running(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.running[id]
	return ok
}

// spec returns what a running machine was started with, and what it was given since.
func (m *fakeMachines) spec(id string) machine.Spec {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running[id]
}

func (m *fakeMachines) Exits() <-chan machine.Exit { return m.exits }

func (m *fakeMachines) Console(id string) string { return filepath.Join(m.dir, id) }

// powerOff is a shutdown from inside.
func (m *fakeMachines) powerOff(id string) {
	_ = m.Kill(context.Background(), id)
	m.exits <- machine.Exit{ID: id}
}

// reboot is a reboot from inside.
func (m *fakeMachines) reboot(id string) {
	_ = m.Kill(context.Background(), id)
	m.exits <- machine.Exit{ID: id, Reboot: true}
}
