package network

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Next hops between a router and the internet namespace. Link-local addresses cannot collide with a
// VPC's. All uplinks have the same two, since each is a separate link.
var (
	uplinkInside  = netip.AddrFrom4([4]byte{169, 254, 255, 2}) // the router's end
	uplinkOutside = netip.AddrFrom4([4]byte{169, 254, 255, 1}) // the internet's end
)

var everywhere = netip.PrefixFrom(netip.IPv4Unspecified(), 0)

// subnetRulePriority is the priority of the rules that send an interface's packets to its subnet's
// route table: after the router's own addresses (0) and before the main table (32766).
const subnetRulePriority = 1000

// answerRulePriority is the priority of the rules that send answers to the nodes of load balancers, whatever
// the route tables say.
const answerRulePriority = 900

// route is one kernel route in comparable form. Table is a kernel table number, Kind an RTN_
// constant. Links have names, not indexes, so that a plan can be made before they exist.
type route struct {
	Table       int
	Kind        int
	Destination netip.Prefix
	Via         netip.Addr // zero if the destination is on the link
	Link        string
	Source      netip.Addr // preferred source of the router's own packets, ICMP errors above all
}

// String renders the route as ip-route(8) does.
func (r route) String() string {
	var b strings.Builder
	if kind, ok := map[int]string{unix.RTN_UNREACHABLE: "unreachable ", unix.RTN_BLACKHOLE: "blackhole ", unix.RTN_THROW: "throw "}[r.Kind]; ok {
		b.WriteString(kind)
	}
	b.WriteString(r.Destination.String())
	if r.Via.IsValid() {
		fmt.Fprintf(&b, " via %s", r.Via)
	}
	if r.Link != "" {
		fmt.Fprintf(&b, " dev %s", r.Link)
	}
	if r.Source.IsValid() {
		fmt.Fprintf(&b, " src %s", r.Source)
	}
	if r.Table != unix.RT_TABLE_MAIN {
		fmt.Fprintf(&b, " table %d", r.Table)
	}
	return b.String()
}

// key returns the table and destination, for which the kernel allows one route.
func (r route) key() string { return fmt.Sprintf("%d %s", r.Table, r.Destination) }

// rule sends packets that arrive on a link, or that have a mark, to a kernel route table.
type rule struct {
	Link  string
	Mark  int // instead of a link
	Table int
}

func (r rule) priority() int {
	if r.Mark != 0 {
		return answerRulePriority
	}
	return subnetRulePriority
}

func (r rule) String() string {
	if r.Mark != 0 {
		return fmt.Sprintf("fwmark %d lookup %d priority %d", r.Mark, r.Table, r.priority())
	}
	return fmt.Sprintf("iif %s lookup %d priority %d", r.Link, r.Table, r.priority())
}

// routerPlan is the wanted state of a VPC's router, without its ruleset.
type routerPlan struct {
	Addresses []netip.Addr // on its loopback: gateways, resolver, metadata service
	Links     []link
	Rules     []rule
	Routes    []route
}

// link is one interface's connection to the router.
type link struct {
	Interface Interface
	Name      string
	Address   netip.Prefix // the private address, with the length of the subnet's CIDR
	Gateway   netip.Addr
}

// alias returns the label of a finished link. A link with another label, or none, is outdated or
// unfinished.
func (l link) alias() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", l.Interface.ID, l.Address, l.Interface.MAC))
}

// aliasAddr returns the private address in a link's label.
func aliasAddr(alias string) (netip.Addr, bool) {
	fields := strings.Fields(alias)
	if len(fields) < 2 {
		return netip.Addr{}, false
	}
	prefix, err := netip.ParsePrefix(fields[1])
	return prefix.Addr(), err == nil
}

// planRouter works out a VPC's router. It expects a validated VPC.
func planRouter(vpc VPC) routerPlan {
	plan := routerPlan{Addresses: vpc.services()}
	for _, s := range sortedBy(vpc.Subnets, func(s Subnet) string { return s.ID }) {
		if !slices.Contains(plan.Addresses, s.gateway()) {
			plan.Addresses = append(plan.Addresses, s.gateway())
		}
	}
	main := func(r route) {
		r.Table = unix.RT_TABLE_MAIN
		plan.Routes = append(plan.Routes, r)
	}
	// A packet for an unknown address is dropped silently, as in Amazon's VPCs.
	main(route{Kind: unix.RTN_BLACKHOLE, Destination: everywhere})
	if vpc.CIDR != everywhere {
		main(route{Kind: unix.RTN_BLACKHOLE, Destination: vpc.CIDR})
	}
	tables := vpc.tableNumbers()
	for _, i := range sortedBy(vpc.Interfaces, func(i Interface) string { return i.ID }) {
		subnet, _ := vpc.subnet(i.SubnetID)
		l := link{
			Interface: i,
			Name:      shortName(i.ID),
			Address:   netip.PrefixFrom(i.PrivateIP, subnet.CIDR.Bits()),
			Gateway:   subnet.gateway(),
		}
		plan.Links = append(plan.Links, l)
		plan.Rules = append(plan.Rules, rule{Link: l.Name, Table: tables[subnet.RouteTableID]})
		host := route{Kind: unix.RTN_UNICAST, Destination: netip.PrefixFrom(i.PrivateIP, 32), Link: l.Name, Source: l.Gateway}
		if i.Stopped {
			host = route{Kind: unix.RTN_BLACKHOLE, Destination: host.Destination}
		}
		main(host)
	}
	for _, id := range sortedBy(keys(tables), func(id string) string { return id }) {
		table, _ := vpc.routeTable(id)
		plan.Routes = append(plan.Routes, vpc.planTable(tables[id], table)...)
	}
	plan.planNodes(vpc)
	return plan
}

// planTable renders a route table. Local packets continue to the main table, which knows every
// interface. Packets that no route matches are dropped.
func (v VPC) planTable(number int, table RouteTable) []route {
	routes := map[netip.Prefix]route{
		everywhere: {Kind: unix.RTN_BLACKHOLE},
		v.CIDR:     {Kind: unix.RTN_THROW},
	}
	for _, r := range table.Routes {
		if r.Destination != v.CIDR {
			routes[r.Destination] = v.resolve(r.Target)
		}
	}
	var list []route
	for destination, r := range routes {
		r.Table, r.Destination = number, destination
		list = append(list, r)
	}
	return sortedBy(list, func(r route) string { return r.Destination.String() })
}

func (v VPC) resolve(target Target) route {
	switch target.Kind {
	case Local:
		return route{Kind: unix.RTN_THROW}
	case InternetGateway:
		if v.InternetGateway {
			return route{Kind: unix.RTN_UNICAST, Via: uplinkOutside, Link: uplinkName}
		}
	case ToInterface:
		if i, ok := v.iface(target.InterfaceID); ok && !i.Stopped {
			return route{Kind: unix.RTN_UNICAST, Via: i.PrivateIP, Link: shortName(i.ID)}
		}
	}
	return route{Kind: unix.RTN_BLACKHOLE}
}

// tableNumbers returns the kernel numbers of the route tables in use. They are hashes of the
// identifiers, so that a table keeps its number when others change.
func (v VPC) tableNumbers() map[string]int {
	numbers := map[string]int{}
	taken := map[int]bool{}
	var ids []string
	for _, s := range v.Subnets {
		ids = append(ids, s.RouteTableID)
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		hash := fnv.New32a()
		hash.Write([]byte(id))
		number := 1000 + int(hash.Sum32()%1_000_000_000)
		for taken[number] {
			number++
		}
		taken[number], numbers[id] = true, number
	}
	return numbers
}

// planInternet works out the internet namespace's routes: the operator, and each public address to
// its VPC.
func planInternet(slice Slice, cfg Config) []route {
	routes := slice.internetRoutes()
	for _, vpc := range cfg.VPCs {
		for _, public := range vpc.translations() {
			routes = append(routes, route{
				Table: unix.RT_TABLE_MAIN, Kind: unix.RTN_UNICAST,
				Destination: netip.PrefixFrom(public, 32), Via: uplinkInside, Link: shortName(vpc.ID),
			})
		}
	}
	return sortedBy(routes, route.String)
}

func keys[V any](m map[string]V) []string {
	list := make([]string, 0, len(m))
	for k := range m {
		list = append(list, k)
	}
	return list
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
