package ec2

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// iface is a network interface. Each is made with an instance, a NAT gateway, a load balancer or an EC2
// Instance Connect Endpoint.
// Instance is empty if the interface has outlived it (delete on termination off).
type iface struct {
	ID                  string
	VPC                 string
	Subnet              string
	Instance            string
	NATGateway          string // that it belongs to, instead of an instance
	Balancer            string // likewise, as in net/NAME/ID
	ConnectEndpoint     string // likewise
	AttachmentID        string
	AttachTime          time.Time
	DeleteOnTermination bool
	Description         string
	MAC                 string
	PrivateIP           netip.Addr
	AutoPublic          bool       // gets a public address at each start
	PublicIP            netip.Addr // its automatic public address; zero if it has none
	SourceDestCheck     bool
	Groups              []string
}

var interfaceActions = map[string]action{
	"DescribeNetworkInterfaces":         reads(describeInterfaces),
	"DescribeNetworkInterfaceAttribute": reads(describeInterfaceAttribute),
	"ModifyNetworkInterfaceAttribute":   writes(modifyInterfaceAttribute),
	"DeleteNetworkInterface":            writes(deleteInterface),
}

// heldFor is how long a subnet's address cannot be used again after its interface was deleted with
// an instance. On AWS it is up to a minute.
const heldFor = 300 * time.Millisecond

// takeAddress returns the requested address, or the subnet's lowest free one.
func (t *tx) takeAddress(s *subnet, want string) (netip.Addr, error) {
	if limit := t.c.cfg.Quotas.Interfaces; len(t.st.Interfaces) >= limit { // the address is for a new one
		return netip.Addr{}, wire.Refuse("NetworkInterfaceLimitExceeded", "You have reached the limit of %d network interfaces.", limit)
	}
	used := map[netip.Addr]bool{}
	for _, e := range t.st.Interfaces {
		if e.Subnet == s.ID {
			used[e.PrivateIP] = true
		}
	}
	for held, since := range t.st.Held {
		if of, a, _ := strings.Cut(held, "/"); of == s.ID && t.now.Sub(since) < heldFor {
			used[netip.MustParseAddr(a)] = true
		}
	}
	first, last := reservedHead, size(s.CIDR)-1-reservedTail
	if want == "" {
		for n := first; n <= last; n++ {
			if a := nth(s.CIDR, n); !used[a] {
				return a, nil
			}
		}
		return netip.Addr{}, wire.Refuse("InsufficientFreeAddressesInSubnet", "There are not enough free addresses in subnet '%s' to satisfy the requested number of instances.", s.ID)
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
		return netip.Addr{}, wire.Refuse("InvalidIPAddress.InUse", "Address %s is in use.", a)
	}
	return a, nil
}

// checkGroups checks that security groups exist in a VPC. k says how EC2 refuses an unknown one. subnet is that of a launch.
func (t *tx) checkGroups(k kind, vpcID, subnet string, ids []string) error {
	for i, id := range ids {
		g, err := find(t, k, t.st.Groups, "groupId", id)
		if err != nil {
			return err
		}
		if g.VPC != vpcID && subnet != "" {
			return wire.Refuse("InvalidParameter", "Security group %s and subnet %s belong to different networks.", id, subnet)
		}
		if g.VPC != vpcID {
			return wire.Refuse("InvalidGroup.NotFound", "You have specified two resources that belong to different networks.")
		}
		if slices.Contains(ids[:i], id) {
			return wire.Refuse("InvalidParameterValue", "The security group '%s' is specified more than once", id)
		}
	}
	if n := t.c.cfg.Quotas.GroupsPerInterface; len(ids) > n {
		return wire.Refuse("SecurityGroupsPerInterfaceLimitExceeded", "The maximum number of security groups per interface has been reached.")
	}
	return nil
}

// defaultGroup returns the id of a VPC's default security group.
func (t *tx) defaultGroup(vpcID string) string {
	for _, g := range t.st.Groups {
		if g.VPC == vpcID && g.Name == defaultGroupName {
			return g.ID
		}
	}
	return ""
}

// mac returns a locally administered MAC address made from the private address, which is unique
// within the VPC.
func mac(a netip.Addr) string {
	b := a.As4()
	return fmt.Sprintf("02:0e:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3])
}

func (t *tx) privateDNS(a netip.Addr) string {
	return privateDNSName(t.c.cfg.Region, a)
}

// privateDNSName returns EC2's name of a private address.
func privateDNSName(region string, a netip.Addr) string {
	return "ip-" + strings.ReplaceAll(a.String(), ".", "-") + "." + domainName(region)
}

// publicDNSName returns EC2's name of a public address.
func publicDNSName(region string, a netip.Addr) string {
	domain := region + ".compute." + wire.Domain(region)
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
	return publicDNSName(t.c.cfg.Region, a)
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
	if err := managed(e); err != nil {
		return nil, err
	}
	if in.Description == nil && in.SourceDestCheck == nil && len(in.SecurityGroupIds) == 0 && in.Attachment == nil {
		return nil, wire.Refuse("InvalidParameterCombination", "No attributes specified.")
	}
	if in.Description != nil {
		e.Description = in.Description.Value
	}
	if in.SourceDestCheck != nil {
		e.SourceDestCheck = in.SourceDestCheck.Value
	}
	if len(in.SecurityGroupIds) > 0 {
		if err := t.checkGroups(kindInterfaceGroup, e.VPC, "", in.SecurityGroupIds); err != nil {
			return nil, err
		}
		e.Groups = in.SecurityGroupIds
	}
	if in.Attachment != nil {
		if in.Attachment.AttachmentId != e.AttachmentID {
			return nil, wire.Refuse("InvalidAttachmentID.NotFound", "The attachment ID '%s' does not exist", in.Attachment.AttachmentId)
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
	if e.status() == "in-use" {
		return nil, wire.Refuse("InvalidNetworkInterface.InUse", "Network interface '%s' is currently in use.", e.ID)
	}
	t.dropInterface(e)
	return done{true}, nil
}

// dropInterface deletes an interface. Its Elastic IP stays, and is no longer associated.
func (t *tx) dropInterface(e *iface) {
	if a := t.addressOf(e.ID); a != nil {
		a.Interface, a.AssociationID = "", ""
	}
	t.drop(e.ID)
	delete(t.st.Interfaces, e.ID)
}
