package network

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// idleTimeout is the number of seconds without a packet after which NAT gateways and Network Load Balancers forget a flow,
// and after which the security groups of instance types of Nitro v6 forget a TCP connection. Older types remember it for
// five days.
// https://docs.aws.amazon.com/vpc/latest/userguide/nat-gateway-basics.html
// https://docs.aws.amazon.com/elasticloadbalancing/latest/network/network-load-balancers.html
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/security-group-connection-tracking.html
const idleTimeout = 350

// groupSysctls are the sysctls of connection tracking for security groups, forwarderSysctls those of NAT gateways and load
// balancers. A TCP connection that was forgotten is not resumed. The settings exist once a ruleset tracks connections.
var (
	groupSysctls = []sysctl{
		{"netfilter/nf_conntrack_tcp_timeout_established", strconv.Itoa(idleTimeout)},
		{"netfilter/nf_conntrack_udp_timeout", "30"},
		{"netfilter/nf_conntrack_udp_timeout_stream", "180"},
		{"netfilter/nf_conntrack_tcp_loose", "0"},
	}
	forwarderSysctls = []sysctl{
		{"netfilter/nf_conntrack_tcp_timeout_established", strconv.Itoa(idleTimeout)},
		{"netfilter/nf_conntrack_udp_timeout", strconv.Itoa(idleTimeout)},
		{"netfilter/nf_conntrack_udp_timeout_stream", strconv.Itoa(idleTimeout)},
		{"netfilter/nf_conntrack_icmp_timeout", strconv.Itoa(idleTimeout)},
		{"netfilter/nf_conntrack_tcp_loose", "0"},
	}
)

// cutStaleFlows deletes a router's connection tracking entries that are no longer valid: entries of
// removed interfaces, whose addresses may belong to other interfaces by now, and entries translated
// by a changed mapping. Flows whose security group rule was removed stay, as on EC2.
func cutStaleFlows(handle *netlink.Handle, vpc VPC, removed []netip.Addr) error {
	filter := staleFlows{cidr: vpc.CIDR, public: vpc.translations(), present: map[netip.Addr]bool{}}
	for _, i := range vpc.Interfaces {
		filter.present[i.PrivateIP] = !slices.Contains(removed, i.PrivateIP)
	}
	for _, addr := range planRouter(vpc).Addresses {
		filter.present[addr] = true
	}
	if _, err := handle.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, filter); err != nil {
		return fmt.Errorf("cut stale flows: %w", err)
	}
	return nil
}

// staleFlows is a filter that matches stale connection tracking entries.
type staleFlows struct {
	cidr    netip.Prefix
	present map[netip.Addr]bool       // addresses in the VPC that still belong to the same interface
	public  map[netip.Addr]netip.Addr // by private address
}

// MatchConntrackFlow implements [netlink.CustomConntrackFilter].
func (f staleFlows) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	sender, asSent := address(flow.Forward.SrcIP), address(flow.Reverse.DstIP)
	dialled, receiver := address(flow.Forward.DstIP), address(flow.Reverse.SrcIP)
	return f.gone(sender) || f.gone(receiver) ||
		sender != asSent && f.public[sender] != asSent ||
		dialled != receiver && f.public[receiver] != dialled
}

// gone says whether addr is in the VPC's CIDR and no interface has it any more. Pods have addresses
// outside the CIDR.
func (f staleFlows) gone(addr netip.Addr) bool { return f.cidr.Contains(addr) && !f.present[addr] }

func address(ip net.IP) netip.Addr {
	addr, _ := netip.AddrFromSlice(ip)
	return addr.Unmap()
}
