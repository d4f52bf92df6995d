package network

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
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

// ForgetIdle makes routers, NAT gateways and the nodes of load balancers forget the TCP connections that have had no packet for
// this time, as they do by themselves after idleTimeout. It returns how many it has forgotten: a connection counts in each of
// them.
func (m *Manager) ForgetIdle(ctx context.Context, idle time.Duration) (forgotten int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for _, vpc := range m.config.VPCs {
		names = append(names, m.slice.namespace(vpc.ID))
		for _, i := range vpc.Interfaces {
			if i.forwards() {
				names = append(names, m.slice.namespace(i.ID))
			}
		}
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return forgotten, fmt.Errorf("forget idle connections: %w", err)
		}
		n, err := forgetIdle(name, idle)
		if err != nil {
			return forgotten, fmt.Errorf("forget idle connections in %s: %w", name, err)
		}
		forgotten += n
	}
	return forgotten, nil
}

func forgetIdle(namespace string, idle time.Duration) (int, error) {
	handle, _, closeHandle, err := open(namespace)
	if err != nil {
		return 0, err
	}
	defer closeHandle()
	n, err := handle.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, idleFlows(idle))
	return int(n), err
}

// idleFlows is a filter that matches established TCP connections without a packet for this time.
type idleFlows time.Duration

// MatchConntrackFlow implements [netlink.CustomConntrackFilter].
func (f idleFlows) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	tcp, ok := flow.ProtoInfo.(*netlink.ProtoInfoTCP)
	return ok && tcp.State == nl.TCP_CONNTRACK_ESTABLISHED && time.Duration(idleTimeout-int(flow.TimeOut))*time.Second >= time.Duration(f)
}

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
