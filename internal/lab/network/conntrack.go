package network

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// cutStaleFlows makes a router forget flows that can no longer be: those of interfaces that are gone, whose
// addresses may belong to others by now, and those translated by a mapping that has changed since. Flows whose security
// group rule is gone stay, as on EC2.
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

// staleFlows is a filter of connection tracking entries.
type staleFlows struct {
	cidr    netip.Prefix
	present map[netip.Addr]bool       // addresses in the VPC that have been the same interface's all along
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

// gone is true for the VPC's own addresses only: what an interface forwards for has other ones.
func (f staleFlows) gone(addr netip.Addr) bool { return f.cidr.Contains(addr) && !f.present[addr] }

func address(ip net.IP) netip.Addr {
	addr, _ := netip.AddrFromSlice(ip)
	return addr.Unmap()
}
