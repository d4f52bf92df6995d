package ec2

import (
	"cmp"
	"net/netip"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// address is an Elastic IP; Interface is empty while it is not associated.
type address struct {
	ID            string
	PublicIP      netip.Addr
	AssociationID string
	Interface     string
	BorderGroup   string // where it can be used: the region, or the group of a Local Zone
}

var addressActions = map[string]action{
	"DescribeAddressesAttribute": reads(describeAddressesAttribute),
	"AllocateAddress":            writes(allocateAddress),
	"AssociateAddress":           writes(associateAddress),
	"DisassociateAddress":        writes(disassociateAddress),
	"ReleaseAddress":             writes(releaseAddress),
	"DescribeAddresses":          reads(describeAddresses),
}

func (a *address) allocation() string {
	if a == nil {
		return ""
	}
	return a.ID
}

func (a *address) association() string {
	if a == nil {
		return ""
	}
	return a.AssociationID
}

// addressOf returns the Elastic IP associated with an interface, or nil.
func (t *tx) addressOf(interfaceID string) *address {
	for _, a := range t.st.Addresses {
		if a.Interface == interfaceID && interfaceID != "" {
			return a
		}
	}
	return nil
}

// publicIP returns an interface's public address; zero if it has none.
func (t *tx) publicIP(e *iface) netip.Addr {
	if a := t.addressOf(e.ID); a != nil {
		return a.PublicIP
	}
	return e.PublicIP
}

// takePublicIP assigns public addresses in turn, so that a released one is not reused at once: a
// stopped instance starts with another one, as on EC2.
func (t *tx) takePublicIP() (netip.Addr, bool) {
	used := map[netip.Addr]bool{}
	for _, a := range t.st.Addresses {
		used[a.PublicIP] = true
	}
	for _, e := range t.st.Interfaces {
		used[e.PublicIP] = true
	}
	pool := t.c.cfg.PublicIPs
	for range pool {
		t.st.PublicTurn = (t.st.PublicTurn + 1) % len(pool)
		if a := pool[t.st.PublicTurn]; !used[a] {
			return a, true
		}
	}
	return netip.Addr{}, false
}

type allocateAddressRequest struct {
	request
	Domain             string
	Address            string
	NetworkBorderGroup string
	PublicIpv4Pool     string
	TagSpecifications  []tagSpecification `query:"TagSpecification"`
}

type allocateAddressResponse struct {
	PublicIP    string `xml:"publicIp"`
	ID          string `xml:"allocationId"`
	Domain      string `xml:"domain"`
	BorderGroup string `xml:"networkBorderGroup"`
	Pool        string `xml:"publicIpv4Pool"`
}

func allocateAddress(t *tx, in *allocateAddressRequest) (any, error) {
	switch {
	case in.Domain != "" && in.Domain != "vpc":
		return nil, invalidValue("Invalid value '%s' for domain.", in.Domain)
	case in.Address != "":
		return nil, wire.Refuse("InvalidAddress.NotFound", "Address '%s' not found.", in.Address)
	case in.NetworkBorderGroup != "" && in.NetworkBorderGroup != t.c.cfg.Region && in.NetworkBorderGroup != t.c.localGroup():
		return nil, invalidValue("Invalid value '%s' for networkBorderGroup.", in.NetworkBorderGroup)
	case in.PublicIpv4Pool != "" && in.PublicIpv4Pool != "amazon":
		return nil, wire.Refuse("InvalidPublicIpv4PoolID.NotFound", "The pool ID '%s' does not exist", in.PublicIpv4Pool)
	}
	if err := checkSpecs(in.TagSpecifications, kindAddress); err != nil {
		return nil, err
	}
	ip, ok := t.takePublicIP()
	if !ok || len(t.st.Addresses) >= t.c.cfg.Quotas.Addresses {
		return nil, wire.Refuse("AddressLimitExceeded", "The maximum number of addresses has been reached.")
	}
	a := &address{ID: t.newID(kindAddress.prefix), PublicIP: ip, BorderGroup: cmp.Or(in.NetworkBorderGroup, t.c.cfg.Region)}
	t.st.Addresses[a.ID] = a
	if err := t.applySpecs(in.TagSpecifications, kindAddress, a.ID); err != nil {
		return nil, err
	}
	return allocateAddressResponse{ip.String(), a.ID, "vpc", a.BorderGroup, "amazon"}, nil
}

// address returns the Elastic IP with an allocation id or a public address.
func (t *tx) address(allocationID, publicIP string) (*address, error) {
	switch {
	case allocationID != "" && publicIP != "":
		return nil, wire.Refuse("InvalidParameterCombination", "You may specify public IP or allocation id, but not both in the same call")
	case allocationID == "" && publicIP == "":
		return nil, missing("allocationId or publicIp")
	case publicIP != "":
		for _, a := range t.st.Addresses {
			if a.PublicIP.String() == publicIP {
				return a, nil
			}
		}
		return nil, wire.Refuse("InvalidAddress.NotFound", "Address '%s' not found.", publicIP)
	}
	return find(t, kindAddress, t.st.Addresses, "allocationId", allocationID)
}

type associateAddressRequest struct {
	request
	AllocationId       string
	PublicIp           string
	InstanceId         string
	NetworkInterfaceId string
	PrivateIpAddress   string
	AllowReassociation *bool
}

func associateAddress(t *tx, in *associateAddressRequest) (any, error) {
	a, err := t.address(in.AllocationId, in.PublicIp)
	if err != nil {
		return nil, err
	}
	e, err := t.associationTarget(in)
	if err != nil {
		return nil, err
	}
	for _, e := range []*iface{e, t.st.Interfaces[a.Interface]} {
		if err := managed(e); err != nil {
			return nil, err
		}
	}
	if in.PrivateIpAddress != "" && in.PrivateIpAddress != e.PrivateIP.String() {
		return nil, invalidValue("The private IP address %s is not assigned to interface %s", in.PrivateIpAddress, e.ID)
	}
	if t.gatewayOf(e.VPC) == nil {
		return nil, wire.Refuse("Gateway.NotAttached", "Network %s is not attached to any internet gateway", e.VPC)
	}
	if a.BorderGroup != t.c.borderGroup(t.st.Subnets[e.Subnet].Zone) {
		return nil, differentGroups("Elastic IP")
	}
	if a.Interface == e.ID {
		return associateAddressResponse{true, a.AssociationID}, nil
	}
	reassociate := in.AllowReassociation == nil || *in.AllowReassociation
	other := t.addressOf(e.ID)
	switch {
	case a.Interface != "" && !reassociate:
		return nil, wire.Refuse("Resource.AlreadyAssociated", "resource %s is already associated with associate-id %s", a.ID, a.AssociationID)
	case other != nil && !reassociate:
		return nil, wire.Refuse("Resource.AlreadyAssociated", "resource %s is already associated with associate-id %s", e.ID, other.AssociationID)
	}
	if other != nil {
		other.Interface, other.AssociationID = "", ""
	}
	e.PublicIP = netip.Addr{} // an address given at launch goes back to EC2's pool
	a.Interface, a.AssociationID = e.ID, t.newID("eipassoc")
	return associateAddressResponse{true, a.AssociationID}, nil
}

// differentGroups refuses an address in a zone of another border group. The words are those about a NAT gateway.
// https://github.com/awslabs/crossplane-on-eks/issues/210
func differentGroups(what string) error {
	return wire.Refuse("OperationNotPermitted", "%s and subnet belong in different network border groups.", what)
}

type associateAddressResponse struct {
	Return        bool   `xml:"return"`
	AssociationID string `xml:"associationId"`
}

func (t *tx) associationTarget(in *associateAddressRequest) (*iface, error) {
	switch {
	case in.InstanceId != "" && in.NetworkInterfaceId != "":
		return nil, wire.Refuse("InvalidParameterCombination", "You may specify an instance id or a network interface id, but not both")
	case in.InstanceId == "" && in.NetworkInterfaceId == "":
		return nil, wire.Refuse("MissingParameter", "Either instance ID or network interface id must be specified")
	case in.NetworkInterfaceId != "":
		return find(t, kindInterface, t.st.Interfaces, "networkInterfaceId", in.NetworkInterfaceId)
	}
	i, err := find(t, kindInstance, t.st.Instances, "instanceId", in.InstanceId)
	if err != nil {
		return nil, err
	}
	switch i.State {
	case statePending:
		return nil, invalidInstance("The pending instance '%s' is not in a valid state for this operation.", i.ID)
	case stateShuttingDown, stateTerminated:
		return nil, invalidInstance("The instance '%s' is not in a valid state for this operation.", i.ID)
	}
	return t.st.Interfaces[i.Interface], nil
}

func invalidInstance(format string, args ...any) error {
	return wire.Refuse("InvalidInstanceID", format, args...)
}

type disassociateAddressRequest struct {
	request
	AssociationId string
	PublicIp      string
}

func disassociateAddress(t *tx, in *disassociateAddressRequest) (any, error) {
	if in.PublicIp != "" {
		a, err := t.address("", in.PublicIp)
		if err != nil {
			return nil, err
		}
		if a.Interface == "" {
			return nil, wire.Refuse("InvalidAssociationID.NotFound", "The address '%s' is not associated", in.PublicIp)
		}
		return t.disassociate(a)
	}
	if in.AssociationId == "" {
		return nil, missing("associationId")
	}
	for _, a := range t.st.Addresses {
		if a.AssociationID == in.AssociationId && !t.c.faults.Hidden(in.AssociationId, t.now) {
			return t.disassociate(a)
		}
	}
	return nil, wire.Refuse("InvalidAssociationID.NotFound", "The association ID '%s' does not exist", in.AssociationId)
}

func (t *tx) disassociate(a *address) (any, error) {
	if err := managed(t.st.Interfaces[a.Interface]); err != nil {
		return nil, err
	}
	a.Interface, a.AssociationID = "", ""
	return done{true}, nil
}

type releaseAddressRequest struct {
	request
	AllocationId       string
	PublicIp           string
	NetworkBorderGroup string
}

func releaseAddress(t *tx, in *releaseAddressRequest) (any, error) {
	if in.PublicIp != "" {
		return nil, wire.Refuse("InvalidParameterValue", "You must specify an allocation id when releasing a VPC elastic IP address")
	}
	a, err := t.address(in.AllocationId, "")
	if err != nil {
		return nil, err
	}
	if in.NetworkBorderGroup != "" && in.NetworkBorderGroup != a.BorderGroup {
		return nil, wire.Refuse("InvalidAddress.NotFound", "Address '%s' not found.", a.PublicIP)
	}
	if a.Interface != "" {
		return nil, wire.Refuse("InvalidIPAddress.InUse", "Address %s is in use.", a.PublicIP)
	}
	if err := t.keptByNATGateway(a); err != nil {
		return nil, err
	}
	t.drop(a.ID)
	delete(t.st.Addresses, a.ID)
	return done{true}, nil
}

type addressItem struct {
	PublicIP         string `xml:"publicIp"`
	AllocationID     string `xml:"allocationId"`
	Domain           string `xml:"domain"`
	InstanceID       string `xml:"instanceId,omitempty"`
	AssociationID    string `xml:"associationId,omitempty"`
	InterfaceID      string `xml:"networkInterfaceId,omitempty"`
	InterfaceOwnerID string `xml:"networkInterfaceOwnerId,omitempty"`
	PrivateIP        string `xml:"privateIpAddress,omitempty"`
	BorderGroup      string `xml:"networkBorderGroup"`
	Pool             string `xml:"publicIpv4Pool"`
	Tags             []tag  `xml:"tagSet>item"`
}

func (t *tx) addressItem(a *address) addressItem {
	item := addressItem{
		PublicIP: a.PublicIP.String(), AllocationID: a.ID, Domain: "vpc", AssociationID: a.AssociationID,
		InterfaceID: a.Interface, BorderGroup: a.BorderGroup, Pool: "amazon", Tags: t.tags(a.ID),
	}
	if e := t.st.Interfaces[a.Interface]; e != nil {
		item.InstanceID, item.PrivateIP, item.InterfaceOwnerID = e.Instance, e.PrivateIP.String(), t.c.cfg.AccountID
	}
	return item
}

func ofAddress(f func(addressItem) string) func(*tx, *address) []string {
	return func(t *tx, a *address) []string { return one(f(t.addressItem(a))) }
}

var addressFields = fields[address]{
	"allocation-id":              ofAddress(func(a addressItem) string { return a.AllocationID }),
	"association-id":             ofAddress(func(a addressItem) string { return a.AssociationID }),
	"domain":                     ofAddress(func(a addressItem) string { return a.Domain }),
	"instance-id":                ofAddress(func(a addressItem) string { return a.InstanceID }),
	"network-border-group":       ofAddress(func(a addressItem) string { return a.BorderGroup }),
	"network-interface-id":       ofAddress(func(a addressItem) string { return a.InterfaceID }),
	"network-interface-owner-id": ofAddress(func(a addressItem) string { return a.InterfaceOwnerID }),
	"private-ip-address":         ofAddress(func(a addressItem) string { return a.PrivateIP }),
	"public-ip":                  ofAddress(func(a addressItem) string { return a.PublicIP }),
}

type describeAddressesRequest struct {
	request
	Filters       []filter `query:"Filter"`
	AllocationIds []string `query:"AllocationId"`
	PublicIps     []string `query:"PublicIp"`
}

type describeAddressesResponse struct {
	Addresses []addressItem `xml:"addressesSet>item"`
}

func describeAddresses(t *tx, in *describeAddressesRequest) (any, error) {
	ids := in.AllocationIds
	for _, ip := range in.PublicIps {
		a, err := t.address("", ip)
		if err != nil {
			return nil, err
		}
		ids = append(ids, a.ID)
	}
	request := describeRequest{Filters: in.Filters}
	items, _, err := describe(t, selection[address]{kindAddress, t.st.Addresses, "allocationId", ids, addressFields, request, 0}, t.addressItem)
	return describeAddressesResponse{items}, err
}

type addressAttributeRequest struct {
	request
	AllocationIds []string `query:"AllocationId"`
	Attribute     string
	MaxResults    *int
	NextToken     string
}

// addressAttributeItem is an address without a reverse DNS record: none can be made here.
type addressAttributeItem struct {
	PublicIP     string `xml:"publicIp"`
	AllocationID string `xml:"allocationId"`
}

type addressAttributeResponse struct {
	Addresses []addressAttributeItem `xml:"addressSet>item"`
	NextToken string                 `xml:"nextToken,omitempty"`
}

func describeAddressesAttribute(t *tx, in *addressAttributeRequest) (any, error) {
	if in.Attribute != "" && in.Attribute != "domain-name" {
		return nil, invalidValue("Value (%s) for parameter attribute is invalid. Unknown attribute.", in.Attribute)
	}
	items, next, err := describe(t, selection[address]{
		kindAddress, t.st.Addresses, "allocationId", in.AllocationIds, nil, describeRequest{MaxResults: in.MaxResults, NextToken: in.NextToken}, 1,
	}, func(a *address) addressAttributeItem { return addressAttributeItem{a.PublicIP.String(), a.ID} })
	return addressAttributeResponse{items, next}, err
}
