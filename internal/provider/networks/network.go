// Package networks has the resources of what is between machines: k8s_network, and k8s_nlb, the load balancer of
// AWS. It knows no machine but as a target.
package networks

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-nettypes/cidrtypes"
	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsnetwork "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/owned"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

var (
	defaultVPCCIDR    = netip.MustParsePrefix("10.240.0.0/16")
	defaultSubnetCIDR = netip.MustParsePrefix("10.240.0.0/24")

	networkCIDR = component.CIDR{Shortest: awsnetwork.ShortestPrefix, Longest: awsnetwork.LongestPrefix}
)

type networkResource struct {
	owned.Resource[networkModel, *networkModel]
}

func NewNetwork() resource.Resource { return newNetwork() }

func newNetwork() *networkResource {
	r := &networkResource{}
	r.Resource = owned.Resource[networkModel, *networkModel]{
		Kind: r, Name: "network", What: "network", By: "cluster",
		WhenGone:  "The next apply creates it again, or adopts the VPC in vpc_id.",
		Deadlines: tf.Deadlines{Create: networkTimeout, Read: argument.ReadTimeout, Update: networkTimeout, Delete: networkDeleteTimeout},
	}
	return r
}

type networkModel struct {
	owned.Model
	Cluster           types.String         `tfsdk:"cluster"`
	VPCID             types.String         `tfsdk:"vpc_id"`
	SubnetIDs         types.List           `tfsdk:"subnet_ids"`
	SubnetID          types.String         `tfsdk:"subnet_id"`
	VPCCIDR           cidrtypes.IPv4Prefix `tfsdk:"vpc_cidr"`
	NodeCIDR          cidrtypes.IPv4Prefix `tfsdk:"node_cidr"`
	NodeCIDRs         types.List           `tfsdk:"node_cidrs"`
	PublicCIDR        cidrtypes.IPv4Prefix `tfsdk:"public_cidr"`
	Subnets           types.List           `tfsdk:"subnets"`
	Zones             types.List           `tfsdk:"availability_zones"`
	ZoneCount         types.Int64          `tfsdk:"zone_count"`
	NATGateways       types.String         `tfsdk:"nat_gateways"`
	NATIPs            types.Map            `tfsdk:"nat_ips"`
	InstanceTypes     types.Set            `tfsdk:"instance_types"`
	AdminCIDRs        types.Set            `tfsdk:"admin_cidrs"`
	NodePortCIDRs     types.Set            `tfsdk:"nodeport_cidrs"`
	BastionRole       types.String         `tfsdk:"bastion_role"`
	ControllerPods    types.Bool           `tfsdk:"controller_pods"`
	InstanceConnect   types.Bool           `tfsdk:"instance_connect_endpoint"`
	InstanceConnectID types.String         `tfsdk:"instance_connect_endpoint_id"`
	IgnoreRules       types.Object         `tfsdk:"ignore_rules"`
	DeleteLeftovers   types.Bool           `tfsdk:"delete_leftovers"`
	Paused            types.Bool           `tfsdk:"paused"`
	ExpiresAt         timetypes.RFC3339    `tfsdk:"expires_at"`
	Expired           types.Bool           `tfsdk:"expired"`
	SecurityGroupIDs  types.Map            `tfsdk:"security_group_ids"`
	Ref               types.Object         `tfsdk:"ref"`
}

// Make implements owned.Kind.
func (r *networkResource) Make(ctx context.Context, op *owned.Operation, m *networkModel) error {
	var id types.String
	op.Diags.Append(op.Config.GetAttribute(ctx, path.Root("vpc_id"), &id)...)
	private := networkPrivate{Adopts: !id.IsNull()}
	n, err := awsnetwork.Ensure(ctx, op.Client, m.wanted(op, private))
	if n.VPCID != "" {
		op.Exists(n.Claim, n.Unsettled)
		m.fill(ctx, n)
		private.remember(ctx, op, n)
	}
	return err
}

// Look implements owned.Kind.
func (r *networkResource) Look(ctx context.Context, op *owned.Operation, m *networkModel) error {
	private, err := m.private(ctx, op)
	if err != nil {
		return err
	}
	n, drift, err := awsnetwork.Observe(ctx, op.Client, m.wanted(op, private))
	if err != nil {
		return err
	}
	op.Exists(n.Claim, n.Unsettled)
	op.Drift = drift
	m.Expired = types.BoolValue(m.reference().Expired(r.Session.Now()))
	m.fill(ctx, n)
	private.remember(ctx, op, n)
	return nil
}

// Change implements owned.Kind.
func (r *networkResource) Change(ctx context.Context, op *owned.Operation, m, state *networkModel) error {
	private, err := state.private(ctx, op)
	if err != nil {
		return err
	}
	spec := m.wanted(op, private)
	spec.Known = state.known(private)
	n, err := awsnetwork.Ensure(ctx, op.Client, spec)
	if err != nil {
		return err
	}
	m.fill(ctx, n)
	private.remember(ctx, op, n)
	return nil
}

// Remove implements owned.Kind.
func (r *networkResource) Remove(ctx context.Context, op *owned.Operation, m *networkModel) error {
	private, err := m.private(ctx, op)
	if err == nil {
		err = awsnetwork.Delete(ctx, op.Client, m.wanted(op, private))
	}
	if errors.Is(err, infraaws.ErrNotFound) {
		return nil
	}
	return err
}

// Find implements owned.Kind.
func (r *networkResource) Find(ctx context.Context, op *owned.Operation, cluster string, m *networkModel) error {
	n, spec, err := awsnetwork.Find(ctx, op.Client, cluster)
	if err != nil {
		return err
	}
	op.Exists(n.Claim, n.Unsettled)
	m.Cluster, m.Paused, m.Expired, m.Tags = types.StringValue(cluster), types.BoolValue(false), types.BoolValue(false), op.Tags(spec.Tags)
	m.AdminCIDRs = tf.PrefixesValue(spec.AdminCIDRs)
	m.DeleteLeftovers = types.BoolValue(false)
	m.BastionRole, m.ControllerPods, m.InstanceConnect = tf.OptionalString(string(spec.BastionRole)), types.BoolValue(spec.ControllerPods), types.BoolValue(spec.InstanceConnect)
	m.NodeCIDR, m.PublicCIDR = tf.OptionalPrefix(spec.NodeCIDR), tf.OptionalPrefix(spec.PublicCIDR)
	m.NATGateways = tf.OptionalString(string(spec.NATGateways))
	if len(spec.NodePortCIDRs) > 0 { // null and empty mean the same; an import chooses null
		m.NodePortCIDRs = tf.PrefixesValue(spec.NodePortCIDRs)
	}
	m.fill(ctx, n)
	return nil
}

// A VPC with its parts takes seconds; the rest allows for throttling.
const networkTimeout = 5 * time.Minute

// EC2 refuses to delete a subnet until the interfaces of terminated machines are gone, which
// can take minutes.
const networkDeleteTimeout = 15 * time.Minute
