package ec2

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/ec2/awserr"
)

// iface is a network interface. Each is made with an instance, which is empty
// for one that outlives it (delete on termination off).
type iface struct {
	ID                  string
	VPC                 string
	Subnet              string
	Instance            string
	AttachmentID        string
	AttachTime          time.Time
	DeleteOnTermination bool
	Description         string
	MAC                 string
	PrivateIP           netip.Addr
	AutoPublic          bool       // gets a public address at each start
	PublicIP            netip.Addr // the address it got so; zero while it has none
	SourceDestCheck     bool
	Groups              []string
}

var interfaceActions = map[string]action{
	"DescribeNetworkInterfaces":         reads(describeInterfaces),
	"DescribeNetworkInterfaceAttribute": reads(describeInterfaceAttribute),
	"ModifyNetworkInterfaceAttribute":   writes(modifyInterfaceAttribute),
	"DeleteNetworkInterface":            writes(deleteInterface),
}

// takeAddress returns the address asked for, or the lowest free one of the subnet.
func (t *tx) takeAddress(s *subnet, want string) (netip.Addr, error) {
	used := map[netip.Addr]bool{}
	for _, e := range t.st.Interfaces {
		if e.Subnet == s.ID {
			used[e.PrivateIP] = true
		}
	}
	first, last := reservedHead, size(s.CIDR)-1-reservedTail
	if want == "" {
		for n := first; n <= last; n++ {
			if a := nth(s.CIDR, n); !used[a] {
				return a, nil
			}
		}
		return netip.Addr{}, awserr.New("InsufficientFreeAddressesInSubnet", "There are not enough free addresses in subnet '%s' to satisfy the requested number of instances.", s.ID)
	}
	a, err := netip.ParseAddr(want)
	if err != nil || !a.Is4() {
		return netip.Addr{}, invalidValue("Value (%s) for parameter privateIpAddress is invalid.", want)
	}
	if !s.CIDR.Contains(a) {
		return netip.Addr{}, invalidValue("Address %s does not fall within the subnet's address range", a)
	}
	if n := offset(s.CIDR, a); n < first || n > last {
		return netip.Addr{}, invalidValue("Address %s is in subnet's reserved address range", a)
	}
	if used[a] {
		return netip.Addr{}, awserr.New("InvalidIPAddress.InUse", "Address %s is in use.", a)
	}
	return a, nil
}

// checkGroups looks security groups of a VPC up.
func (t *tx) checkGroups(vpcID string, ids []string) error {
	for i, id := range ids {
		g, err := find(t, kindGroup, t.st.Groups, "groupId", id)
		if err != nil {
			return err
		}
		if g.VPC != vpcID {
			return invalidValue("You have specified two resources that belong to different networks.")
		}
		if slices.Contains(ids[:i], id) {
			return awserr.New("InvalidParameterValue", "The security group '%s' is specified more than once", id)
		}
	}
	if n := t.c.cfg.Quotas.GroupsPerInterface; len(ids) > n {
		return awserr.New("SecurityGroupsPerInterfaceLimitExceeded", "The maximum number of security groups per interface has been reached.")
	}
	return nil
}

// defaultGroup is the id of a VPC's default security group.
func (t *tx) defaultGroup(vpcID string) string {
	for _, g := range t.st.Groups {
		if g.VPC == vpcID && g.Name == defaultGroupName {
			return g.ID
		}
	}
	return ""
}

// mac derives a locally administered address from the private one; it is
// unique within the VPC.
func mac(a netip.Addr) string {
	b := a.As4()
	return fmt.Sprintf("02:0e:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3])
}

func (t *tx) privateDNS(a netip.Addr) string {
	return PrivateDNSName(t.c.cfg.Region, a)
}

// PrivateDNSName is the name EC2 gives a private address.
func PrivateDNSName(region string, a netip.Addr) string {
	domain := region + ".compute.internal"
	if region == "us-east-1" {
		domain = "ec2.internal"
	}
	return "ip-" + strings.ReplaceAll(a.String(), ".", "-") + "." + domain
}

// PublicDNSName is the name EC2 gives a public address.
func PublicDNSName(region string, a netip.Addr) string {
	domain := region + ".compute.amazonaws.com"
	if region == "us-east-1" {
		domain = "compute-1.amazonaws.com"
	}
	return "ec2-" + strings.ReplaceAll(a.String(), ".", "-") + "." + domain
}

// publicDNS is empty in VPCs without DNS host names, as on EC2.
func (t *tx) publicDNS(vpcID string, a netip.Addr) string {
	if v := t.st.VPCs[vpcID]; v == nil || !v.DNSHostnames || !a.IsValid() {
		return ""
	}
	return PublicDNSName(t.c.cfg.Region, a)
}

type groupRef struct {
	ID   string `xml:"groupId"`
	Name string `xml:"groupName"`
}

func (t *tx) groupRefs(ids []string) []groupRef {
	var out []groupRef
	for _, id := range ids {
		if g := t.st.Groups[id]; g != nil {
			out = append(out, groupRef{g.ID, g.Name})
		}
	}
	return out
}

type eniAssociation struct {
	AllocationID  string `xml:"allocationId,omitempty"`
	AssociationID string `xml:"associationId,omitempty"`
	OwnerID       string `xml:"ipOwnerId"`
	PublicIP      string `xml:"publicIp"`
	PublicDNS     string `xml:"publicDnsName"`
}

type eniAttachment struct {
	ID                  string    `xml:"attachmentId"`
	InstanceID          string    `xml:"instanceId,omitempty"`
	InstanceOwnerID     string    `xml:"instanceOwnerId,omitempty"`
	DeviceIndex         int       `xml:"deviceIndex"`
	NetworkCardIndex    int       `xml:"networkCardIndex"`
	Status              string    `xml:"status"`
	AttachTime          time.Time `xml:"attachTime"`
	DeleteOnTermination bool      `xml:"deleteOnTermination"`
}

type eniAddress struct {
	PrivateIP   string          `xml:"privateIpAddress"`
	PrivateDNS  string          `xml:"privateDnsName"`
	Primary     bool            `xml:"primary"`
	Association *eniAssociation `xml:"association,omitempty"`
}

type interfaceItem struct {
	ID               string          `xml:"networkInterfaceId"`
	SubnetID         string          `xml:"subnetId"`
	VPCID            string          `xml:"vpcId"`
	Zone             string          `xml:"availabilityZone,omitempty"`
	Description      string          `xml:"description"`
	OwnerID          string          `xml:"ownerId"`
	RequesterManaged bool            `xml:"requesterManaged"`
	Status           string          `xml:"status"`
	Type             string          `xml:"interfaceType"`
	MAC              string          `xml:"macAddress"`
	PrivateIP        string          `xml:"privateIpAddress"`
	PrivateDNS       string          `xml:"privateDnsName"`
	SourceDestCheck  bool            `xml:"sourceDestCheck"`
	Groups           []groupRef      `xml:"groupSet>item"`
	Attachment       *eniAttachment  `xml:"attachment,omitempty"`
	Association      *eniAssociation `xml:"association,omitempty"`
	Addresses        []eniAddress    `xml:"privateIpAddressesSet>item"`
	Tags             []tag           `xml:"tagSet>item"`
}

func (t *tx) eniAssociation(e *iface) *eniAssociation {
	ip := t.publicIP(e)
	if !ip.IsValid() {
		return nil
	}
	as := &eniAssociation{OwnerID: "amazon", PublicIP: ip.String(), PublicDNS: t.publicDNS(e.VPC, ip)}
	if a := t.addressOf(e.ID); a != nil {
		as.AllocationID, as.AssociationID, as.OwnerID = a.ID, a.AssociationID, t.c.cfg.AccountID
	}
	return as
}

func (t *tx) interfaceItem(e *iface) interfaceItem {
	as := t.eniAssociation(e)
	item := interfaceItem{
		ID: e.ID, SubnetID: e.Subnet, VPCID: e.VPC, Zone: t.st.Subnets[e.Subnet].Zone, Description: e.Description,
		OwnerID: t.c.cfg.AccountID, Status: e.status(), Type: "interface", MAC: e.MAC, PrivateIP: e.PrivateIP.String(),
		PrivateDNS: t.privateDNS(e.PrivateIP), SourceDestCheck: e.SourceDestCheck, Groups: t.groupRefs(e.Groups),
		Association: as,
		Addresses:   []eniAddress{{e.PrivateIP.String(), t.privateDNS(e.PrivateIP), true, as}},
		Tags:        t.tags(e.ID),
	}
	if e.Instance != "" {
		item.Attachment = &eniAttachment{
			ID: e.AttachmentID, InstanceID: e.Instance, InstanceOwnerID: t.c.cfg.AccountID, Status: "attached",
			AttachTime: e.AttachTime, DeleteOnTermination: e.DeleteOnTermination,
		}
	}
	return item
}

func (e *iface) status() string {
	if e.Instance == "" {
		return "available"
	}
	return "in-use"
}

func groupNames(t *tx, ids []string) []string {
	var out []string
	for _, g := range t.groupRefs(ids) {
		out = append(out, g.Name)
	}
	return out
}

func addr(a netip.Addr) []string {
	if !a.IsValid() {
		return nil
	}
	return []string{a.String()}
}

var interfaceFields = fields[iface]{
	"network-interface-id":                func(_ *tx, e *iface) []string { return one(e.ID) },
	"vpc-id":                              func(_ *tx, e *iface) []string { return one(e.VPC) },
	"subnet-id":                           func(_ *tx, e *iface) []string { return one(e.Subnet) },
	"availability-zone":                   func(t *tx, e *iface) []string { return one(t.st.Subnets[e.Subnet].Zone) },
	"description":                         func(_ *tx, e *iface) []string { return one(e.Description) },
	"group-id":                            func(_ *tx, e *iface) []string { return e.Groups },
	"group-name":                          func(t *tx, e *iface) []string { return groupNames(t, e.Groups) },
	"mac-address":                         func(_ *tx, e *iface) []string { return one(e.MAC) },
	"owner-id":                            func(t *tx, _ *iface) []string { return one(t.c.cfg.AccountID) },
	"private-ip-address":                  func(_ *tx, e *iface) []string { return addr(e.PrivateIP) },
	"addresses.private-ip-address":        func(_ *tx, e *iface) []string { return addr(e.PrivateIP) },
	"addresses.primary":                   func(*tx, *iface) []string { return yesNo(true) },
	"addresses.association.public-ip":     func(t *tx, e *iface) []string { return addr(t.publicIP(e)) },
	"association.public-ip":               func(t *tx, e *iface) []string { return addr(t.publicIP(e)) },
	"association.allocation-id":           func(t *tx, e *iface) []string { return one(t.addressOf(e.ID).allocation()) },
	"private-dns-name":                    func(t *tx, e *iface) []string { return one(t.privateDNS(e.PrivateIP)) },
	"source-dest-check":                   func(_ *tx, e *iface) []string { return yesNo(e.SourceDestCheck) },
	"status":                              func(_ *tx, e *iface) []string { return one(e.status()) },
	"interface-type":                      func(*tx, *iface) []string { return one("interface") },
	"requester-managed":                   func(*tx, *iface) []string { return yesNo(false) },
	"attachment.attachment-id":            func(_ *tx, e *iface) []string { return one(e.AttachmentID) },
	"attachment.instance-id":              func(_ *tx, e *iface) []string { return one(e.Instance) },
	"attachment.device-index":             func(*tx, *iface) []string { return one("0") },
	"attachment.status":                   func(*tx, *iface) []string { return one("attached") },
	"attachment.delete-on-termination":    func(_ *tx, e *iface) []string { return yesNo(e.DeleteOnTermination) },
	"attachment.instance-owner-id":        func(t *tx, _ *iface) []string { return one(t.c.cfg.AccountID) },
	"association.association-id":          func(t *tx, e *iface) []string { return one(t.addressOf(e.ID).association()) },
	"association.ip-owner-id":             func(t *tx, _ *iface) []string { return one(t.c.cfg.AccountID) },
	"addresses.association.owner-id":      func(t *tx, _ *iface) []string { return one(t.c.cfg.AccountID) },
	"addresses.association.allocation-id": func(t *tx, e *iface) []string { return one(t.addressOf(e.ID).allocation()) },
}

type describeInterfacesRequest struct {
	describeRequest
	InterfaceIds []string `query:"NetworkInterfaceId"`
}

type describeInterfacesResponse struct {
	Interfaces []interfaceItem `xml:"networkInterfaceSet>item"`
	NextToken  string          `xml:"nextToken,omitempty"`
}

func describeInterfaces(t *tx, in *describeInterfacesRequest) (any, error) {
	page, next, err := selection[iface]{kindInterface, t.st.Interfaces, "networkInterfaceId", in.InterfaceIds, interfaceFields, in.describeRequest, 5}.run(t)
	if err != nil {
		return nil, err
	}
	out := describeInterfacesResponse{NextToken: next}
	for _, e := range page {
		out.Interfaces = append(out.Interfaces, t.interfaceItem(e))
	}
	return out, nil
}

type describeInterfaceAttributeRequest struct {
	request
	NetworkInterfaceId string
	Attribute          string
}

type interfaceAttributeResponse struct {
	ID              string           `xml:"networkInterfaceId"`
	Description     *stringAttribute `xml:"description,omitempty"`
	SourceDestCheck *boolAttribute   `xml:"sourceDestCheck,omitempty"`
	Groups          []groupRef       `xml:"groupSet>item"`
	Attachment      *eniAttachment   `xml:"attachment,omitempty"`
}

func describeInterfaceAttribute(t *tx, in *describeInterfaceAttributeRequest) (any, error) {
	e, err := find(t, kindInterface, t.st.Interfaces, "networkInterfaceId", in.NetworkInterfaceId)
	if err != nil {
		return nil, err
	}
	out := interfaceAttributeResponse{ID: e.ID}
	item := t.interfaceItem(e)
	switch in.Attribute {
	case "description":
		out.Description = &stringAttribute{e.Description}
	case "sourceDestCheck":
		out.SourceDestCheck = &boolAttribute{e.SourceDestCheck}
	case "groupSet":
		out.Groups = item.Groups
	case "attachment":
		out.Attachment = item.Attachment
	case "":
		return nil, missing("attribute")
	default:
		return nil, invalidValue("Value (%s) for parameter attribute is invalid. Unknown attribute.", in.Attribute)
	}
	return out, nil
}

type modifyInterfaceAttributeRequest struct {
	request
	NetworkInterfaceId string
	Description        *stringAttribute
	SourceDestCheck    *boolAttribute
	SecurityGroupIds   []string `query:"SecurityGroupId"`
	Attachment         *struct {
		AttachmentId        string
		DeleteOnTermination *bool
	}
}

func modifyInterfaceAttribute(t *tx, in *modifyInterfaceAttributeRequest) (any, error) {
	e, err := find(t, kindInterface, t.st.Interfaces, "networkInterfaceId", in.NetworkInterfaceId)
	if err != nil {
		return nil, err
	}
	if in.Description == nil && in.SourceDestCheck == nil && len(in.SecurityGroupIds) == 0 && in.Attachment == nil {
		return nil, awserr.New("InvalidParameterCombination", "No attributes specified.")
	}
	if in.Description != nil {
		e.Description = in.Description.Value
	}
	if in.SourceDestCheck != nil {
		e.SourceDestCheck = in.SourceDestCheck.Value
	}
	if len(in.SecurityGroupIds) > 0 {
		if err := t.checkGroups(e.VPC, in.SecurityGroupIds); err != nil {
			return nil, err
		}
		e.Groups = in.SecurityGroupIds
	}
	if in.Attachment != nil {
		if in.Attachment.AttachmentId != e.AttachmentID {
			return nil, awserr.New("InvalidAttachmentID.NotFound", "The attachment ID '%s' does not exist", in.Attachment.AttachmentId)
		}
		if in.Attachment.DeleteOnTermination != nil {
			e.DeleteOnTermination = *in.Attachment.DeleteOnTermination
		}
	}
	return done{true}, nil
}

type interfaceIDRequest struct {
	request
	NetworkInterfaceId string
}

func deleteInterface(t *tx, in *interfaceIDRequest) (any, error) {
	e, err := find(t, kindInterface, t.st.Interfaces, "networkInterfaceId", in.NetworkInterfaceId)
	if err != nil {
		return nil, err
	}
	if e.Instance != "" {
		return nil, awserr.New("InvalidNetworkInterface.InUse", "Network interface '%s' is currently in use.", e.ID)
	}
	if a := t.addressOf(e.ID); a != nil {
		a.Interface, a.AssociationID = "", ""
	}
	t.drop(e.ID)
	delete(t.st.Interfaces, e.ID)
	return done{true}, nil
}
