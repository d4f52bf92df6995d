package component

import (
	"fmt"
	"net/netip"
)

// CIDR is the form that a network must have: IPv4, without host bits, and with a prefix whose
// length lies between two bounds, both included.
type CIDR struct{ Shortest, Longest int }

// Forms of the networks of a cluster and of one machine's pods, and of any network.
var (
	ClusterCIDR = CIDR{8, 28}
	HostPodCIDR = CIDR{8, 30}
	AnyCIDR     = CIDR{0, 32}
)

// String completes "must be".
func (c CIDR) String() string {
	if c == AnyCIDR {
		return "an IPv4 network in CIDR notation without host bits"
	}
	return fmt.Sprintf("an IPv4 network in CIDR notation without host bits, /%d to /%d", c.Shortest, c.Longest)
}

// Check reports a network that does not have the form.
func (c CIDR) Check(p netip.Prefix) error {
	switch {
	case !p.Addr().Is4():
		return fmt.Errorf("%s is not IPv4", p)
	case p != p.Masked():
		return fmt.Errorf("%s has host bits set; the network is %s", p, p.Masked())
	case p.Bits() < c.Shortest || p.Bits() > c.Longest:
		return fmt.Errorf("%s has a prefix length of /%d; it must lie between /%d and /%d", p, p.Bits(), c.Shortest, c.Longest)
	}
	return nil
}
