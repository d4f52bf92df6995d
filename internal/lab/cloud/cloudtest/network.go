package cloudtest

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/network"
)

// Network is a network without packets, which keeps the last configuration applied.
type Network struct {
	mu     sync.Mutex
	cfg    network.Config
	resets []string
	fail   error
	well   map[netip.AddrPort]bool // what health checks reach
	dials  map[string]int          // by the interface they come from
	ended  []netip.AddrPort
	Server func(net.Conn) // the other ends of what is reached
}

// DialFrom reaches what is well.
func (n *Network) DialFrom(_ context.Context, id string, to netip.AddrPort) (net.Conn, error) {
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
	if n.Server != nil {
		go n.Server(other)
	}
	return conn, nil
}

// EndFlows takes note of the target.
func (n *Network) EndFlows(_ context.Context, _ string, target netip.AddrPort) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended = append(n.ended, target)
	return nil
}

// ForgetIdle has no connections to forget.
func (n *Network) ForgetIdle(context.Context, time.Duration) (int, error) { return 0, nil }

// Dials returns how many connections came from an interface.
func (n *Network) Dials(id string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials[id]
}

// EndedFlows returns the targets whose flows were ended, in order.
func (n *Network) EndedFlows() []netip.AddrPort {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.ended)
}

// Resets returns how many interfaces were reset.
func (n *Network) Resets() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.resets)
}

// Forget drops the configuration that was applied.
func (n *Network) Forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cfg = network.Config{}
}

// SetWell says whether health checks reach an address.
func (n *Network) SetWell(addr string, well bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.well == nil {
		n.well = map[netip.AddrPort]bool{}
	}
	n.well[netip.MustParseAddrPort(addr)] = well
}

// Apply keeps the configuration, or fails as SetFail says.
func (n *Network) Apply(_ context.Context, cfg network.Config) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fail != nil {
		return n.fail
	}
	n.cfg = cfg
	return nil
}

// ResetInterface takes note of the interface.
func (n *Network) ResetInterface(_ context.Context, id string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.resets = append(n.resets, id)
	return nil
}

// InterfaceNetns returns a path at which there is nothing.
func (n *Network) InterfaceNetns(id string) string { return "/run/netns/" + id }

// SetFail makes changes of the network fail, until it is called with nil.
func (n *Network) SetFail(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fail = err
}

// VPC returns a VPC of the configuration that was applied last.
func (n *Network) VPC(t *testing.T, id string) network.VPC {
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
