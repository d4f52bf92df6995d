package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"
)

// Config is the wanted state of a lab's network. [Manager.Apply] removes everything that is not in
// it.
type Config struct {
	VPCs []VPC
}

// VPC is one isolated address space with a router of its own. Two VPCs may have the same CIDR.
type VPC struct {
	ID   string
	CIDR netip.Prefix
	// InternetGateway says whether an internet gateway is attached. Without one, routes to it are
	// black holes and public addresses do not work.
	InternetGateway bool
	Subnets         []Subnet
	RouteTables     []RouteTable
	Interfaces      []Interface
	SecurityGroups  []SecurityGroup
}

// Subnet is a part of its VPC's CIDR. Its base address + 1 is the gateway.
type Subnet struct {
	ID   string
	CIDR netip.Prefix
	// RouteTableID names the table for packets from the subnet's interfaces. Empty means only the
	// local route.
	RouteTableID string
}

// RouteTable holds routes for packets leaving the interfaces of the subnets associated with it. The
// longest prefix wins. The route for the VPC's own CIDR always exists, listed or not.
type RouteTable struct {
	ID     string
	Routes []Route
}

// Route sends packets for a destination to a target.
type Route struct {
	Destination netip.Prefix
	Target      Target
}

// TargetKind is the kind of thing a route points to.
type TargetKind int

// The kinds of route targets.
const (
	// Local is the VPC itself.
	Local TargetKind = iota
	// InternetGateway is the VPC's internet gateway.
	InternetGateway
	// ToInterface is another interface of the VPC. To receive packets for other addresses than its
	// own, it must have its source/destination check off.
	ToInterface
	// Blackhole drops packets silently, as EC2 does when a route's target is gone.
	Blackhole
)

// Target is a route's target.
type Target struct {
	Kind TargetKind
	// InterfaceID is set for ToInterface. An interface that does not exist, or is stopped, makes a
	// black hole.
	InterfaceID string
}

// Interface is a network interface and the namespace behind it.
type Interface struct {
	ID        string
	SubnetID  string
	PrivateIP netip.Addr
	// PublicIP is translated one to one to and from PrivateIP by the router. The zero value means
	// none.
	PublicIP netip.Addr
	// MAC is the address of the machine's end, ens5. Empty lets the kernel choose one.
	MAC string
	// SourceDestCheck drops packets from the interface with another source than PrivateIP, and
	// packets to it with another destination. With the check off, addresses inside the VPC's CIDR
	// still cannot be forged.
	SourceDestCheck bool
	// Groups are the interface's security groups. With none, it reaches only the VPC's own
	// services.
	Groups []string
	// Stopped drops packets to the interface, as on EC2 when its instance does not run. Otherwise
	// the kernel would answer them in place of the machine.
	Stopped bool
	// NATGateway says that the interface belongs to a NAT gateway. No machine is behind it: this
	// package forwards for it. It has no groups, and no source/destination check.
	NATGateway bool
	// Balancer says that the interface belongs to a load balancer's node: this package forwards for
	// it. No machine is behind it, and it has no source/destination check. Without groups it takes
	// and sends everything. Without listeners it takes no connections, and is the interface of an
	// EC2 Instance Connect Endpoint.
	Balancer *Balancer
	// Cut drops every packet that is forwarded from or to the interface, also packets of existing
	// flows. The flows continue once it is false again. The VPC's own services still answer: on EC2
	// they are on the machine's own host.
	Cut bool
}

// SecurityGroup is a set of rules that allow packets; others are dropped. It is stateful: an
// allowed flow keeps passing in both directions, also after its rule is removed.
type SecurityGroup struct {
	ID              string
	Ingress, Egress []Rule
}

// Rule allows packets of a protocol from (ingress) or to (egress) a CIDR or the members of a group.
type Rule struct {
	// Protocol is "tcp", "udp", "icmp", "-1" for all, or an IP protocol number.
	Protocol string
	// FromPort and ToPort bound the destination port for tcp and udp (-1 to -1, or 0 to 65535:
	// any). For icmp they are type and code, -1 meaning any. Other protocols have none.
	FromPort, ToPort int
	// CIDR contains the peer's address. IPv6 CIDRs match nothing.
	CIDR netip.Prefix
	// GroupID, instead of CIDR, matches by the peer's interface. Packets through a public address
	// do not match; packets that a member forwards for others, such as pods, do.
	GroupID string
}

// Link-local addresses of every VPC's services: the instance metadata service, and the resolver's
// second address.
var (
	metadataIP      = netip.AddrFrom4([4]byte{169, 254, 169, 254})
	localResolverIP = netip.AddrFrom4([4]byte{169, 254, 169, 253})
)

func (v VPC) resolver() netip.Addr   { return offset(v.CIDR.Addr(), 2) }
func (s Subnet) gateway() netip.Addr { return offset(s.CIDR.Addr(), 1) }

// services returns the router's addresses that every interface may reach.
func (v VPC) services() []netip.Addr {
	return []netip.Addr{v.resolver(), localResolverIP, metadataIP}
}

func (v VPC) subnet(id string) (Subnet, bool) {
	return find(v.Subnets, id, func(s Subnet) string { return s.ID })
}
func (v VPC) routeTable(id string) (RouteTable, bool) {
	return find(v.RouteTables, id, func(t RouteTable) string { return t.ID })
}
func (v VPC) iface(id string) (Interface, bool) {
	return find(v.Interfaces, id, func(i Interface) string { return i.ID })
}
func (v VPC) group(id string) (SecurityGroup, bool) {
	return find(v.SecurityGroups, id, func(g SecurityGroup) string { return g.ID })
}

func find[T any](list []T, id string, key func(T) string) (T, bool) {
	for _, item := range list {
		if key(item) == id {
			return item, true
		}
	}
	var none T
	return none, false
}

func offset(base netip.Addr, n int) netip.Addr {
	for range n {
		base = base.Next()
	}
	return base
}

// validID matches identifiers that may be part of file names, interface aliases and rulesets. The
// hyphen keeps them different from this package's own names.
var validID = regexp.MustCompile(`^[a-z]+-[0-9a-z-]{1,40}$`)

// validate returns all errors of the configuration.
func (c Config) validate(slice Slice) error {
	v := validator{seen: map[string]string{}}
	public := map[netip.Addr]bool{}
	for _, addr := range slice.PublicIPs() {
		public[addr] = true
	}
	for _, vpc := range c.VPCs {
		v.vpc(vpc, public)
	}
	return errors.Join(v.errs...)
}

type validator struct {
	seen map[string]string // which resource uses an identifier or address
	errs []error
}

func (v *validator) failf(format string, args ...any) {
	v.errs = append(v.errs, fmt.Errorf(format, args...))
}

func (v *validator) id(id, what string) {
	if !validID.MatchString(id) {
		v.failf("%s: malformed identifier %q", what, id)
	}
	v.unique(id, what+" "+id)
}

func (v *validator) unique(key, by string) {
	if other, taken := v.seen[key]; taken {
		v.failf("%s: %s is already used by %s", by, key, other)
	}
	v.seen[key] = by
}

func (v *validator) vpc(vpc VPC, public map[netip.Addr]bool) {
	v.id(vpc.ID, "VPC")
	if !canonical4(vpc.CIDR) {
		v.failf("%s: %q is not a canonical IPv4 CIDR", vpc.ID, vpc.CIDR)
	}
	for _, s := range vpc.Subnets {
		v.id(s.ID, "subnet")
		if !canonical4(s.CIDR) || !vpc.CIDR.Overlaps(s.CIDR) || s.CIDR.Bits() < vpc.CIDR.Bits() {
			v.failf("%s: %q is not a canonical IPv4 CIDR inside %s", s.ID, s.CIDR, vpc.CIDR)
		}
		if _, ok := vpc.routeTable(s.RouteTableID); !ok && s.RouteTableID != "" {
			v.failf("%s: no route table %q", s.ID, s.RouteTableID)
		}
	}
	for _, t := range vpc.RouteTables {
		v.id(t.ID, "route table")
		for _, r := range t.Routes {
			if !canonical4(r.Destination) {
				v.failf("%s: %q is not a canonical IPv4 CIDR", t.ID, r.Destination)
			}
		}
	}
	for _, g := range vpc.SecurityGroups {
		v.id(g.ID, "security group")
		for _, r := range append(append([]Rule(nil), g.Ingress...), g.Egress...) {
			if _, err := r.match(); err != nil {
				v.failf("%s: %w", g.ID, err)
			}
		}
	}
	for _, i := range vpc.Interfaces {
		v.iface(vpc, i, public)
	}
}

func (v *validator) iface(vpc VPC, i Interface, public map[netip.Addr]bool) {
	v.id(i.ID, "interface")
	subnet, ok := vpc.subnet(i.SubnetID)
	switch {
	case !ok:
		v.failf("%s: no subnet %q", i.ID, i.SubnetID)
	case !subnet.CIDR.Contains(i.PrivateIP):
		v.failf("%s: %s is not in %s", i.ID, i.PrivateIP, subnet.CIDR)
	case i.PrivateIP == subnet.gateway(), i.PrivateIP == vpc.resolver():
		v.failf("%s: %s belongs to the router", i.ID, i.PrivateIP)
	default:
		v.unique(vpc.ID+"/"+i.PrivateIP.String(), i.ID)
	}
	if i.PublicIP.IsValid() {
		if !public[i.PublicIP] {
			v.failf("%s: %s is not a public address of this lab", i.ID, i.PublicIP)
		}
		v.unique(i.PublicIP.String(), i.ID)
	}
	if i.MAC != "" {
		if hw, err := net.ParseMAC(i.MAC); err != nil || len(hw) != 6 || hw[0]&1 != 0 {
			v.failf("%s: %q is not a unicast MAC address", i.ID, i.MAC)
		}
	}
	if i.NATGateway && (i.SourceDestCheck || len(i.Groups) > 0) {
		v.failf("%s: a NAT gateway has neither groups nor a source/destination check", i.ID)
	}
	v.balancer(i)
	for _, id := range i.Groups {
		if _, ok := vpc.group(id); !ok {
			v.failf("%s: no security group %q", i.ID, id)
		}
	}
}

func canonical4(p netip.Prefix) bool {
	return p.IsValid() && p.Addr().Is4() && p == p.Masked()
}

// shortName makes an interface name, at most 15 characters as the kernel wants it, out of an
// identifier.
func shortName(id string) string {
	if len(id) <= 15 {
		return id
	}
	kind, _, _ := strings.Cut(id, "-")
	return kind[:min(3, len(kind))] + "-" + digest(id)[:11]
}
