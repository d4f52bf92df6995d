package network

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// syncForwarder makes the namespace behind an interface a NAT gateway or a load balancer's node: a
// router with one leg. A NAT gateway translates and forwards the packets that route tables send to
// it, from any source. The translated packets take the route table of the gateway's subnet: to the
// internet gateway, where the public address of its interface takes the place of the private one.
// Answers return by the same table, so answers to pods need the routes to the pods there.
func (m *Manager) syncForwarder(ctx context.Context, l link) error {
	name := m.slice.namespace(l.Interface.ID)
	text := renderNATGateway(l.Interface.PrivateIP)
	if l.Interface.Balancer != nil {
		text = renderBalancer(l.Interface.PrivateIP, *l.Interface.Balancer)
	}
	if m.rulesets[l.Interface.ID] != text {
		if err := loadRuleset(ctx, name, text); err != nil {
			return err
		}
		if err := within(name, func() error { return setSysctls(forwarderSysctls) }); err != nil {
			return err
		}
		m.rulesets[l.Interface.ID] = text
	}
	inside, _, closeInside, err := open(name)
	if err != nil {
		return err
	}
	defer closeInside()
	if err := configure(inside, guestLink, l.Address); err != nil {
		return err
	}
	out := route{Table: unix.RT_TABLE_MAIN, Kind: unix.RTN_UNICAST, Destination: everywhere, Via: l.Gateway, Link: guestLink}
	return syncRoutes(inside, []route{out}, false)
}

// renderNATGateway renders the ruleset of a NAT gateway with an address. It forwards TCP, UDP and
// ICMP. It resets a TCP connection that it has forgotten, and does not answer what is sent to itself.
func renderNATGateway(own netip.Addr) string {
	return strings.TrimLeft(fmt.Sprintf(`
table ip lab
delete table ip lab
table ip lab {
	chain translation {
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr != %[1]s snat to %[1]s
	}
	chain forwarding {
		type filter hook forward priority filter; policy drop;
		ct state vmap { established : accept, related : accept }
		ct state invalid ip protocol tcp reject with tcp reset
		ct state new ip protocol { icmp, tcp, udp } accept
	}
	chain own {
		type filter hook input priority filter; policy drop;
	}
}
`, own), "\n")
}
