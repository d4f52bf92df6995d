package ec2

import (
	"net/netip"
	"strconv"
	"time"
)

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
	RequesterID      string          `xml:"requesterId,omitempty"`
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
	if e.Balancer != "" {
		as.OwnerID = elbOwner
	}
	if a := t.addressOf(e.ID); a != nil {
		as.AllocationID, as.AssociationID, as.OwnerID = a.ID, a.AssociationID, t.c.cfg.AccountID
	}
	return as
}

func (t *tx) interfaceItem(e *iface) interfaceItem {
	as := t.eniAssociation(e)
	item := interfaceItem{
		ID: e.ID, SubnetID: e.Subnet, VPCID: e.VPC, Zone: t.st.Subnets[e.Subnet].Zone, Description: e.Description,
		OwnerID: t.c.cfg.AccountID, RequesterManaged: e.managed(), Status: e.status(), Type: e.kind(), MAC: e.MAC, PrivateIP: e.PrivateIP.String(),
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
	if e.managed() {
		item.RequesterID = awsOwner
		if e.Balancer != "" {
			item.RequesterID = elbOwner
		}
		item.Attachment = &eniAttachment{
			ID: e.AttachmentID, InstanceOwnerID: awsOwner, DeviceIndex: natDeviceIndex, Status: "attached", AttachTime: e.AttachTime,
		}
	}
	return item
}

// managed reports whether AWS has made an interface for something of its own.
func (e *iface) managed() bool {
	return e.NATGateway != "" || e.Balancer != "" || e.ConnectEndpoint != ""
}

// What DescribeNetworkInterfaces says of an interface that AWS has made: who has made
// it and what it is attached to, and at which place there.
const (
	awsOwner       = "amazon-aws"
	elbOwner       = "amazon-elb"
	natDeviceIndex = 1
)

func (e *iface) status() string {
	if e.Instance == "" && !e.managed() {
		return "available"
	}
	return "in-use"
}

// kind returns EC2's word for the kind of an interface.
func (e *iface) kind() string {
	switch {
	case e.NATGateway != "":
		return "nat_gateway"
	case e.Balancer != "":
		return "network_load_balancer"
	case e.ConnectEndpoint != "":
		return "ec2_instance_connect_endpoint"
	}
	return "interface"
}

// ofInterfaceAttachment returns a value of an interface's attachment, none of a detached interface.
func ofInterfaceAttachment(f func(*eniAttachment) string) func(*tx, *iface) []string {
	return func(t *tx, e *iface) []string {
		a := t.interfaceItem(e).Attachment
		if a == nil {
			return nil
		}
		return one(f(a))
	}
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
	"interface-type":                      func(_ *tx, e *iface) []string { return one(e.kind()) },
	"requester-managed":                   func(_ *tx, e *iface) []string { return yesNo(e.managed()) },
	"attachment.attachment-id":            ofInterfaceAttachment(func(a *eniAttachment) string { return a.ID }),
	"attachment.instance-id":              ofInterfaceAttachment(func(a *eniAttachment) string { return a.InstanceID }),
	"attachment.device-index":             ofInterfaceAttachment(func(a *eniAttachment) string { return strconv.Itoa(a.DeviceIndex) }),
	"attachment.status":                   ofInterfaceAttachment(func(a *eniAttachment) string { return a.Status }),
	"attachment.delete-on-termination":    ofInterfaceAttachment(func(a *eniAttachment) string { return strconv.FormatBool(a.DeleteOnTermination) }),
	"attachment.instance-owner-id":        ofInterfaceAttachment(func(a *eniAttachment) string { return a.InstanceOwnerID }),
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
	items, next, err := describe(t, selection[iface]{kindInterface, t.st.Interfaces, "networkInterfaceId", in.InterfaceIds, interfaceFields, in.describeRequest, 5}, t.interfaceItem)
	return describeInterfacesResponse{items, next}, err
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
