// Package network makes the network of a cluster: VPC, subnets, gateways, route tables, security groups with their rules,
// and the endpoint of EC2 Instance Connect. Machines may not enter: security groups are known to them by id.
package network

import (
	"net/netip"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

// Spec is the wanted state of a cluster's network.
type Spec struct {
	Cluster string
	// VPCID and SubnetIDs adopt an existing VPC, in which only the security groups are made; set
	// both or none.
	VPCID     string
	SubnetIDs []string
	// The fields from here to InstanceTypes are for a VPC of our own.
	//
	// NodeCIDR is the subnet for machines in the first zone. Those in other zones are the networks of the
	// same size that follow. PublicCIDR, likewise, is the public subnet of the first zone if the others
	// are private.
	VPCCIDR, NodeCIDR, PublicCIDR netip.Prefix
	// Zones are the availability zones. An empty name stands for one that offers the instance types and
	// is none of the others. No zones at all are the same as one with an empty name.
	Zones       []string
	NATGateways NATGateways
	// InstanceTypes are those that the zones of new subnets have to offer; empty means
	// DefaultInstanceType in zones that are chosen, and any in zones with a name.
	InstanceTypes []string
	// AdminCIDRs may reach SSH on every machine and the API on the load balancer.
	AdminCIDRs []netip.Prefix
	// NodePortCIDRs may reach NodePorts on workers.
	NodePortCIDRs []netip.Prefix
	// ControllerPods says that controllers may be nodes, on which pods run.
	ControllerPods bool
	// BastionRole is the role whose machines may reach SSH on every machine; none if it is empty.
	BastionRole aws.MachineRole
	// InstanceConnect wants an EC2 Instance Connect Endpoint, from which SSH on every machine is reached.
	InstanceConnect bool
	// IgnoreRules selects rules of others in the security groups, which are left alone.
	IgnoreRules RuleFilter
	// DeleteLeftovers says that Delete also deletes what controllers in the cluster have made and left.
	DeleteLeftovers bool
	Tags            map[string]string
	// RemoveTags lists tag keys to delete: those that an earlier spec had and this one no longer
	// has.
	RemoveTags []string
	// Known is the network as last seen. Its ids find parts that have lost their tags.
	Known Network
	// Claim says who owns the network. Objects of other owners are neither changed nor deleted.
	Claim aws.Claim

	// lookForParts looks for NAT gateways and endpoints although none are wanted or known.
	lookForParts bool
	// ownOnly finds only a VPC with the claim. Everything in the VPC belongs to the network,
	// whoever has made it.
	ownOnly bool
}

func (s Spec) adopts() bool { return s.VPCID != "" }

// Network is a cluster's network as found in EC2. Ids of missing parts are empty.
type Network struct {
	Cluster string
	VPCID   string
	VPCCIDR netip.Prefix
	// Zones are the availability zones of the subnets for machines, in the order of the specification;
	// in an adopted VPC, in that of the subnets. Those of missing subnets are as specified.
	Zones             []string
	Subnets           []Subnet
	InternetGatewayID string
	// RouteTables holds the ids of our own route tables by name, see place.table.
	RouteTables map[string]string
	// NATGateways are our own, by name, see natName.
	NATGateways map[string]NATGateway
	// SecurityGroups holds the id of each of Groups by name.
	SecurityGroups map[aws.MachineRole]string
	// Connect identifies our own EC2 Instance Connect Endpoint, if there is one.
	Connect ConnectParts
	// Claim says who owns the VPC; in an adopted VPC, who owns its groups.
	Claim aws.Claim
	// Unsettled lists the ids of the objects with the claim of the specification that are not
	// settled.
	Unsettled []string
}

// Subnet is a subnet for machines and the route table that applies to it.
type Subnet struct {
	ID               string
	CIDR             netip.Prefix
	AvailabilityZone string
	RouteTableID     string
	// Public says whether the subnet's default route leads to an internet gateway.
	Public bool
}
