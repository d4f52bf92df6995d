package networks

import (
	"cmp"
	"context"
	"maps"

	"github.com/hashicorp/terraform-plugin-framework-nettypes/cidrtypes"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsnetwork "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/owned"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// networkKey is the private-state entry of networkPrivate.
const networkKey = "network"

// networkPrivate is the resource's entry in private state.
type networkPrivate struct {
	Adopts bool `json:"adopts"`
	// RouteTables and NATGateways identify the network's own route tables and NAT gateways, by name, if
	// they have lost their tags.
	RouteTables map[string]string                `json:"route_tables,omitempty"`
	NATGateways map[string]awsnetwork.NATGateway `json:"nat_gateways,omitempty"`
	// Connect identifies its EC2 Instance Connect Endpoint, likewise.
	Connect awsnetwork.ConnectParts `json:"connect,omitzero"`
}

// remember keeps what is found. What is missing now stays known.
func (p networkPrivate) remember(ctx context.Context, op *owned.Operation, n awsnetwork.Network) {
	p.Connect.EndpointID = cmp.Or(n.Connect.EndpointID, p.Connect.EndpointID)
	p.Connect.SecurityGroupID = cmp.Or(n.Connect.SecurityGroupID, p.Connect.SecurityGroupID)
	if !p.Adopts {
		p.RouteTables, p.NATGateways = merged(p.RouteTables, n.RouteTables), merged(p.NATGateways, n.NATGateways)
	}
	op.Keep(ctx, networkKey, p)
}

// merged returns a map with the entries of both, of which the new ones win.
func merged[V any](before, now map[string]V) map[string]V {
	out := map[string]V{}
	maps.Copy(out, before)
	maps.Copy(out, now)
	return out
}

// private returns the entry, also if the private state was lost: the VPC's tags say whether it
// was made or adopted.
func (m networkModel) private(ctx context.Context, op *owned.Operation) (networkPrivate, error) {
	if !op.Ownership.Lost() {
		return owned.Kept[networkPrivate](ctx, op, networkKey), nil
	}
	made, err := awsnetwork.MadeVPC(ctx, op.Client, m.Cluster.ValueString(), m.VPCID.ValueString())
	return networkPrivate{Adopts: !made}, err
}

// wanted returns the specification for an operation.
func (m networkModel) wanted(op *owned.Operation, private networkPrivate) awsnetwork.Spec {
	s := m.spec(private)
	s.Claim, s.RemoveTags = op.Ownership.Claim, op.RemoveTags
	return s
}

func (m networkModel) spec(private networkPrivate) awsnetwork.Spec {
	s := awsnetwork.Spec{
		Cluster:         m.Cluster.ValueString(),
		VPCCIDR:         tf.Prefix(m.VPCCIDR),
		NodeCIDR:        tf.Prefix(m.NodeCIDR),
		PublicCIDR:      tf.Prefix(m.PublicCIDR),
		Zones:           m.zones(),
		NATGateways:     awsnetwork.NATGateways(m.NATGateways.ValueString()),
		InstanceTypes:   tf.Strings(m.InstanceTypes.Elements()),
		AdminCIDRs:      tf.Prefixes(m.AdminCIDRs),
		NodePortCIDRs:   tf.Prefixes(m.NodePortCIDRs),
		ControllerPods:  m.ControllerPods.ValueBool(),
		InstanceConnect: m.InstanceConnect.ValueBool(),
		BastionRole:     infraaws.MachineRole(m.BastionRole.ValueString()),
		IgnoreRules:     ignoreRulesFrom(m.IgnoreRules),
		DeleteLeftovers: m.DeleteLeftovers.ValueBool(),
		Tags:            tf.StringMap(m.Tags),
		Known:           m.known(private),
	}
	if private.Adopts {
		s.VPCID, s.SubnetIDs = m.VPCID.ValueString(), tf.Strings(m.SubnetIDs.Elements())
	}
	return s
}

// zones returns the names of the availability zones, empty for those that are not known yet.
func (m networkModel) zones() []string {
	out := make([]string, max(1, int(m.ZoneCount.ValueInt64()), len(m.Zones.Elements())))
	for i, z := range m.Zones.Elements() {
		zone, _ := z.(types.String)
		out[i] = zone.ValueString()
	}
	return out
}

// known returns the ids in the state.
func (m networkModel) known(private networkPrivate) awsnetwork.Network {
	n := awsnetwork.Network{Cluster: m.Cluster.ValueString(), VPCID: m.VPCID.ValueString(), SecurityGroups: reference.SecurityGroupsFrom(m.SecurityGroupIDs),
		RouteTables: private.RouteTables, NATGateways: private.NATGateways, Connect: private.Connect}
	for _, id := range tf.Strings(m.SubnetIDs.Elements()) {
		n.Subnets = append(n.Subnets, awsnetwork.Subnet{ID: id})
	}
	return n
}

// fill sets all computed attributes from the network that was found.
func (m *networkModel) fill(ctx context.Context, n awsnetwork.Network) {
	m.ID = m.Cluster
	m.VPCID, m.VPCCIDR = types.StringValue(n.VPCID), tf.OptionalPrefix(n.VPCCIDR)
	m.SubnetID = types.StringNull()
	var ids, cidrs, zones []attr.Value
	for _, s := range n.Subnets {
		cidrs = append(cidrs, tf.OptionalPrefix(s.CIDR))
		ids = append(ids, types.StringValue(s.ID))
	}
	for _, zone := range n.Zones {
		zones = append(zones, types.StringValue(zone))
	}
	m.Zones, m.ZoneCount = types.ListValueMust(types.StringType, zones), types.Int64Value(int64(len(zones)))
	m.NodeCIDRs = types.ListValueMust(cidrtypes.IPv4PrefixType{}, cidrs)
	m.Subnets = reference.SubnetsValue(ctx, n)
	if len(n.Subnets) > 0 {
		m.SubnetID = types.StringValue(n.Subnets[0].ID)
		if m.NodeCIDR.IsNull() || m.NodeCIDR.IsUnknown() { // of an adopted VPC
			m.NodeCIDR = tf.OptionalPrefix(n.Subnets[0].CIDR)
		}
	}
	ips := map[string]string{}
	for _, gateway := range n.NATGateways {
		ips[gateway.AvailabilityZone] = gateway.PublicIP.String()
	}
	m.NATIPs = tf.StringMapValue(ips)
	if m.PublicCIDR.IsUnknown() {
		m.PublicCIDR = cidrtypes.NewIPv4PrefixNull()
	}
	m.SubnetIDs = types.ListValueMust(types.StringType, ids)
	m.SecurityGroupIDs = reference.SecurityGroupsValue(n)
	m.InstanceConnectID = tf.OptionalString(n.Connect.EndpointID)
	m.Drift = tf.NoDrift()
	if m.NodeCIDR.IsUnknown() {
		m.NodeCIDR = cidrtypes.NewIPv4PrefixNull()
	}
	m.Ref = m.ref(ctx, m.Subnets)
}
