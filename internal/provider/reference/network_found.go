package reference

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsnetwork "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// FindNetwork returns the network of a cluster and the reference to it, for the import of something in it. The
// reference is that of its resource, unless the cluster is paused.
func FindNetwork(ctx context.Context, client *infraaws.Client, cluster string) (ref types.Object, n awsnetwork.Network, err error) {
	n, spec, err := awsnetwork.Find(ctx, client, cluster)
	if err != nil {
		return ref, n, err
	}
	m := Network{
		Cluster: types.StringValue(cluster), VPCID: types.StringValue(n.VPCID), VPCCIDR: tf.OptionalPrefix(n.VPCCIDR), Subnets: SubnetsValue(ctx, n),
		SecurityGroupIDs: SecurityGroupsValue(n), ControllerPods: types.BoolValue(spec.ControllerPods), Paused: types.BoolValue(false),
	}
	if len(n.Subnets) > 0 {
		m.NodeCIDR = tf.OptionalPrefix(n.Subnets[0].CIDR)
	}
	return OfNetwork.Value(ctx, m), n, nil
}

// SubnetsValue returns the subnets of a network as its reference has them.
func SubnetsValue(ctx context.Context, n awsnetwork.Network) types.List {
	var subnets []attr.Value
	for _, s := range n.Subnets {
		subnets = append(subnets, OfSubnet.Value(ctx, Subnet{
			ID: types.StringValue(s.ID), CIDR: tf.OptionalPrefix(s.CIDR), AvailabilityZone: tf.OptionalString(s.AvailabilityZone), Public: publicValue(s, n.RouteTables),
		}))
	}
	return types.ListValueMust(OfSubnet.Type(), subnets)
}

// SecurityGroupsFrom is the inverse of SecurityGroupsValue. It leaves out ids that are not known.
func SecurityGroupsFrom(m types.Map) map[infraaws.MachineRole]string {
	out := map[infraaws.MachineRole]string{}
	for name, id := range tf.StringMap(m) {
		if id != "" {
			out[infraaws.MachineRole(name)] = id
		}
	}
	return out
}

// SecurityGroupsValue returns the ids of the network's security groups by name.
func SecurityGroupsValue(n awsnetwork.Network) types.Map {
	groups := map[string]string{}
	for role, id := range n.SecurityGroups {
		groups[string(role)] = id
	}
	return tf.StringMapValue(groups)
}

// publicValue says whether a subnet is public. It is null for one of an adopted VPC whose default route
// does not lead to an internet gateway: other routes may.
func publicValue(s awsnetwork.Subnet, ownTables map[string]string) types.Bool {
	if !s.Public && len(ownTables) == 0 {
		return types.BoolNull()
	}
	return types.BoolValue(s.Public)
}
