package network

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Balancer is what the node of a load balancer behind an interface forwards. Connections to other ports
// get no answer.
type Balancer struct {
	Listeners []Listener
}

// Listener forwards each new connection to a port to a random target.
type Listener struct {
	Port    int
	Targets []netip.AddrPort
	// PreserveClient keeps the client's address as the source. A target that reaches itself then gets its own
	// packet back, and drops it. Otherwise the source is the node.
	PreserveClient bool
}

// forwards says whether this package, instead of a machine, forwards packets behind an interface.
func (i Interface) forwards() bool { return i.NATGateway || i.Balancer != nil }

func (v *validator) balancer(i Interface) {
	if i.Balancer == nil {
		return
	}
	if i.NATGateway || i.SourceDestCheck {
		v.failf("%s: a load balancer is no NAT gateway, and has no source/destination check", i.ID)
	}
	seen := map[int]bool{}
	for _, l := range i.Balancer.Listeners {
		if l.Port < 1 || l.Port > 65535 || seen[l.Port] {
			v.failf("%s: invalid or repeated port %d", i.ID, l.Port)
		}
		seen[l.Port] = true
		for _, t := range l.Targets {
			if !t.Addr().Is4() || t.Port() == 0 {
				v.failf("%s: invalid target %s", i.ID, t)
			}
		}
	}
}

// withoutClient marks, inside a node, packets whose source becomes the node.
const withoutClient = 1

// renderBalancer renders the ruleset of a node with an address. The node resets a connection that
// it has forgotten. It drops packets to itself, except answers to its own health checks.
func renderBalancer(own netip.Addr, b Balancer) string {
	var r ruleset
	r.line("table ip lab")
	r.line("delete table ip lab")
	r.open("table ip lab")
	r.open("chain listeners")
	r.line("type nat hook prerouting priority dstnat; policy accept;")
	for _, l := range b.Listeners {
		r.line("ip daddr %s tcp dport %d goto listener-%d", own, l.Port, l.Port)
	}
	r.close()
	for _, l := range b.Listeners {
		r.listener(l)
	}
	r.open("chain translation")
	r.line("type nat hook postrouting priority srcnat; policy accept;")
	r.line("meta mark %d snat to %s", withoutClient, own)
	r.close()
	r.open("chain forwarding")
	r.line("type filter hook forward priority filter; policy drop;")
	r.line("ct state vmap { established : accept, related : accept }")
	r.line("ct state invalid ip protocol tcp reject with tcp reset")
	r.line("ct status dnat accept")
	r.close()
	r.open("chain own")
	r.line("type filter hook input priority filter; policy drop;")
	r.line("ct state vmap { established : accept, related : accept }")
	r.line("ct state invalid ip protocol tcp reject with tcp reset")
	r.close()
	r.close()
	return r.text.String()
}

func (r *ruleset) listener(l Listener) {
	var choices []string
	for n := range l.Targets {
		choices = append(choices, fmt.Sprintf("%d : goto target-%d-%d", n, l.Port, n))
	}
	r.open("chain listener-%d", l.Port)
	if len(choices) > 0 {
		if !l.PreserveClient {
			r.line("meta mark set %d", withoutClient)
		}
		r.line("numgen random mod %d vmap { %s }", len(choices), strings.Join(choices, ", "))
	}
	r.close()
	for n, t := range l.Targets {
		r.open("chain target-%d-%d", l.Port, n)
		r.line("ip protocol tcp dnat to %s", t)
		r.close()
	}
}

// nodeMarks returns a number for each load balancer's node in a VPC, by interface. The router marks
// the flows that the node has forwarded with this number, and sends the answers to the node,
// whatever the client's address is: the node has to replace the target's address by the listener's.
// The numbers are hashes of the identifiers, and differ from those of route tables.
func (v VPC) nodeMarks() map[string]int {
	marks := map[string]int{}
	taken := map[int]bool{}
	for _, i := range sortedBy(v.Interfaces, func(i Interface) string { return i.ID }) {
		if i.Balancer == nil {
			continue
		}
		hash := fnv.New32a()
		hash.Write([]byte(i.ID))
		mark := 1_100_000_000 + int(hash.Sum32()%900_000_000)
		for taken[mark] {
			mark++
		}
		taken[mark], marks[i.ID] = true, mark
	}
	return marks
}

// answers marks the flows that nodes have forwarded, and chooses the route of the answers.
func (r *ruleset) answers() {
	marks := r.vpc.nodeMarks()
	r.open("chain answers")
	r.line("type filter hook prerouting priority mangle; policy accept;")
	for _, i := range r.interfaces {
		if mark, ok := marks[i.ID]; ok {
			r.line("iifname %s ct state new ip protocol tcp ct mark set %d", quotedName(i), mark)
		}
	}
	if len(marks) > 0 {
		r.line("ct direction reply ct mark != 0 meta mark set ct mark")
	}
	r.close()
}

// planNodes adds the routes of the answers to nodes.
func (p *routerPlan) planNodes(vpc VPC) {
	marks := vpc.nodeMarks()
	for _, l := range p.Links {
		mark, ok := marks[l.Interface.ID]
		if !ok {
			continue
		}
		p.Rules = append(p.Rules, rule{Mark: mark, Table: mark})
		back := route{Table: mark, Kind: unix.RTN_UNICAST, Destination: everywhere, Via: l.Interface.PrivateIP, Link: l.Name}
		if l.Interface.Stopped {
			back = route{Table: mark, Kind: unix.RTN_BLACKHOLE, Destination: everywhere}
		}
		p.Routes = append(p.Routes, back)
	}
}

// DialFrom connects from the namespace behind an interface.
func (m *Manager) DialFrom(ctx context.Context, interfaceID string, to netip.AddrPort) (conn net.Conn, err error) {
	err = within(m.slice.namespace(interfaceID), func() error {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp4", to.String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("connect from %s: %w", interfaceID, err)
	}
	return conn, nil
}

// EndFlows makes a node forget the connections that it forwards to a target. Whoever sends the next
// packet of such a connection gets a reset.
func (m *Manager) EndFlows(ctx context.Context, interfaceID string, target netip.AddrPort) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("end connections to %s: %w", target, err)
	}
	name := m.slice.namespace(interfaceID)
	if !pinned(name) {
		return nil // the node is gone, and its connections with it
	}
	handle, _, closeNode, err := open(name)
	if err != nil {
		return errors.Join(fmt.Errorf("end connections to %s", target), err)
	}
	defer closeNode()
	if _, err := handle.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, forwardedTo(target)); err != nil {
		return fmt.Errorf("end connections to %s: %w", target, err)
	}
	return nil
}

// forwardedTo is a filter that matches connections that a node forwards to a target, and not the node's
// own.
type forwardedTo netip.AddrPort

// MatchConntrackFlow implements [netlink.CustomConntrackFilter].
func (f forwardedTo) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	receiver := netip.AddrPortFrom(address(flow.Reverse.SrcIP), flow.Reverse.SrcPort)
	return receiver == netip.AddrPort(f) && address(flow.Forward.DstIP) != receiver.Addr()
}
