package ec2

import (
	"net/netip"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

type vpc struct {
	ID           string
	CIDR         netip.Prefix
	DNSSupport   bool
	DNSHostnames bool
	Default      bool
}

var vpcActions = map[string]action{
	"CreateDefaultVpc":     writes(createDefaultVPC),
	"CreateVpc":            writes(createVPC),
	"DeleteVpc":            writes(deleteVPC),
	"DescribeVpcs":         reads(describeVPCs),
	"ModifyVpcAttribute":   writes(modifyVPCAttribute),
	"DescribeVpcAttribute": reads(describeVPCAttribute),
}

// parseCIDR parses an IPv4 CIDR and returns it in canonical form, as EC2 does.
func parseCIDR(parameter, s string) (netip.Prefix, error) {
	if s == "" {
		return netip.Prefix{}, missing(parameter)
	}
	p, err := netip.ParsePrefix(s)
	if err != nil || !p.Addr().Is4() {
		return netip.Prefix{}, invalidValue("Value (%s) for parameter %s is invalid. This is not a valid CIDR block.", s, parameter)
	}
	return p.Masked(), nil
}

type createVPCRequest struct {
	request
	CidrBlock                   string
	InstanceTenancy             string
	AmazonProvidedIpv6CidrBlock bool
	TagSpecifications           []tagSpecification `query:"TagSpecification"`
}

func createVPC(t *tx, in *createVPCRequest) (any, error) {
	cidr, err := parseCIDR("cidrBlock", in.CidrBlock)
	if err != nil {
		return nil, err
	}
	if cidr.Bits() < 16 || cidr.Bits() > 28 {
		return nil, wire.Refuse("InvalidVpc.Range", "The CIDR '%s' is invalid.", in.CidrBlock)
	}
	if in.AmazonProvidedIpv6CidrBlock {
		return nil, invalidValue("Value (true) for parameter amazonProvidedIpv6CidrBlock is invalid. The local EC2 has IPv4 only.")
	}
	if in.InstanceTenancy != "" && in.InstanceTenancy != "default" {
		return nil, invalidValue("Value (%s) for parameter instanceTenancy is invalid.", in.InstanceTenancy)
	}
	if err := checkSpecs(in.TagSpecifications, kindVPC); err != nil {
		return nil, err
	}
	v, _, err := t.newVPC(cidr)
	if err != nil {
		return nil, err
	}
	if err := t.applySpecs(in.TagSpecifications, kindVPC, v.ID); err != nil {
		return nil, err
	}
	return vpcResponse{t.vpcItem(v)}, nil
}

type vpcResponse struct {
	VPC vpcItem `xml:"vpc"`
}

// newVPC makes a VPC with its main route table and its default group.
func (t *tx) newVPC(cidr netip.Prefix) (*vpc, *routeTable, error) {
	if len(t.st.VPCs) >= t.c.cfg.Quotas.VPCs {
		return nil, nil, wire.Refuse("VpcLimitExceeded", "The maximum number of VPCs has been reached.")
	}
	v := &vpc{ID: t.newID(kindVPC.prefix), CIDR: cidr, DNSSupport: true}
	t.st.VPCs[v.ID] = v
	g := t.newGroup(v.ID, defaultGroupName, "default VPC security group")
	t.newRule(rule{GroupID: g.ID, Protocol: "-1", From: -1, To: -1, RefGroup: g.ID})
	return v, t.newRouteTable(v, true), nil
}

// What AWS gives a default VPC: no request can choose it.
// https://docs.aws.amazon.com/vpc/latest/userguide/default-vpc-components.html
var (
	defaultVPCCIDR    = netip.MustParsePrefix("172.31.0.0/16")
	defaultSubnetBits = 20
	everywhere        = netip.MustParsePrefix("0.0.0.0/0")
)

// createDefaultVPC makes what an account of AWS has in each region from the beginning: a VPC with a public subnet in each availability
// zone. An account of the local EC2 begins without one, as if somebody had deleted it.
func createDefaultVPC(t *tx, _ *request) (any, error) {
	if t.defaultVPC() != nil {
		return nil, wire.Refuse("DefaultVpcAlreadyExists", "A Default VPC already exists for this account in this region.")
	}
	v, main, err := t.newVPC(defaultVPCCIDR)
	if err != nil {
		return nil, err
	}
	v.Default, v.DNSHostnames = true, true
	g, err := t.newGateway()
	if err != nil {
		return nil, err
	}
	g.VPC = v.ID
	main.Routes = append(main.Routes, route{Destination: everywhere, Gateway: g.ID, Origin: "CreateRoute"})
	for n, zone := range slices.DeleteFunc(t.c.zones(), t.c.constrained) {
		start := nth(v.CIDR, n<<(32-defaultSubnetBits))
		s := &subnet{ID: t.newID(kindSubnet.prefix), VPC: v.ID, CIDR: netip.PrefixFrom(start, defaultSubnetBits), Zone: zone, MapPublicIP: true, Default: true}
		t.st.Subnets[s.ID] = s
	}
	return vpcResponse{t.vpcItem(v)}, nil
}

// defaultVPC returns the default VPC, nil if there is none. It may be hidden.
func (t *tx) defaultVPC() *vpc {
	for _, v := range t.st.VPCs {
		if v.Default {
			return v
		}
	}
	return nil
}

// vpcOrDefault returns the VPC that a request gives, and the default VPC if it gives none.
func (t *tx) vpcOrDefault(id *string) (*vpc, error) {
	return findOr(t, kindVPC, t.st.VPCs, "vpcId", id, func() (*vpc, error) {
		if v := t.defaultVPC(); v != nil && !t.c.faults.Hidden(v.ID, t.now) {
			return v, nil
		}
		return nil, wire.Refuse("VPCIdNotSpecified", "No default VPC for this user")
	})
}

type vpcIDRequest struct {
	request
	VpcId string
}

// deleteVPC also deletes the default security group and the main route table. Everything else must
// have been deleted.
func deleteVPC(t *tx, in *vpcIDRequest) (any, error) {
	v, err := find(t, kindVPC, t.st.VPCs, "vpcId", in.VpcId)
	if err != nil {
		return nil, err
	}
	inUse := dependency("The vpc '%s' has dependencies and cannot be deleted.", v.ID)
	for _, s := range t.st.Subnets {
		if s.VPC == v.ID {
			return nil, inUse
		}
	}
	for _, g := range t.st.Gateways {
		if g.VPC == v.ID {
			return nil, inUse
		}
	}
	for _, r := range t.st.RouteTables {
		if r.VPC == v.ID && !r.main() {
			return nil, inUse
		}
	}
	for _, g := range t.st.Groups {
		if g.VPC == v.ID && g.Name != defaultGroupName {
			return nil, inUse
		}
	}
	for id, a := range t.networkACLs() {
		if a.VPC == v.ID {
			t.drop(id)
		}
	}
	for id, r := range t.st.RouteTables {
		if r.VPC == v.ID {
			t.drop(id)
			delete(t.st.RouteTables, id)
		}
	}
	for id, g := range t.st.Groups {
		if g.VPC == v.ID {
			t.dropGroup(id)
		}
	}
	t.drop(v.ID)
	delete(t.st.VPCs, v.ID)
	return done{true}, nil
}

// drop deletes the tags of a resource that is being deleted.
func (t *tx) drop(id string) { delete(t.st.Tags, id) }

type vpcItem struct {
	ID              string      `xml:"vpcId"`
	OwnerID         string      `xml:"ownerId"`
	State           string      `xml:"state"`
	CIDR            string      `xml:"cidrBlock"`
	CIDRs           []cidrAssoc `xml:"cidrBlockAssociationSet>item"`
	DHCPOptionsID   string      `xml:"dhcpOptionsId"`
	InstanceTenancy string      `xml:"instanceTenancy"`
	IsDefault       bool        `xml:"isDefault"`
	Tags            []tag       `xml:"tagSet>item"`
}

type cidrAssoc struct {
	CIDR  string `xml:"cidrBlock"`
	ID    string `xml:"associationId"`
	State string `xml:"cidrBlockState>state"`
}

func (t *tx) vpcItem(v *vpc) vpcItem {
	return vpcItem{
		ID: v.ID, OwnerID: t.c.cfg.AccountID, State: "available", CIDR: v.CIDR.String(),
		CIDRs:         []cidrAssoc{{v.CIDR.String(), "vpc-cidr-assoc" + v.ID[len(kindVPC.prefix):], "associated"}},
		DHCPOptionsID: t.c.defaultDHCPOptions().ID, InstanceTenancy: "default", IsDefault: v.Default, Tags: t.tags(v.ID),
	}
}

var vpcFields = fields[vpc]{
	"vpc-id":                            func(_ *tx, v *vpc) []string { return one(v.ID) },
	"cidr":                              func(_ *tx, v *vpc) []string { return one(v.CIDR.String()) },
	"cidr-block":                        func(_ *tx, v *vpc) []string { return one(v.CIDR.String()) },
	"cidrBlock":                         func(_ *tx, v *vpc) []string { return one(v.CIDR.String()) },
	"cidr-block-association.cidr-block": func(_ *tx, v *vpc) []string { return one(v.CIDR.String()) },
	"state":                             func(*tx, *vpc) []string { return one("available") },
	"is-default":                        func(_ *tx, v *vpc) []string { return yesNo(v.Default) },
	"isDefault":                         func(_ *tx, v *vpc) []string { return yesNo(v.Default) },
	"dhcp-options-id":                   func(t *tx, _ *vpc) []string { return one(t.c.defaultDHCPOptions().ID) },
	"owner-id":                          func(t *tx, _ *vpc) []string { return one(t.c.cfg.AccountID) },
}

type describeVPCsRequest struct {
	describeRequest
	VpcIds []string `query:"VpcId"`
}

type describeVPCsResponse struct {
	VPCs      []vpcItem `xml:"vpcSet>item"`
	NextToken string    `xml:"nextToken,omitempty"`
}

func describeVPCs(t *tx, in *describeVPCsRequest) (any, error) {
	items, next, err := describe(t, selection[vpc]{kindVPC, t.st.VPCs, "vpcId", in.VpcIds, vpcFields, in.describeRequest, 5}, t.vpcItem)
	return describeVPCsResponse{items, next}, err
}

// boolAttribute and stringAttribute are attributes in responses, wrapped in a value.
type boolAttribute struct {
	Value bool `xml:"value"`
}

type stringAttribute struct {
	Value string `xml:"value,omitempty"`
}

type modifyVPCAttributeRequest struct {
	VpcId                            string
	EnableDnsSupport                 *boolAttribute
	EnableDnsHostnames               *boolAttribute
	EnableNetworkAddressUsageMetrics *boolAttribute
}

func modifyVPCAttribute(t *tx, in *modifyVPCAttributeRequest) (any, error) {
	v, err := find(t, kindVPC, t.st.VPCs, "vpcId", in.VpcId)
	if err != nil {
		return nil, err
	}
	if in.EnableDnsSupport != nil && in.EnableDnsHostnames != nil {
		return nil, wire.Refuse("InvalidParameterCombination", "Only one attribute can be modified at a time")
	}
	switch {
	case in.EnableDnsSupport != nil:
		v.DNSSupport = in.EnableDnsSupport.Value
	case in.EnableDnsHostnames != nil:
		if in.EnableDnsHostnames.Value && !v.DNSSupport {
			return nil, invalidValue("enableDnsHostnames cannot be set to true while enableDnsSupport is false")
		}
		v.DNSHostnames = in.EnableDnsHostnames.Value
	case in.EnableNetworkAddressUsageMetrics == nil:
		return nil, missing("enableDnsSupport or enableDnsHostnames")
	}
	return done{true}, nil
}

type describeVPCAttributeRequest struct {
	request
	VpcId     string
	Attribute string
}

type vpcAttributeResponse struct {
	VPCID        string         `xml:"vpcId"`
	DNSSupport   *boolAttribute `xml:"enableDnsSupport,omitempty"`
	DNSHostnames *boolAttribute `xml:"enableDnsHostnames,omitempty"`
	UsageMetrics *boolAttribute `xml:"enableNetworkAddressUsageMetrics,omitempty"`
}

func describeVPCAttribute(t *tx, in *describeVPCAttributeRequest) (any, error) {
	v, err := find(t, kindVPC, t.st.VPCs, "vpcId", in.VpcId)
	if err != nil {
		return nil, err
	}
	out := vpcAttributeResponse{VPCID: v.ID}
	switch in.Attribute {
	case "enableDnsSupport":
		out.DNSSupport = &boolAttribute{v.DNSSupport}
	case "enableDnsHostnames":
		out.DNSHostnames = &boolAttribute{v.DNSHostnames}
	case "enableNetworkAddressUsageMetrics":
		out.UsageMetrics = &boolAttribute{}
	case "":
		return nil, missing("attribute")
	default:
		return nil, invalidValue("Value (%s) for parameter attribute is invalid. Unknown attribute.", in.Attribute)
	}
	return out, nil
}
