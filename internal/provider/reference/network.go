// Package reference is what one resource outputs and others take as input: each with its model, its attributes
// and its conversions to and from the library's types. It also finds what an import refers to. It plans and
// changes nothing.
package reference

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-nettypes/cidrtypes"
	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsnetwork "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// References are objects that one resource outputs and others take as input. They contain what is
// needed to work with the resource, and no secrets unless the description says so. Each is defined
// here with its model, its attributes and its conversion to the library's type.

// Subnet is one of the subnets of a network.
type Subnet struct {
	ID               types.String         `tfsdk:"id"`
	CIDR             cidrtypes.IPv4Prefix `tfsdk:"cidr"`
	AvailabilityZone types.String         `tfsdk:"availability_zone"`
	Public           types.Bool           `tfsdk:"public"`
}

var OfSubnet = tf.NewReference[Subnet](map[string]schema.Attribute{
	"id":                schema.StringAttribute{Required: true, MarkdownDescription: "Id of the subnet. Routes to pods are added to the route table that applies to it."},
	"cidr":              schema.StringAttribute{Required: true, CustomType: cidrtypes.IPv4PrefixType{}, MarkdownDescription: "Network of the subnet."},
	"availability_zone": schema.StringAttribute{Optional: true, MarkdownDescription: "Availability zone of the subnet."},
	"public":            schema.BoolAttribute{Optional: true, MarkdownDescription: "Whether the subnet's default route leads to an internet gateway; null if it does not in an adopted VPC."},
})

// Network is k8s_network.x.ref.
type Network struct {
	Cluster          types.String         `tfsdk:"cluster"`
	VPCID            types.String         `tfsdk:"vpc_id"`
	NodeCIDR         cidrtypes.IPv4Prefix `tfsdk:"node_cidr"`
	VPCCIDR          cidrtypes.IPv4Prefix `tfsdk:"vpc_cidr"`
	Subnets          types.List           `tfsdk:"subnets"`
	SecurityGroupIDs types.Map            `tfsdk:"security_group_ids"`
	ControllerPods   types.Bool           `tfsdk:"controller_pods"`
	Paused           types.Bool           `tfsdk:"paused"`
	ExpiresAt        timetypes.RFC3339    `tfsdk:"expires_at"`
}

var OfNetwork = tf.NewReference[Network](map[string]schema.Attribute{
	"cluster": clusterAttribute(),
	"vpc_id":  schema.StringAttribute{Required: true, MarkdownDescription: "Id of the VPC."},
	"vpc_cidr": schema.StringAttribute{
		Required: true, CustomType: cidrtypes.IPv4PrefixType{}, MarkdownDescription: "Network of the VPC.",
		Validators: []validator.String{tf.CIDR(component.ClusterCIDR)},
	},
	"node_cidr": schema.StringAttribute{
		Required: true, CustomType: cidrtypes.IPv4PrefixType{}, MarkdownDescription: "Network of the machines.",
		Validators: []validator.String{tf.CIDR(component.ClusterCIDR)},
	},
	"subnets": OfSubnet.Inputs("Subnets for machines."),
	"security_group_ids": schema.MapAttribute{
		Required: true, ElementType: types.StringType,
		MarkdownDescription: "Ids of security groups: of each role (`lb`, `controller`, `etcd`, `worker`), and `ssh`, which every machine has as well.",
	},
	"controller_pods": schema.BoolAttribute{Optional: true, MarkdownDescription: "Whether controllers may be nodes. Default: `false`."},
	"paused":          schema.BoolAttribute{Optional: true, MarkdownDescription: "Whether the cluster is paused, and all of its machines are stopped. Default: `false`."},
	"expires_at":      schema.StringAttribute{Optional: true, CustomType: timetypes.RFC3339Type{}, MarkdownDescription: "When the machines power themselves off, as RFC 3339. Default: never."},
})

// MachineGroups returns the ids of the network's security groups that a machine of the role has, as far as they are known.
func (m Network) MachineGroups(role infraaws.MachineRole) []string {
	return awsnetwork.Network{SecurityGroups: SecurityGroupsFrom(m.SecurityGroupIDs)}.MachineGroups(role)
}

// KnownSubnets returns the subnets all of whose attributes are known.
func (m Network) KnownSubnets(ctx context.Context, diags *diag.Diagnostics) []Subnet {
	out, _ := tf.Objects[Subnet](ctx, m.Subnets, diags)
	return out
}

// KnownSubnetIDs returns the ids of all subnets, and whether they are known.
func (m Network) KnownSubnetIDs(ctx context.Context, diags *diag.Diagnostics) (ids []string, known bool) {
	for _, s := range m.KnownSubnets(ctx, diags) {
		ids = append(ids, s.ID.ValueString())
	}
	return ids, len(ids) > 0 && tf.AllKnown(m.Subnets)
}

// Time returns the time that an argument has, the zero time if it has none or it is not known yet.
func Time(at timetypes.RFC3339) time.Time {
	if at.IsNull() || at.IsUnknown() {
		return time.Time{}
	}
	t, _ := at.ValueRFC3339Time() // the type has validated it
	return t
}

// Expired reports whether the time has come at which the machines power themselves off.
func (m Network) Expired(now time.Time) bool {
	at := Time(m.ExpiresAt)
	return !at.IsZero() && !now.Before(at)
}

// WhyPaused says of a network that is paused why it is, and what resumes it.
func (m Network) WhyPaused(now time.Time) (why, resume string) {
	if m.Expired(now) {
		return fmt.Sprintf("expires_at of k8s_network, %s, has passed", m.ExpiresAt.ValueString()), "a later expires_at, or none"
	}
	return "k8s_network has paused = true", "paused = false"
}
