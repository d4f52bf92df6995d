package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// syncRoutes sets a namespace's routes to those wanted, and does not touch correct ones. Without
// prune, it keeps additional routes.
func syncRoutes(handle *netlink.Handle, wanted []route, prune bool) error {
	indexes, names, err := linkIndexes(handle)
	if err != nil {
		return err
	}
	current, err := allRoutes(handle)
	if err != nil {
		return err
	}
	missing := map[string]route{}
	for _, r := range wanted {
		missing[r.key()] = r
	}
	var surplus []netlink.Route
	for _, c := range current {
		if c.Table == unix.RT_TABLE_LOCAL || c.Protocol == unix.RTPROT_KERNEL {
			continue
		}
		r := routeOf(c, names)
		w, ok := missing[r.key()]
		switch {
		case ok && w == r:
			delete(missing, r.key())
		case !ok && prune:
			surplus = append(surplus, c)
		}
	}
	var errs []error
	for _, r := range wanted {
		if _, ok := missing[r.key()]; !ok {
			continue
		}
		kernel, err := r.kernel(indexes)
		if err == nil {
			err = handle.RouteReplace(kernel)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("set route %s: %w", r, err))
		}
	}
	for _, c := range surplus {
		if err := handle.RouteDel(&c); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("delete route %s: %w", routeOf(c, names), err))
		}
	}
	return errors.Join(errs...)
}

// syncRules sets the rules that choose a route table by link or by mark to those wanted.
func syncRules(handle *netlink.Handle, wanted []rule) error {
	current, err := handle.RuleList(unix.AF_INET)
	if err != nil {
		return fmt.Errorf("list routing rules: %w", err)
	}
	missing := map[rule]bool{}
	for _, r := range wanted {
		missing[r] = true
	}
	var surplus []netlink.Rule
	for _, c := range current {
		r := rule{Link: c.IifName, Mark: int(c.Mark), Table: c.Table}
		switch {
		case c.Priority != subnetRulePriority && c.Priority != answerRulePriority:
		case missing[r]:
			delete(missing, r)
		default:
			surplus = append(surplus, c)
		}
	}
	var errs []error
	for _, r := range wanted {
		if !missing[r] {
			continue
		}
		kernel := netlink.NewRule()
		kernel.Family, kernel.Priority, kernel.IifName, kernel.Table, kernel.Mark = unix.AF_INET, r.priority(), r.Link, r.Table, uint32(r.Mark)
		if err := handle.RuleAdd(kernel); err != nil {
			errs = append(errs, fmt.Errorf("add rule %s: %w", r, err))
		}
	}
	for _, c := range surplus {
		if err := handle.RuleDel(&c); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("delete rule %s: %w", rule{c.IifName, int(c.Mark), c.Table}, err))
		}
	}
	return errors.Join(errs...)
}

// allRoutes lists the IPv4 routes of every table.
func allRoutes(handle *netlink.Handle) ([]netlink.Route, error) {
	every := &netlink.Route{Table: unix.RT_TABLE_UNSPEC}
	// A dump that was interrupted by a change is repeated: others may change the host's routes
	// meanwhile.
	for attempt := 0; ; attempt++ {
		routes, err := handle.RouteListFiltered(unix.AF_INET, every, netlink.RT_FILTER_TABLE)
		if err == nil {
			return routes, nil
		}
		if attempt == 9 || !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, fmt.Errorf("list routes: %w", err)
		}
	}
}

func linkIndexes(handle *netlink.Handle) (indexes map[string]int, names map[int]string, err error) {
	links, err := handle.LinkList()
	if err != nil {
		return nil, nil, fmt.Errorf("list links: %w", err)
	}
	indexes, names = map[string]int{}, map[int]string{}
	for _, l := range links {
		indexes[l.Attrs().Name], names[l.Attrs().Index] = l.Attrs().Index, l.Attrs().Name
	}
	return indexes, names, nil
}

// routeOf converts a kernel route to comparable form.
func routeOf(r netlink.Route, names map[int]string) route {
	found := route{Table: r.Table, Kind: r.Type, Destination: everywhere, Link: names[r.LinkIndex]}
	if dst, ok := prefixOf(r.Dst); ok {
		found.Destination = dst
	}
	if via, ok := netip.AddrFromSlice(r.Gw); ok {
		found.Via = via.Unmap()
	}
	if src, ok := netip.AddrFromSlice(r.Src); ok {
		found.Source = src.Unmap()
	}
	return found
}

// kernel converts a route to the kernel's form.
func (r route) kernel(indexes map[string]int) (*netlink.Route, error) {
	k := &netlink.Route{Family: unix.AF_INET, Table: r.Table, Type: r.Kind, Dst: ipNet(r.Destination), Protocol: unix.RTPROT_STATIC}
	if r.Source.IsValid() {
		k.Src = r.Source.AsSlice()
	}
	if r.Link == "" {
		return k, nil
	}
	index, ok := indexes[r.Link]
	if !ok {
		return nil, fmt.Errorf("no link %s", r.Link)
	}
	k.LinkIndex, k.Scope = index, unix.RT_SCOPE_LINK
	if r.Via.IsValid() {
		k.Gw, k.Flags, k.Scope = r.Via.AsSlice(), int(netlink.FLAG_ONLINK), unix.RT_SCOPE_UNIVERSE
	}
	return k, nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), bits), ok
}
