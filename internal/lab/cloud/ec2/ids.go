package ec2

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// kind is a kind of resource: its id prefix, EC2's message for it, and the error codes for bad ids.
// The codes' spelling follows no rule; each is as in EC2's list of error codes. Without a malformed
// code, a malformed id is not found.
type kind struct {
	prefix    string
	notFound  string
	malformed string
	message   string // with one %s: the id
	typ       string // resource type in tag specifications and DescribeTags
}

var (
	kindVPC        = kind{"vpc", "InvalidVpcID.NotFound", "InvalidVpcID.Malformed", "The vpc ID '%s' does not exist", "vpc"}
	kindSubnet     = kind{"subnet", "InvalidSubnetID.NotFound", "InvalidSubnetID.Malformed", "The subnet ID '%s' does not exist", "subnet"}
	kindGateway    = kind{"igw", "InvalidInternetGatewayID.NotFound", "InvalidInternetGatewayId.Malformed", "The internetGateway ID '%s' does not exist", "internet-gateway"}
	kindRouteTable = kind{"rtb", "InvalidRouteTableID.NotFound", "InvalidRouteTableId.Malformed", "The routeTable ID '%s' does not exist", "route-table"}
	kindGroup      = kind{"sg", "InvalidGroup.NotFound", "InvalidGroupId.Malformed", "The security group '%s' does not exist", "security-group"}
	kindRule       = kind{"sgr", "InvalidSecurityGroupRuleId.NotFound", "InvalidSecurityGroupRuleId.Malformed", "The security group rule ID '%s' does not exist", "security-group-rule"}
	kindInstance   = kind{"i", "InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed", "The instance ID '%s' does not exist", "instance"}
	kindInterface  = kind{"eni", "InvalidNetworkInterfaceID.NotFound", "InvalidNetworkInterfaceId.Malformed", "The networkInterface ID '%s' does not exist", "network-interface"}
	kindVolume     = kind{"vol", "InvalidVolume.NotFound", "InvalidVolumeID.Malformed", "The volume '%s' does not exist.", "volume"}
	kindAddress    = kind{"eipalloc", "InvalidAllocationID.NotFound", "", "The allocation ID '%s' does not exist", "elastic-ip"}
	kindKeyPair    = kind{"key", "InvalidKeyPair.NotFound", "", "The key pair '%s' does not exist", "key-pair"}

	kindNATGateway = kind{"nat", "NatGatewayNotFound", "NatGatewayMalformed", "NAT gateway %s was not found", "natgateway"}

	// kindRouteGateway is an internet gateway as the target of a route, which may have gateways of several kinds.
	kindRouteGateway = kind{"igw", "InvalidGatewayID.NotFound", "InvalidInternetGatewayId.Malformed", "The gateway ID '%s' does not exist", "internet-gateway"}
	// kindInterfaceGroup is a security group as an interface gets it.
	kindInterfaceGroup = kind{"sg", "InvalidSecurityGroupID.NotFound", "InvalidGroupId.Malformed", "The securityGroup ID '%s' does not exist", "security-group"}

	kindConnectEndpoint = kind{"eice", "InvalidInstanceConnectEndpointId.NotFound", "InvalidInstanceConnectEndpointId.Malformed", "The instance connect endpoint ID '%s' does not exist", "instance-connect-endpoint"}

	kindDHCPOptions = kind{"dopt", "InvalidDhcpOptionID.NotFound", "InvalidDhcpOptionsId.Malformed", "The dhcpOption ID '%s' does not exist", "dhcp-options"}
	kindNetworkACL  = kind{"acl", "InvalidNetworkAclID.NotFound", "InvalidNetworkAclId.Malformed", "The networkAcl ID '%s' does not exist", "network-acl"}

	kindPlacementGroup = kind{"pg", "InvalidPlacementGroup.Unknown", "InvalidPlacementGroupId.Malformed", "The Placement Group '%s' is unknown.", "placement-group"}

	kindLaunchTemplate = kind{"lt", "InvalidLaunchTemplateId.NotFound", "InvalidLaunchTemplateId.Malformed", "The specified launch template, with template ID %s, does not exist.", "launch-template"}

	kindImage    = kind{"ami", "InvalidAMIID.NotFound", "InvalidAMIID.Malformed", "The image id '[%s]' does not exist", "image"}
	kindSnapshot = kind{"snap", "InvalidSnapshot.NotFound", "InvalidSnapshotID.Malformed", "The snapshot '%s' does not exist.", "snapshot"}

	kinds = []kind{
		kindVPC, kindSubnet, kindGateway, kindRouteTable, kindGroup, kindRule,
		kindInstance, kindInterface, kindVolume, kindAddress, kindKeyPair,
		kindNATGateway, kindDHCPOptions, kindNetworkACL, kindPlacementGroup, kindLaunchTemplate,
		kindConnectEndpoint, kindImage, kindSnapshot,
	}
)

var idSuffix = regexp.MustCompile(`^[0-9a-f]{8}(?:[0-9a-f]{9})?$`)

func (k kind) wellFormed(id string) bool {
	suffix, ok := strings.CutPrefix(id, k.prefix+"-")
	return ok && idSuffix.MatchString(suffix)
}

func (k kind) notFoundError(id string) error {
	return wire.Refuse(k.notFound, k.message, id)
}

// check refuses an empty or malformed id. parameter names the request parameter.
func (k kind) check(parameter, id string) error {
	if id == "" {
		return missing(parameter)
	}
	if k.wellFormed(id) {
		return nil
	}
	if k.malformed == "" {
		return k.notFoundError(id)
	}
	return wire.Refuse(k.malformed, `Invalid id: "%s" (expecting "%s-...")`, id, k.prefix)
}

// kindOf returns the kind of an id, by its prefix.
func kindOf(id string) (kind, bool) {
	prefix, _, _ := strings.Cut(id, "-")
	for _, k := range kinds {
		if k.prefix == prefix {
			return k, true
		}
	}
	return kind{}, false
}

// newID makes an id in EC2's long form and records it as made by this transaction.
func (t *tx) newID(prefix string) string {
	id := fmt.Sprintf("%s-0%016x", prefix, t.c.random())
	t.created = append(t.created, id)
	return id
}

func missing(parameter string) error {
	return wire.Refuse("MissingParameter", "The request must contain the parameter %s", parameter)
}

func invalidValue(format string, args ...any) error {
	return wire.Refuse("InvalidParameterValue", format, args...)
}

func dependency(format string, args ...any) error {
	return wire.Refuse("DependencyViolation", format, args...)
}
