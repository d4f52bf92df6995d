package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// The MTUs, in bytes, of links inside a VPC and of those towards the internet (EC2 user guide,
// "Network maximum transmission unit (MTU) for your EC2 instance"). The router tells senders when a
// packet is too large.
const (
	vpcMTU      = 9001
	internetMTU = 1500
)

// guestLink is the name of the interface in a machine, as in Debian's images on EC2.
const guestLink = "ens5"

// upPatience bounds the wait for a link to come up, which takes milliseconds.
const upPatience = time.Minute

// forwardingSysctls make a namespace a router that reports too large packets at once and sends no
// redirects.
var forwardingSysctls = []sysctl{
	{"ipv4/conf/all/rp_filter", "0"},
	{"ipv4/conf/default/rp_filter", "0"},
	{"ipv4/conf/all/send_redirects", "0"},
	{"ipv4/conf/default/send_redirects", "0"},
	{"ipv4/conf/all/accept_redirects", "0"},
	{"ipv4/conf/default/accept_redirects", "0"},
	{"ipv4/icmp_ratelimit", "0"},
	{"ipv4/ip_forward", "1"},
}

// instanceSysctls set what a namespace inherits from this host to the values on EC2. There the
// initramfs of Debian's images turns off the detection of duplicate IPv6 addresses.
// systemd-networkd turns IPv6 on for its link, and would wait two seconds for the detection in each
// boot: https://salsa.debian.org/cloud-team/debian-cloud-images, no-v6-dad.sh for the class EC2,
// which Debian 11 introduced.
var instanceSysctls = []sysctl{
	{"ipv6/conf/all/accept_dad", "0"},
	{"ipv6/conf/default/accept_dad", "0"},
	{"ipv4/ip_forward", "0"},
	{"ipv4/conf/all/rp_filter", "0"},
	{"ipv4/conf/default/rp_filter", "0"},
	{"ipv4/conf/all/accept_redirects", "0"},
	{"ipv4/conf/default/accept_redirects", "0"},
}

// addVeth creates a pair of links, both down.
func addVeth(handle *netlink.Handle, name string, peerNS netns.NsHandle, peer string, mtu int, mac, peerMAC net.HardwareAddr) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = name, mtu, mac
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerMTU, veth.PeerHardwareAddr, veth.PeerNamespace = peer, uint32(mtu), peerMAC, netlink.NsFd(peerNS)
	if err := handle.LinkAdd(veth); err != nil {
		return nil, fmt.Errorf("create link %s: %w", name, err)
	}
	created, err := handle.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("find link %s: %w", name, err)
	}
	return created, nil
}

// syncUplink connects a router with the internet namespace, unless it is connected.
func syncUplink(ctx context.Context, router, internet string, vpc VPC) error {
	inside, _, closeRouter, err := open(router)
	if err != nil {
		return err
	}
	defer closeRouter()
	outside, internetNS, closeInternet, err := open(internet)
	if err != nil {
		return err
	}
	defer closeInternet()
	peer := shortName(vpc.ID)
	if intact, err := connected(inside, uplinkName, vpc.ID, outside, peer); err != nil || intact {
		return err
	}
	uplink, err := addVeth(inside, uplinkName, internetNS, peer, internetMTU, nil, nil)
	if err != nil {
		return err
	}
	if err := configure(outside, peer, netip.PrefixFrom(uplinkOutside, 32)); err != nil {
		return err
	}
	if err := configure(inside, uplinkName, netip.PrefixFrom(uplinkInside, 32)); err != nil {
		return err
	}
	if err := awaitUp(ctx, outside, peer); err != nil {
		return err
	}
	return label(inside, uplink, vpc.ID)
}

// connected says whether a link exists, is finished, and has its other end in the right place.
// Otherwise it removes what exists of it.
func connected(handle *netlink.Handle, name, alias string, peerHandle *netlink.Handle, peer string) (bool, error) {
	found, err := handle.LinkByName(name)
	if err == nil {
		if _, err := peerHandle.LinkByName(peer); err == nil && found.Attrs().Alias == alias {
			return true, nil
		}
		if err := handle.LinkDel(found); err != nil {
			return false, fmt.Errorf("delete unfinished link %s: %w", name, err)
		}
	}
	if left, err := peerHandle.LinkByName(peer); err == nil {
		if err := peerHandle.LinkDel(left); err != nil {
			return false, fmt.Errorf("delete unfinished link %s: %w", peer, err)
		}
	}
	return false, nil
}

// label marks a link as finished.
func label(handle *netlink.Handle, l netlink.Link, alias string) error {
	if err := handle.LinkSetAlias(l, alias); err != nil {
		return fmt.Errorf("label link %s: %w", l.Attrs().Name, err)
	}
	return nil
}

// awaitUp waits until a link carries packets. That is a moment after the second end of a pair has
// come up. The kernel drops packets sent before, which would delay a machine's first connection by
// a second.
func awaitUp(ctx context.Context, handle *netlink.Handle, name string) error {
	ctx, cancel := context.WithTimeout(ctx, upPatience)
	defer cancel()
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for {
		found, err := handle.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find link %s: %w", name, err)
		}
		if found.Attrs().OperState == netlink.OperUp {
			return nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for link %s to come up: %w", name, ctx.Err())
		}
	}
}

// configure gives a link an address and brings it up.
func configure(handle *netlink.Handle, name string, address netip.Prefix) error {
	found, err := handle.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	if err := handle.AddrReplace(found, &netlink.Addr{IPNet: ipNet(address)}); err != nil {
		return fmt.Errorf("give %s the address %s: %w", name, address, err)
	}
	return setUp(handle, name)
}

func setUp(handle *netlink.Handle, name string) error {
	found, err := handle.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	if err := handle.LinkSetUp(found); err != nil {
		return fmt.Errorf("bring up %s: %w", name, err)
	}
	return nil
}

// syncLoopback sets the addresses of a router's loopback to those wanted and 127.0.0.1.
func syncLoopback(handle *netlink.Handle, wanted []netip.Addr) error {
	lo, err := handle.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find loopback: %w", err)
	}
	current, err := handle.AddrList(lo, unix.AF_INET)
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	missing := map[netip.Addr]bool{}
	for _, addr := range wanted {
		missing[addr] = true
	}
	for _, c := range current {
		p, _ := prefixOf(c.IPNet)
		switch {
		case p.Addr().IsLoopback():
		case missing[p.Addr()]:
			delete(missing, p.Addr())
		default:
			if err := handle.AddrDel(lo, &c); err != nil {
				return fmt.Errorf("delete address %s: %w", p, err)
			}
		}
	}
	for _, addr := range wanted {
		if missing[addr] {
			if err := handle.AddrAdd(lo, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(addr, 32))}); err != nil {
				return fmt.Errorf("add address %s: %w", addr, err)
			}
		}
	}
	return nil
}

// syncLinks sets a router's links to its interfaces to those wanted, and returns the private
// addresses of the removed ones. It does not touch correct links or the namespaces behind them.
func (m *Manager) syncLinks(ctx context.Context, router string, wanted []link) (removed []netip.Addr, err error) {
	handle, _, closeRouter, err := open(router)
	if err != nil {
		return nil, err
	}
	defer closeRouter()
	current, err := handle.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	missing := map[string]link{}
	for _, l := range wanted {
		missing[l.Name] = l
	}
	for _, c := range current {
		attrs := c.Attrs()
		if attrs.Name == uplinkName || attrs.Flags&net.FlagLoopback != 0 {
			continue
		}
		w, ok := missing[attrs.Name]
		if ok && attrs.Alias == w.alias() && pinned(m.slice.namespace(w.Interface.ID)) {
			delete(missing, attrs.Name)
			continue
		}
		if addr, ok := aliasAddr(attrs.Alias); ok {
			removed = append(removed, addr)
		}
		if err := handle.LinkDel(c); err != nil && !errors.Is(err, unix.ENODEV) {
			return removed, fmt.Errorf("delete link %s: %w", attrs.Name, err)
		}
	}
	var errs []error
	var added []string
	for _, l := range wanted {
		if _, ok := missing[l.Name]; !ok {
			continue
		}
		if err := ctx.Err(); err != nil {
			return removed, errors.Join(append(errs, err)...)
		}
		if err := m.addLink(handle, router, l); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", l.Interface.ID, err))
			continue
		}
		added = append(added, l.Name)
	}
	for _, name := range added {
		errs = append(errs, awaitUp(ctx, handle, name))
	}
	return removed, errors.Join(errs...)
}

// addLink connects an interface's namespace, which it creates if necessary, to its router. The
// interface is up and has no address: a machine gets one by DHCP, as on EC2.
func (m *Manager) addLink(handle *netlink.Handle, router string, l link) error {
	name := m.slice.namespace(l.Interface.ID)
	settings := instanceSysctls
	if l.Interface.forwards() {
		settings = forwardingSysctls
	}
	created, err := ensureNamespace(name, settings...)
	if err != nil {
		return err
	}
	if created {
		delete(m.rulesets, l.Interface.ID)
	}
	inside, ns, closeInside, err := open(name)
	if err != nil {
		return err
	}
	defer closeInside()
	var mac net.HardwareAddr
	if l.Interface.MAC != "" {
		if mac, err = net.ParseMAC(l.Interface.MAC); err != nil {
			return err
		}
	}
	if _, err := connected(handle, l.Name, l.alias(), inside, guestLink); err != nil {
		return err
	}
	outside, err := addVeth(handle, l.Name, ns, guestLink, vpcMTU, nil, mac)
	if err != nil {
		return err
	}
	// The router answers ARP for every address that it routes elsewhere, such as those of the
	// subnet's other interfaces.
	atRouter := []sysctl{
		{"ipv4/conf/" + l.Name + "/proxy_arp", "1"},
		{"ipv4/neigh/" + l.Name + "/proxy_delay", "0"},
	}
	if l.Interface.forwards() {
		// It forwards the router's own errors to the senders of the packets.
		atRouter = append(atRouter, sysctl{"ipv4/conf/" + l.Name + "/accept_local", "1"})
	}
	err = within(router, func() error { return setSysctls(atRouter) })
	if err != nil {
		return err
	}
	// No host answers for other addresses. A machine should notice that in less than a second.
	err = within(name, func() error {
		return setSysctls([]sysctl{{"ipv4/neigh/" + guestLink + "/retrans_time_ms", "250"}})
	})
	if err != nil {
		return err
	}
	if err := setUp(handle, l.Name); err != nil {
		return err
	}
	if err := setUp(inside, guestLink); err != nil {
		return err
	}
	return label(handle, outside, l.alias())
}
