package network

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
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

// TestIdleFlowsAreForgotten: the security groups forget a flow after the same time without a packet as those of EC2, and
// drop what comes later.
func TestIdleFlowsAreForgotten(t *testing.T) {
	vpc := threeInterfaces()
	l := newLab(t, vpc)
	l.serve("eni-b", ":80")
	c, err := l.dial("eni-a", "", ipB+":80", answerWithin)
	if err != nil {
		t.Fatal(err)
	}
	router, _, closeRouter, err := open(l.slice.namespace(vpc.ID))
	if err != nil {
		t.Fatal(err)
	}
	defer closeRouter()
	if err := c.alive(answerWithin); err != nil {
		t.Error(err)
	}
	flows, err := router.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	if err != nil || len(flows) != 1 || flows[0].TimeOut > idleTimeout || flows[0].TimeOut < idleTimeout-120 {
		t.Fatalf("%v %v, wanted one flow and %d seconds", flows, err, idleTimeout)
	}
	busy, err := l.dial("eni-a", "", ipB+":80", answerWithin)
	if err != nil {
		t.Fatal(err)
	}
	if err := busy.alive(answerWithin); err != nil {
		t.Error(err)
	}
	forgotten := 0
	for range 10 { // a late acknowledgement makes the flow busy again
		flows[0].TimeOut = idleTimeout - 100
		if err := router.ConntrackUpdate(netlink.ConntrackTable, unix.AF_INET, flows[0]); err != nil {
			t.Fatal(err)
		}
		if n, err := l.ForgetIdle(t.Context(), time.Hour); err != nil || n != 0 {
			t.Errorf("%d flows have had no packet for an hour (%v)", n, err)
		}
		if forgotten, err = l.ForgetIdle(t.Context(), time.Minute); err != nil || forgotten > 0 {
			break
		}
	}
	if err != nil || forgotten != 1 { // not the one that has just had packets
		t.Errorf("%d flows have had no packet for a minute (%v), wanted 1", forgotten, err)
	}
	if err := busy.alive(answerWithin); err != nil {
		t.Errorf("a flow that is not idle: %v", err)
	}
	var timeout net.Error
	if err := c.alive(patience); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("a flow that is forgotten: %v, wanted silence", err)
	}
	l.reaches("eni-a", ipB+":80")
}
