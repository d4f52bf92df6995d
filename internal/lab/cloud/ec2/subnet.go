package ec2

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

type subnet struct {
	ID          string
	VPC         string
	CIDR        netip.Prefix
	Zone        string
	MapPublicIP bool
	Default     bool // in its zone; only a default VPC has such subnets
}

var subnetActions = map[string]action{
	"CreateSubnet":          writes(createSubnet),
	"DeleteSubnet":          writes(deleteSubnet),
	"DescribeSubnets":       reads(describeSubnets),
	"ModifySubnetAttribute": writes(modifySubnetAttribute),
}

// reservedHead and reservedTail are the numbers of addresses that AWS reserves at the start
// (network, router, DNS, future use) and end (broadcast) of every subnet.
const (
	reservedHead = 4
	reservedTail = 1
)

func size(p netip.Prefix) int { return 1 << (32 - p.Bits()) }

// nth returns the address n places after the start of p.
func nth(p netip.Prefix, n int) netip.Addr {
	base := p.Masked().Addr().As4()
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(base[:])+uint32(n))
	return netip.AddrFrom4(a)
}

func offset(p netip.Prefix, a netip.Addr) int {
	base, addr := p.Masked().Addr().As4(), a.As4()
	return int(binary.BigEndian.Uint32(addr[:]) - binary.BigEndian.Uint32(base[:]))
}

type createSubnetRequest struct {
	request
	VpcId              string
	CidrBlock          string
	AvailabilityZone   string
	AvailabilityZoneId string
	TagSpecifications  []tagSpecification `query:"TagSpecification"`
}

func createSubnet(t *tx, in *createSubnetRequest) (any, error) {
	v, err := find(t, kindVPC, t.st.VPCs, "vpcId", in.VpcId)
	if err != nil {
		return nil, err
	}
	cidr, err := parseCIDR("cidrBlock", in.CidrBlock)
	if err != nil {
		return nil, err
	}
	if cidr.Bits() > 28 || cidr.Bits() < 16 || !v.CIDR.Contains(cidr.Addr()) || cidr.Bits() < v.CIDR.Bits() {
		return nil, wire.Refuse("InvalidSubnet.Range", "The CIDR '%s' is invalid.", in.CidrBlock)
	}
	for _, s := range t.st.Subnets {
		if s.VPC == v.ID && s.CIDR.Overlaps(cidr) {
			return nil, wire.Refuse("InvalidSubnet.Conflict", "The CIDR '%s' conflicts with another subnet", in.CidrBlock)
		}
	}
	zone, err := t.c.zone(in.AvailabilityZone, in.AvailabilityZoneId, t.c.constrained)
	if err != nil {
		return nil, err
	}
	if err := checkSpecs(in.TagSpecifications, kindSubnet); err != nil {
		return nil, err
	}
	s := &subnet{ID: t.newID(kindSubnet.prefix), VPC: v.ID, CIDR: cidr, Zone: zone}
	t.st.Subnets[s.ID] = s
	if err := t.applySpecs(in.TagSpecifications, kindSubnet, s.ID); err != nil {
		return nil, err
	}
	return struct {
		Subnet subnetItem `xml:"subnet"`
	}{t.subnetItem(s)}, nil
}

// defaultSubnet returns the subnet of a launch that names none: that of the zone, or any if no zone is named. EC2 does not say how it chooses:
// here it is one whose zone offers the type, if there is one.
func (t *tx) defaultSubnet(instanceType, zone string) (*subnet, error) {
	v, err := t.vpcOrDefault(nil)
	if err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(t.defaultSubnets(zone), func(s *subnet) bool { return t.c.faults.Hidden(s.ID, t.now) })
	switch {
	case len(all) == 0 && zone != "":
		return nil, wire.Refuse("InvalidInput", "No default subnet for availability zone: '%s'.", zone)
	case len(all) == 0:
		return nil, wire.Refuse("MissingInput", "No subnets found for the default VPC '%s'. Please specify a subnet.", v.ID)
	}
	return all[max(0, slices.IndexFunc(all, func(s *subnet) bool { return t.c.offered(instanceType, s.Zone) }))], nil
}

// defaultSubnets returns the default subnets of a zone, or of all zones if none is named.
func (t *tx) defaultSubnets(zone string) []*subnet {
	return slices.DeleteFunc(sorted(t.st.Subnets), func(s *subnet) bool { return !s.Default || zone != "" && s.Zone != zone })
}

type subnetIDRequest struct {
	request
	SubnetId string
}

func deleteSubnet(t *tx, in *subnetIDRequest) (any, error) {
	s, err := find(t, kindSubnet, t.st.Subnets, "subnetId", in.SubnetId)
	if err != nil {
		return nil, err
	}
	for _, e := range t.st.Interfaces {
		if e.Subnet == s.ID {
			return nil, dependency("The subnet '%s' has dependencies and cannot be deleted.", s.ID)
		}
	}
	for _, r := range t.st.RouteTables {
		r.dissociateSubnet(s.ID)
	}
	t.drop(s.ID)
	delete(t.st.Subnets, s.ID)
	return done{true}, nil
}

type subnetItem struct {
	ID           string `xml:"subnetId"`
	ARN          string `xml:"subnetArn"`
	OwnerID      string `xml:"ownerId"`
	State        string `xml:"state"`
	VPCID        string `xml:"vpcId"`
	CIDR         string `xml:"cidrBlock"`
	Free         int    `xml:"availableIpAddressCount"`
	Zone         string `xml:"availabilityZone"`
	ZoneID       string `xml:"availabilityZoneId"`
	DefaultForAZ bool   `xml:"defaultForAz"`
	MapPublicIP  bool   `xml:"mapPublicIpOnLaunch"`
	AssignIPv6   bool   `xml:"assignIpv6AddressOnCreation"` // always false
	Tags         []tag  `xml:"tagSet>item"`
}

func (t *tx) subnetItem(s *subnet) subnetItem {
	return subnetItem{
		ID: s.ID, ARN: t.c.arn("subnet/" + s.ID), OwnerID: t.c.cfg.AccountID, State: "available",
		VPCID: s.VPC, CIDR: s.CIDR.String(), Free: t.freeAddresses(s), Zone: s.Zone, ZoneID: t.c.zoneID(s.Zone),
		DefaultForAZ: s.Default, MapPublicIP: s.MapPublicIP, Tags: t.tags(s.ID),
	}
}

func (t *tx) freeAddresses(s *subnet) int {
	n := size(s.CIDR) - reservedHead - reservedTail
	for _, e := range t.st.Interfaces {
		if e.Subnet == s.ID {
			n--
		}
	}
	return n
}

var subnetFields = fields[subnet]{
	"subnet-id":                  func(_ *tx, s *subnet) []string { return one(s.ID) },
	"vpc-id":                     func(_ *tx, s *subnet) []string { return one(s.VPC) },
	"cidr":                       func(_ *tx, s *subnet) []string { return one(s.CIDR.String()) },
	"cidr-block":                 func(_ *tx, s *subnet) []string { return one(s.CIDR.String()) },
	"cidrBlock":                  func(_ *tx, s *subnet) []string { return one(s.CIDR.String()) },
	"state":                      func(*tx, *subnet) []string { return one("available") },
	"availability-zone":          func(_ *tx, s *subnet) []string { return one(s.Zone) },
	"availabilityZone":           func(_ *tx, s *subnet) []string { return one(s.Zone) },
	"availability-zone-id":       func(t *tx, s *subnet) []string { return one(t.c.zoneID(s.Zone)) },
	"available-ip-address-count": func(t *tx, s *subnet) []string { return one(fmt.Sprint(t.freeAddresses(s))) },
	"map-public-ip-on-launch":    func(_ *tx, s *subnet) []string { return yesNo(s.MapPublicIP) },
	"default-for-az":             func(_ *tx, s *subnet) []string { return yesNo(s.Default) },
	"subnet-arn":                 func(t *tx, s *subnet) []string { return one(t.c.arn("subnet/" + s.ID)) },
	"owner-id":                   func(t *tx, _ *subnet) []string { return one(t.c.cfg.AccountID) },
}

type describeSubnetsRequest struct {
	describeRequest
	SubnetIds []string `query:"SubnetId"`
}

type describeSubnetsResponse struct {
	Subnets   []subnetItem `xml:"subnetSet>item"`
	NextToken string       `xml:"nextToken,omitempty"`
}

func describeSubnets(t *tx, in *describeSubnetsRequest) (any, error) {
	items, next, err := describe(t, selection[subnet]{kindSubnet, t.st.Subnets, "subnetId", in.SubnetIds, subnetFields, in.describeRequest, 5}, t.subnetItem)
	return describeSubnetsResponse{items, next}, err
}

type modifySubnetAttributeRequest struct {
	SubnetId                    string
	MapPublicIpOnLaunch         *boolAttribute
	AssignIpv6AddressOnCreation *boolAttribute
}

func modifySubnetAttribute(t *tx, in *modifySubnetAttributeRequest) (any, error) {
	s, err := find(t, kindSubnet, t.st.Subnets, "subnetId", in.SubnetId)
	if err != nil {
		return nil, err
	}
	switch ipv6 := in.AssignIpv6AddressOnCreation; {
	case in.MapPublicIpOnLaunch != nil && ipv6 != nil:
		return nil, wire.Refuse("InvalidParameterCombination", "Only one attribute can be modified at a time")
	case in.MapPublicIpOnLaunch != nil:
		s.MapPublicIP = in.MapPublicIpOnLaunch.Value
	case ipv6 == nil:
		return nil, missing("mapPublicIpOnLaunch")
	case ipv6.Value:
		return nil, invalidValue("Invalid value 'true' for assignIpv6AddressOnCreation. The subnet '%s' does not have an IPv6 CIDR block", s.ID)
	}
	return done{true}, nil
}
