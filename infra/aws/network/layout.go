package network

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// NATGateways says how machines without a public address reach the internet.
type NATGateways string

const (
	// NoNATGateways: all subnets are public. A machine without a public address does not reach the
	// internet.
	NoNATGateways NATGateways = ""
	// OneNATGateway: each zone has a private subnet and a public one. The private subnets share the
	// NAT gateway of the first zone.
	OneNATGateway NATGateways = "one"
	// NATGatewayPerZone: as OneNATGateway, but every zone has a NAT gateway of its own.
	NATGatewayPerZone NATGateways = "per_zone"
)

// MaxZones is the largest number of availability zones of a network: no region has more.
const MaxZones = 6

// place is a subnet that the specification wants.
type place struct {
	zone   int // which of Spec.Zones
	public bool
	cidr   netip.Prefix
}

// zones returns the wanted zones: one to be chosen if none are specified.
func (s Spec) zones() []string {
	if len(s.Zones) == 0 {
		return []string{""}
	}
	return s.Zones
}

// places returns the subnets of a VPC of our own: one for the machines in each zone, then the public
// ones beside private ones.
func (s Spec) places() []place {
	var out []place
	private := s.NATGateways != NoNATGateways
	for zone := range s.zones() {
		out = append(out, place{zone, !private, nthPrefix(s.NodeCIDR, zone)})
	}
	if private {
		for zone := range s.zones() {
			out = append(out, place{zone, true, nthPrefix(s.PublicCIDR, zone)})
		}
	}
	return out
}

// name returns the subnet's name in the cluster: "node-0", or "public-0" beside a private one.
func (s Spec) name(p place) string {
	if p.public && s.NATGateways != NoNATGateways {
		return fmt.Sprintf("public-%d", p.zone)
	}
	return fmt.Sprintf("node-%d", p.zone)
}

// publicTable is the name of the route table that all public subnets share.
const publicTable = "public"

// table returns the name of the subnet's route table.
func (p place) table() string {
	if p.public {
		return publicTable
	}
	return fmt.Sprintf("private-%d", p.zone)
}

// tables returns the names of the wanted route tables. natOf says which zone's NAT gateway the
// default route of a private one leads to.
func (s Spec) tables() (names []string, natOf map[string]int) {
	names, natOf = []string{publicTable}, map[string]int{}
	for _, p := range s.places() {
		if p.public {
			continue
		}
		names = append(names, p.table())
		natOf[p.table()] = p.zone
		if s.NATGateways == OneNATGateway {
			natOf[p.table()] = 0
		}
	}
	return names, natOf
}

// natZones returns the zones with a NAT gateway.
func (s Spec) natZones() []int {
	switch s.NATGateways {
	case OneNATGateway:
		return []int{0}
	case NATGatewayPerZone:
		out := make([]int, len(s.zones()))
		for zone := range s.zones() {
			out[zone] = zone
		}
		return out
	}
	return nil
}

// natName is the name of a zone's NAT gateway and of its Elastic IP.
func natName(zone int) string { return fmt.Sprintf("nat-%d", zone) }

// nthPrefix returns the n-th network of the same size after p; an invalid one if p is or the IPv4
// addresses end before it.
func nthPrefix(p netip.Prefix, n int) netip.Prefix {
	if !p.IsValid() || !p.Addr().Is4() {
		return netip.Prefix{}
	}
	first := p.Masked().Addr().As4()
	at := uint64(binary.BigEndian.Uint32(first[:])) + uint64(n)<<(32-p.Bits())
	if at > 1<<32-1 {
		return netip.Prefix{}
	}
	binary.BigEndian.PutUint32(first[:], uint32(at))
	return netip.PrefixFrom(netip.AddrFrom4(first), p.Bits())
}

// PlannedSubnets returns the subnets that a network is going to have, without ids and in the order of
// Network.Subnets. Networks that depend on something unknown are invalid, and zones that are to be chosen are
// empty.
func PlannedSubnets(spec Spec) []Subnet {
	var out []Subnet
	for _, p := range spec.places() {
		out = append(out, Subnet{CIDR: p.cidr, AvailabilityZone: spec.zones()[p.zone], Public: p.public})
	}
	return out
}

// PlannedNATGateways returns how many NAT gateways a network is going to have.
func PlannedNATGateways(spec Spec) int { return len(spec.natZones()) }

// DefaultPublicCIDR returns the network of the first public subnet beside private ones: of the size of
// node, in the middle of vpc. It is invalid if node is no smaller than half of vpc.
func DefaultPublicCIDR(vpc, node netip.Prefix) netip.Prefix {
	if !vpc.IsValid() || !node.IsValid() || node.Bits() <= vpc.Bits() {
		return netip.Prefix{}
	}
	return nthPrefix(netip.PrefixFrom(vpc.Masked().Addr(), node.Bits()), 1<<(node.Bits()-vpc.Bits()-1))
}

// CheckSubnets returns errors for subnets outside of their VPC and for those that overlap. It ignores
// values that are not known.
func CheckSubnets(spec Spec) (errs invalid.Fields) {
	if !spec.VPCCIDR.IsValid() {
		return nil
	}
	places := spec.places()
	for i, p := range places {
		field, base := "node_cidr", spec.NodeCIDR
		if p.public && spec.NATGateways != NoNATGateways {
			field, base = "public_cidr", spec.PublicCIDR
		}
		if !base.IsValid() {
			continue
		}
		which := ""
		if p.zone > 0 {
			which = fmt.Sprintf(", the network of zone %d after %s,", p.zone+1, base)
		}
		if !p.cidr.IsValid() {
			errs.Say(field, "Network outside its range", "There is no network for zone %d after %s.", p.zone+1, base)
			continue
		}
		if p.cidr.Bits() < spec.VPCCIDR.Bits() || !spec.VPCCIDR.Contains(p.cidr.Addr()) {
			errs.Say(field, "Network outside its range", "%s%s does not lie within %s.", p.cidr, which, spec.VPCCIDR)
			continue
		}
		for _, other := range places[:i] {
			if other.cidr.IsValid() && other.cidr.Overlaps(p.cidr) {
				errs.Say(field, "Overlapping networks", "%s%s overlaps %s, the network of the machines in zone %d.", p.cidr, which, other.cidr, other.zone+1)
				break
			}
		}
	}
	return errs
}

// readLayout sets the subnets, zones and NAT gateways of the specification to those that were found, by
// their names.
func (s *snapshot) readLayout(spec *Spec) {
	found := map[string]types.Subnet{}
	for _, n := range s.subnets {
		found[aws.TagMap(n.Tags)[aws.TagResource]] = n
	}
	network := func(name string) netip.Prefix {
		p, _ := netip.ParsePrefix(sdk.ToString(found[name].CidrBlock))
		return p
	}
	spec.Zones = nil
	for zone := 0; ; zone++ {
		n, exists := found[fmt.Sprintf("node-%d", zone)]
		if !exists {
			break
		}
		spec.Zones = append(spec.Zones, sdk.ToString(n.AvailabilityZone))
	}
	spec.NodeCIDR, spec.PublicCIDR = network("node-0"), network("public-0")
	switch {
	case !spec.PublicCIDR.IsValid():
		spec.NATGateways = NoNATGateways
	case len(s.natGateways()) > 1:
		spec.NATGateways = NATGatewayPerZone
	default:
		spec.NATGateways = OneNATGateway
	}
}
