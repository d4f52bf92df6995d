package network

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// internetID is the identifier of the internet namespace.
	internetID = "inet"
	// operatorName is the internet namespace's link to the host.
	operatorName = "operator"
)

// fallback returns the slice's route of lowest priority. It keeps packets for the slice on the
// host, whatever happens to the link.
func (s Slice) fallback() *netlink.Route {
	return &netlink.Route{
		Family: unix.AF_INET, Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNREACHABLE,
		Dst: ipNet(s.Prefix), Priority: math.MaxUint32, Protocol: unix.RTPROT_STATIC,
	}
}

// internetRuleset drops packets from private addresses (RFC 1918, RFC 6598), as every carrier does.
// So a sender without address translation gets no answer.
const internetRuleset = `table ip lab
delete table ip lab
table ip lab {
	chain sources {
		type filter hook prerouting priority raw; policy accept;
		ip saddr { 10.0.0.0/8, 100.64.0.0/10, 172.16.0.0/12, 192.168.0.0/16 } drop
	}
}
`

// connectHost makes the fallback route, the internet namespace, and the link between it and the
// host, as far as they are missing.
func (s Slice) connectHost(ctx context.Context) error {
	host, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer host.Close()
	if err := host.RouteReplace(s.fallback()); err != nil {
		return fmt.Errorf("set fallback route: %w", err)
	}
	name := s.namespace(internetID)
	if _, err := ensureNamespace(name, forwardingSysctls...); err != nil {
		return err
	}
	inside, ns, closeInternet, err := open(name)
	if err != nil {
		return err
	}
	defer closeInternet()
	intact, err := connected(host, s.hostLink(), s.Prefix.String(), inside, operatorName)
	if err != nil {
		return err
	}
	if !intact {
		// Fixed MAC addresses keep the host's udev from changing them a moment later.
		mac := net.HardwareAddr{0x02, 'k', '8', 's', 0, byte(s.Index)}
		peerMAC := net.HardwareAddr{0x02, 'k', '8', 's', 1, byte(s.Index)}
		if _, err := addVeth(host, s.hostLink(), ns, operatorName, internetMTU, mac, peerMAC); err != nil {
			return err
		}
	}
	return s.configureHost(ctx, host, inside)
}

// configureHost configures the link between host and internet. Every Open repeats that, since other
// programs may change the host's routes.
func (s Slice) configureHost(ctx context.Context, host, inside *netlink.Handle) error {
	outside, err := host.LinkByName(s.hostLink())
	if err != nil {
		return fmt.Errorf("find link %s: %w", s.hostLink(), err)
	}
	const addrGenNone = 1 // no IPv6 link-local address, without changing the host's sysctls
	if err := host.LinkSetIP6AddrGenMode(outside, addrGenNone); err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
		return fmt.Errorf("keep IPv6 off %s: %w", s.hostLink(), err)
	}
	if err := configure(host, s.hostLink(), netip.PrefixFrom(s.Operator, 32)); err != nil {
		return err
	}
	if err := configure(inside, operatorName, netip.PrefixFrom(s.internet(), 32)); err != nil {
		return err
	}
	if err := syncLoopback(inside, s.Servers()); err != nil {
		return err
	}
	if err := loadRuleset(ctx, s.namespace(internetID), internetRuleset); err != nil {
		return err
	}
	if err := awaitUp(ctx, host, s.hostLink()); err != nil {
		return err
	}
	if err := syncRoutes(inside, s.internetRoutes(), false); err != nil {
		return err
	}
	toSlice := &netlink.Route{
		Family: unix.AF_INET, Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST, Protocol: unix.RTPROT_STATIC,
		Dst: ipNet(s.Prefix), LinkIndex: outside.Attrs().Index, Gw: s.internet().AsSlice(), Src: s.Operator.AsSlice(),
		Flags: int(netlink.FLAG_ONLINK),
	}
	if err := host.RouteReplace(toSlice); err != nil {
		return fmt.Errorf("set route to %s: %w", s.Prefix, err)
	}
	return label(host, outside, s.Prefix.String())
}

// Down removes everything of a slice from the host, whether or not a process has it open:
// namespaces, links, routes. The fallback route is removed last. Machines in the namespaces must
// have ended, or they keep their namespaces alive.
func Down(ctx context.Context, slice Slice) error {
	if err := slice.down(ctx); err != nil {
		return fmt.Errorf("take down network %s: %w", slice.Prefix, err)
	}
	return nil
}

func (s Slice) down(ctx context.Context) error {
	names, err := s.namespaces()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		errs = append(errs, removeNamespace(name))
	}
	host, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("open netlink: %w", err))...)
	}
	defer host.Close()
	if found, err := host.LinkByName(s.hostLink()); err == nil {
		if err := host.LinkDel(found); err != nil && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("delete %s: %w", s.hostLink(), err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := restoreNetnsDir(); err != nil {
		return err
	}
	if err := host.RouteDel(s.fallback()); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("delete fallback route: %w", err)
	}
	return nil
}

// removeNamespace deletes a namespace with its links and their other ends.
func removeNamespace(name string) error {
	if pinned(name) {
		handle, _, closeNS, err := open(name)
		if err != nil {
			return err
		}
		defer closeNS()
		links, err := handle.LinkList()
		if err != nil {
			return fmt.Errorf("list links of %s: %w", name, err)
		}
		for _, l := range links {
			if l.Type() != "veth" {
				continue
			}
			if err := handle.LinkDel(l); err != nil && !errors.Is(err, unix.ENODEV) {
				return fmt.Errorf("delete link %s of %s: %w", l.Attrs().Name, name, err)
			}
		}
	}
	return deleteNamespace(name)
}

// Leftovers describes what is left of a slice in the host's namespace. It is empty before the first
// Open and after Down.
func Leftovers(slice Slice) ([]string, error) {
	var left []string
	names, err := slice.namespaces()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		left = append(left, "network namespace "+name)
	}
	host, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	defer host.Close()
	indexes, linkNames, err := linkIndexes(host)
	if err != nil {
		return nil, err
	}
	if _, ok := indexes[slice.hostLink()]; ok {
		left = append(left, "link "+slice.hostLink())
	}
	routes, err := allRoutes(host)
	if err != nil {
		return nil, err
	}
	for _, r := range routes {
		if dst, ok := prefixOf(r.Dst); ok && dst.Bits() >= slice.Prefix.Bits() && slice.Prefix.Contains(dst.Addr()) {
			left = append(left, "route "+routeOf(r, linkNames).String())
		}
	}
	return left, nil
}
