package network

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// uplinkName is the router's link to the internet namespace. It acts as the internet gateway.
const uplinkName = "internet"

// match renders the part of an nftables rule that matches the protocol and ports.
func (r Rule) match() (string, error) {
	if r.GroupID == "" && !r.CIDR.IsValid() {
		return "", fmt.Errorf("rule with neither CIDR nor group")
	}
	if r.GroupID != "" && !validID.MatchString(r.GroupID) {
		return "", fmt.Errorf("malformed identifier %q", r.GroupID)
	}
	switch r.Protocol {
	case "-1":
		return "", nil
	case "icmp", "1":
		return r.matchICMP()
	case "tcp", "6":
		return r.matchPorts("tcp")
	case "udp", "17":
		return r.matchPorts("udp")
	}
	number, err := strconv.ParseUint(r.Protocol, 10, 8)
	if err != nil {
		return "", fmt.Errorf("unknown protocol %q", r.Protocol)
	}
	return fmt.Sprintf("ip protocol %d", number), nil
}

func (r Rule) matchICMP() (string, error) {
	if r.FromPort < -1 || r.FromPort > 255 || r.ToPort < -1 || r.ToPort > 255 {
		return "", fmt.Errorf("invalid ICMP type %d, code %d", r.FromPort, r.ToPort)
	}
	match := "ip protocol icmp"
	if r.FromPort >= 0 {
		match = fmt.Sprintf("icmp type %d", r.FromPort)
		if r.ToPort >= 0 {
			match += fmt.Sprintf(" icmp code %d", r.ToPort)
		}
	}
	return match, nil
}

func (r Rule) matchPorts(protocol string) (string, error) {
	if r.FromPort == -1 && r.ToPort == -1 || r.FromPort == 0 && r.ToPort == 65535 {
		return "ip protocol " + protocol, nil
	}
	if r.FromPort < 0 || r.ToPort < r.FromPort || r.ToPort > 65535 {
		return "", fmt.Errorf("invalid port range %d-%d", r.FromPort, r.ToPort)
	}
	if r.FromPort == r.ToPort {
		return fmt.Sprintf("%s dport %d", protocol, r.FromPort), nil
	}
	return fmt.Sprintf("%s dport %d-%d", protocol, r.FromPort, r.ToPort), nil
}

// renderRuleset renders the nftables ruleset of a VPC's router, to be loaded in one transaction. It
// expects a validated VPC. Everything is ordered by identifier, so that the same VPC yields the
// same bytes.
func renderRuleset(vpc VPC) string {
	r := ruleset{vpc: vpc, interfaces: sortedBy(vpc.Interfaces, func(i Interface) string { return i.ID })}
	r.line("table ip lab")
	r.line("delete table ip lab")
	r.open("table ip lab")
	r.sets()
	r.translation()
	r.sources()
	r.answers()
	r.services()
	r.silence()
	r.forwarding()
	r.groups()
	r.close()
	return r.text.String()
}

type ruleset struct {
	vpc        VPC
	interfaces []Interface
	text       strings.Builder
	depth      int
}

func (r *ruleset) line(format string, args ...any) {
	r.text.WriteString(strings.Repeat("\t", r.depth))
	fmt.Fprintf(&r.text, format, args...)
	r.text.WriteByte('\n')
}

func (r *ruleset) open(format string, args ...any) {
	r.line(format+" {", args...)
	r.depth++
}

func (r *ruleset) close() {
	r.depth--
	r.line("}")
}

// set writes a named set of the interfaces that qualify; element renders each.
func (r *ruleset) set(name, kind string, qualifies func(Interface) bool, element func(Interface) string) {
	r.open("set %s", name)
	r.line("type %s", kind)
	if elements := r.collect(qualifies, element); elements != "" {
		r.line("elements = { %s }", elements)
	}
	r.close()
}

func (r *ruleset) collect(qualifies func(Interface) bool, element func(Interface) string) string {
	var elements []string
	for _, i := range r.interfaces {
		if qualifies(i) {
			elements = append(elements, element(i))
		}
	}
	return strings.Join(elements, ", ")
}

func quotedName(i Interface) string        { return strconv.Quote(shortName(i.ID)) }
func nameAndAddr(i Interface) string       { return quotedName(i) + " . " + i.PrivateIP.String() }
func everyInterface(Interface) bool        { return true }
func unchecked(i Interface) bool           { return !i.SourceDestCheck }
func forwarder(i Interface) bool           { return i.forwards() }
func cut(i Interface) bool                 { return i.Cut }
func (r *ruleset) public(i Interface) bool { return r.vpc.InternetGateway && i.PublicIP.IsValid() }

func (r *ruleset) sets() {
	r.set("own", "ifname . ipv4_addr", everyInterface, nameAndAddr)
	r.set("public", "ifname . ipv4_addr", r.public, nameAndAddr)
	r.set("unchecked", "ifname", unchecked, quotedName)
	r.set("forwarders", "ifname", forwarder, quotedName)
	r.set("cut", "ifname", cut, quotedName)
	for _, g := range sortedBy(r.vpc.SecurityGroups, groupID) {
		r.set("members-"+g.ID, "ifname", func(i Interface) bool { return slices.Contains(i.Groups, g.ID) }, quotedName)
	}
}

func groupID(g SecurityGroup) string { return g.ID }

// translation is the internet gateway's one-to-one mapping of public addresses.
func (r *ruleset) translation() {
	inward := r.collect(r.public, func(i Interface) string { return i.PublicIP.String() + " : " + i.PrivateIP.String() })
	outward := r.collect(r.public, func(i Interface) string { return i.PrivateIP.String() + " : " + i.PublicIP.String() })
	r.open("chain inward")
	r.line("type nat hook prerouting priority dstnat; policy accept;")
	if inward != "" {
		r.line("iifname %q dnat to ip daddr map { %s }", uplinkName, inward)
	}
	r.close()
	r.open("chain outward")
	r.line("type nat hook postrouting priority srcnat; policy accept;")
	if outward != "" {
		r.line("oifname %q snat to ip saddr map { %s }", uplinkName, outward)
	}
	r.close()
}

// sources drops packets with a forged source address. NAT gateways and load balancers forge none: they also
// return the router's errors about their packets, which have the router's address.
func (r *ruleset) sources() {
	r.open("chain sources")
	r.line("type filter hook prerouting priority raw; policy drop;")
	r.line(`iifname "lo" accept`)
	r.line("iifname . ip saddr @own accept")
	r.line("iifname != %q %s accept", uplinkName, askAddress)
	r.line("iifname @forwarders accept")
	r.line("ip saddr %s drop", r.vpc.CIDR)
	r.line("iifname @unchecked accept")
	r.line("iifname %q accept", uplinkName)
	r.close()
}

// askAddress matches DHCP requests of a machine without an address.
const askAddress = "ip saddr 0.0.0.0 ip daddr 255.255.255.255 udp sport 68 udp dport 67"

// services allows interfaces to reach the resolver and the metadata service, from their own address
// only, and to get and renew that address by DHCP. Other packets to the router are dropped.
func (r *ruleset) services() {
	var addrs []string
	for _, addr := range r.vpc.services() {
		addrs = append(addrs, addr.String())
	}
	r.open("chain services")
	r.line("type filter hook input priority filter; policy drop;")
	r.line(`iifname "lo" accept`)
	r.line("iifname . ip saddr @own ip daddr { %s } accept", strings.Join(addrs, ", "))
	r.line("iifname != %q %s accept", uplinkName, askAddress)
	r.line("iifname . ip saddr @own udp sport 68 udp dport 67 accept")
	r.close()
}

// silence drops the ICMP error about a machine that does not answer ARP, because a VPC sends no
// such error.
func (r *ruleset) silence() {
	r.open("chain silence")
	r.line("type filter hook output priority filter; policy accept;")
	r.line("icmp type destination-unreachable icmp code host-unreachable drop")
	r.close()
}

// forwarding sends the first packet of a flow through the egress rules of its sender, if that is an
// interface of the VPC, and then through the ingress rules of its receiver, if that is one.
func (r *ruleset) forwarding() {
	verdicts := func(chain, uplink string) string {
		list := []string{fmt.Sprintf("%q : %s", uplinkName, uplink)}
		for _, i := range r.interfaces {
			list = append(list, fmt.Sprintf("%s : goto %s-%s", quotedName(i), chain, i.ID))
		}
		return strings.Join(list, ", ")
	}
	r.open("chain receivers")
	r.line("oifname vmap { %s }", verdicts("ingress", "accept"))
	r.line("drop")
	r.close()
	r.open("chain forwarding")
	r.line("type filter hook forward priority filter; policy drop;")
	r.line("iifname @cut drop")
	r.line("oifname @cut drop")
	r.line("oifname %q iifname . ip saddr != @public drop", uplinkName)
	r.line("oifname != %q oifname . ip daddr != @own oifname != @unchecked drop", uplinkName)
	r.line("ct state vmap { established : accept, related : accept, invalid : drop }")
	r.line("iifname vmap { %s }", verdicts("egress", "goto receivers"))
	r.close()
}

// groups writes one chain per interface and direction, which jumps to the chains of the interface's
// groups. Through a NAT gateway everything goes out, and no flow comes in from the internet. A load balancer
// without groups takes and sends everything. Within one transaction the order of chains does not matter.
func (r *ruleset) groups() {
	for _, g := range sortedBy(r.vpc.SecurityGroups, groupID) {
		r.group("ingress-"+g.ID, g.Ingress, "saddr", "iifname", "accept")
		r.group("egress-"+g.ID, g.Egress, "daddr", "oifname", "goto receivers")
	}
	for _, i := range r.interfaces {
		for _, direction := range []string{"ingress", "egress"} {
			r.open("chain %s-%s", direction, i.ID)
			for _, id := range i.Groups {
				r.line("jump %s-%s", direction, id)
			}
			switch {
			case i.NATGateway && direction == "egress":
				r.line("goto receivers")
			case i.NATGateway:
				r.line("iifname != %q accept", uplinkName)
			case i.Balancer != nil && len(i.Groups) == 0 && direction == "egress":
				r.line("goto receivers")
			case i.Balancer != nil && len(i.Groups) == 0:
				r.line("accept")
			}
			r.line("drop")
			r.close()
		}
	}
}

func (r *ruleset) group(chain string, rules []Rule, addr, name, verdict string) {
	r.open("chain %s", chain)
	for _, rule := range rules {
		var peer string
		switch {
		case rule.GroupID != "":
			if _, ok := r.vpc.group(rule.GroupID); !ok {
				continue
			}
			peer = fmt.Sprintf("%s @members-%s", name, rule.GroupID)
		case !rule.CIDR.Addr().Is4():
			continue
		case rule.CIDR.Bits() > 0:
			peer = fmt.Sprintf("ip %s %s", addr, rule.CIDR.Masked())
		}
		match, err := rule.match()
		if err != nil {
			continue // not in a validated configuration; a rule that is not rendered allows nothing
		}
		r.line("%s", strings.Join(strings.Fields(peer+" "+match+" "+verdict), " "))
	}
	r.close()
}

// sortedBy returns a sorted copy of the list.
func sortedBy[T any](list []T, key func(T) string) []T {
	sorted := slices.Clone(list)
	slices.SortFunc(sorted, func(a, b T) int { return strings.Compare(key(a), key(b)) })
	return sorted
}

// translations returns the VPC's public addresses in use, by private address.
func (v VPC) translations() map[netip.Addr]netip.Addr {
	byPrivate := map[netip.Addr]netip.Addr{}
	for _, i := range v.Interfaces {
		if v.InternetGateway && i.PublicIP.IsValid() {
			byPrivate[i.PrivateIP] = i.PublicIP
		}
	}
	return byPrivate
}
