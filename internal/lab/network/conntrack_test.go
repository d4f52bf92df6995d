package network

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
)

func TestStaleFlows(t *testing.T) {
	filter := staleFlows{
		cidr:    netip.MustParsePrefix("10.240.0.0/16"),
		present: map[netip.Addr]bool{netip.MustParseAddr("10.240.0.10"): true, netip.MustParseAddr("10.240.0.11"): true},
		public:  map[netip.Addr]netip.Addr{netip.MustParseAddr("10.240.0.10"): netip.MustParseAddr("203.0.113.3")},
	}
	for _, test := range []struct {
		name                   string
		sender, dialled        string
		receiver, senderAsSeen string
		stale                  bool
	}{
		{"between interfaces", "10.240.0.10", "10.240.0.11", "10.240.0.11", "10.240.0.10", false},
		{"between pods", "10.200.0.5", "10.200.1.5", "10.200.1.5", "10.200.0.5", false},
		{"to an interface that is gone", "10.240.0.10", "10.240.0.12", "10.240.0.12", "10.240.0.10", true},
		{"from an interface that is gone", "10.240.0.12", "10.240.0.10", "10.240.0.10", "10.240.0.12", true},
		{"in through the public address", "203.0.113.1", "203.0.113.3", "10.240.0.10", "203.0.113.1", false},
		{"in through the public address of another interface", "203.0.113.1", "203.0.113.3", "10.240.0.11", "203.0.113.1", true},
		{"out with the public address", "10.240.0.10", "203.0.113.1", "203.0.113.1", "203.0.113.3", false},
		{"out with a former public address", "10.240.0.10", "203.0.113.1", "203.0.113.1", "203.0.113.4", true},
		{"out with a public address taken away", "10.240.0.11", "203.0.113.1", "203.0.113.1", "203.0.113.4", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			flow := &netlink.ConntrackFlow{
				Forward: netlink.IPTuple{SrcIP: net.ParseIP(test.sender), DstIP: net.ParseIP(test.dialled)},
				Reverse: netlink.IPTuple{SrcIP: net.ParseIP(test.receiver), DstIP: net.ParseIP(test.senderAsSeen)},
			}
			if got := filter.MatchConntrackFlow(flow); got != test.stale {
				t.Errorf("stale: %v, want %v", got, test.stale)
			}
		})
	}
}
