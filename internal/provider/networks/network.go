// Package networks has the resources of what is between machines: k8s_network, and k8s_nlb, the load balancer of
// AWS. It knows no machine but as a target.
package networks

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-nettypes/cidrtypes"
	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsnetwork "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

var (
	_ resource.ResourceWithConfigure   = (*networkResource)(nil)
	_ resource.ResourceWithModifyPlan  = (*networkResource)(nil)
	_ resource.ResourceWithImportState = (*networkResource)(nil)
)

var (
	defaultVPCCIDR    = netip.MustParsePrefix("10.240.0.0/16")
	defaultSubnetCIDR = netip.MustParsePrefix("10.240.0.0/24")

	networkCIDR = component.CIDR{Shortest: awsnetwork.ShortestPrefix, Longest: awsnetwork.LongestPrefix}

	networkDeadlines = tf.Deadlines{Create: networkTimeout, Read: argument.ReadTimeout, Update: networkTimeout, Delete: networkDeleteTimeout}
)

type networkResource struct{ session.Base }

func NewNetwork() resource.Resource { return &networkResource{} }

type networkModel struct {
	ID                types.String         `tfsdk:"id"`
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
	Paused            types.Bool           `tfsdk:"paused"`
	Adopt             types.Bool           `tfsdk:"adopt"`
	Tags              types.Map            `tfsdk:"tags"`
	TagsAll           types.Map            `tfsdk:"tags_all"`
	SecurityGroupIDs  types.Map            `tfsdk:"security_group_ids"`
	Ref               types.Object         `tfsdk:"ref"`
	Protection        types.Bool           `tfsdk:"deletion_protection"`
	Claim             types.String         `tfsdk:"claim"`
	Drift             types.Map            `tfsdk:"drift"`
	Timeouts          timeouts.Value       `tfsdk:"timeouts"`
}

func (r *networkResource) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = "k8s_network"
}

func (r *networkResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var config, m networkModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := tf.WithTimeout(ctx, m.Timeouts.Create, networkTimeout, &resp.Diagnostics)
	defer cancel()
	client, err := r.Session.AWS(ctx)
	if err != nil {
		session.AddError(&resp.Diagnostics, "Cannot make network "+m.Cluster.ValueString(), err)
		return
	}
	h, err := r.Session.NewHolding(ctx, client)
	if err != nil {
		session.AddError(&resp.Diagnostics, "Cannot make network "+m.Cluster.ValueString(), err)
		return
	}
	h.Adopt = m.Adopt.ValueBool()
	adopts := !config.VPCID.IsNull()
	spec := m.spec(networkPrivate{Adopts: adopts})
	spec.Claim = h.Claim
	n, err := awsnetwork.Ensure(ctx, client, spec)
	if err != nil {
		session.AddError(&resp.Diagnostics, "Cannot make network "+m.Cluster.ValueString(), err)
	}
	if n.VPCID == "" {
		return
	}
	if err == nil {
		r.Session.Claims.Made(h.Claim, n.Unsettled, nil)
	}
	m.fill(ctx, n)
	m.Claim = types.StringValue(h.ID)
	private := networkPrivate{Adopts: adopts}
	private.remember(n)
	tf.WritePrivate(ctx, resp.Private, session.HoldingKey, h, &resp.Diagnostics)
	tf.WritePrivate(ctx, resp.Private, networkKey, private, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

func (r *networkResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var m networkModel
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	private := tf.ReadPrivate[networkPrivate](ctx, req.Private, networkKey, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := tf.WithTimeout(ctx, m.Timeouts.Read, argument.ReadTimeout, &resp.Diagnostics)
	defer cancel()
	client, ok := r.Session.AWSForRead(ctx, "Cannot refresh network "+m.Cluster.ValueString(), &resp.Diagnostics)
	if !ok {
		return
	}
	h := session.ReadHolding(ctx, req.Private, m.Claim, &resp.Diagnostics)
	var n awsnetwork.Network
	var drift []finding.Finding
	err := r.Session.Checked(ctx, client, h)
	if err == nil {
		private, err = private.recovered(ctx, client, h, m)
	}
	if err == nil {
		spec := m.spec(private)
		spec.Claim = h.Claim
		n, drift, err = awsnetwork.Observe(ctx, client, spec)
	}
	if err == nil {
		h, err = r.Session.Recovered(ctx, client, h, n.Claim)
	}
	switch {
	case errors.Is(err, infraaws.ErrNotFound):
		resp.Diagnostics.AddWarning("Network "+m.Cluster.ValueString()+" is gone", err.Error()+"\n\nThe next apply creates it again, or adopts the VPC in vpc_id.")
		resp.State.RemoveResource(ctx)
		return
	case err != nil:
		session.AddError(&resp.Diagnostics, "Cannot refresh network "+m.Cluster.ValueString(), err)
		return
	}
	r.Session.Settle(ctx, client, h, n.Unsettled)
	m.fill(ctx, n)
	m.Claim, m.Drift = tf.OptionalString(h.ID), argument.DriftValue(drift)
	tf.WritePrivate(ctx, resp.Private, session.HoldingKey, h, &resp.Diagnostics)
	private.remember(n)
	tf.WritePrivate(ctx, resp.Private, networkKey, private, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

func (r *networkResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var m, state networkModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	private := tf.ReadPrivate[networkPrivate](ctx, req.Private, networkKey, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	if argument.OnlyProtection(req) {
		resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
		return
	}
	ctx, cancel := tf.WithTimeout(ctx, m.Timeouts.Update, networkTimeout, &resp.Diagnostics)
	defer cancel()
	client, err := r.Session.AWS(ctx)
	if err != nil {
		session.AddError(&resp.Diagnostics, "Cannot change network "+m.Cluster.ValueString(), err)
		return
	}
	h, err := r.Session.ForUpdate(ctx, client, session.ReadHolding(ctx, req.Private, state.Claim, &resp.Diagnostics), m.Adopt)
	if err == nil {
		private, err = private.recovered(ctx, client, h, state)
	}
	if err != nil {
		session.AddError(&resp.Diagnostics, "Cannot change network "+m.Cluster.ValueString(), err)
		return
	}
	tf.WritePrivate(ctx, resp.Private, session.HoldingKey, h, &resp.Diagnostics)
	spec := m.spec(private)
	spec.Claim = h.Claim
	spec.Known = state.known(private)
	spec.RemoveTags = argument.RemovedKeys(state.TagsAll, m.TagsAll)
	n, err := awsnetwork.Ensure(ctx, client, spec)
	if err != nil {
		session.AddError(&resp.Diagnostics, "Cannot change network "+m.Cluster.ValueString(), err)
		return
	}
	m.fill(ctx, n)
	private.remember(n)
	tf.WritePrivate(ctx, resp.Private, networkKey, private, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

func (r *networkResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var m networkModel
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	private := tf.ReadPrivate[networkPrivate](ctx, req.Private, networkKey, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	if !argument.MayDelete(ctx, "network "+m.Cluster.ValueString(), req.State, &resp.Diagnostics) {
		return
	}
	ctx, cancel := tf.WithTimeout(ctx, m.Timeouts.Delete, networkDeleteTimeout, &resp.Diagnostics)
	defer cancel()
	h := session.ReadHolding(ctx, req.Private, m.Claim, &resp.Diagnostics)
	client, err := r.Session.AWS(ctx)
	if err == nil {
		err = r.Session.Checked(ctx, client, h)
	}
	if err == nil {
		private, err = private.recovered(ctx, client, h, m)
	}
	if err == nil {
		spec := m.spec(private)
		spec.Claim = h.Claim
		err = awsnetwork.Delete(ctx, client, spec)
	}
	if errors.Is(err, infraaws.ErrNotFound) {
		err = nil
	}
	r.Session.Claims.Gone(h.Claim)
	if err != nil && !session.AddKept(&resp.Diagnostics, "Network "+m.Cluster.ValueString(), err) {
		session.AddError(&resp.Diagnostics, "Cannot delete network "+m.Cluster.ValueString(), err)
	}
}

func (r *networkResource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	client, err := r.Session.AWS(ctx)
	if err != nil {
		session.AddError(&resp.Diagnostics, "Cannot import network "+req.ID, err)
		return
	}
	n, spec, err := awsnetwork.Find(ctx, client, req.ID)
	var h session.Holding
	if err == nil {
		h, err = r.Session.Imported(ctx, client, n.Claim)
	}
	if err != nil {
		session.AddError(&resp.Diagnostics, "Cannot import network "+req.ID, err)
		return
	}
	m := networkModel{
		Cluster:     types.StringValue(req.ID),
		AdminCIDRs:  tf.PrefixesValue(spec.AdminCIDRs),
		BastionRole: tf.OptionalString(string(spec.BastionRole)), ControllerPods: types.BoolValue(spec.ControllerPods), InstanceConnect: types.BoolValue(spec.InstanceConnect),
		Tags:    types.MapNull(types.StringType),
		TagsAll: r.Session.FoundTags(types.MapNull(types.StringType)),
		// Null and empty mean the same; an import chooses null.
		NodePortCIDRs: types.SetNull(cidrtypes.IPv4PrefixType{}),
		InstanceTypes: types.SetNull(types.StringType), // they mattered for the choice of the zone only
		IgnoreRules:   noIgnoreRules(),
		Paused:        types.BoolValue(false),
		NodeCIDR:      tf.OptionalPrefix(spec.NodeCIDR),
		PublicCIDR:    tf.OptionalPrefix(spec.PublicCIDR),
		NATGateways:   tf.OptionalString(string(spec.NATGateways)),
	}
	if len(spec.NodePortCIDRs) > 0 {
		m.NodePortCIDRs = tf.PrefixesValue(spec.NodePortCIDRs)
	}
	if spec.Tags != nil {
		m.Tags = tf.StringMapValue(spec.Tags)
		m.TagsAll = r.Session.FoundTags(m.Tags)
	}
	m.fill(ctx, n)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("cluster"), m.Cluster)...)
	var state networkModel
	resp.Diagnostics.Append(resp.State.Get(ctx, &state)...)
	m.Timeouts, m.Claim = state.Timeouts, types.StringValue(h.ID)
	tf.WritePrivate(ctx, resp.Private, session.HoldingKey, h, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// A VPC with its parts takes seconds; the rest allows for throttling.
const networkTimeout = 5 * time.Minute

// EC2 refuses to delete a subnet until the interfaces of terminated machines are gone, which
// can take minutes.
const networkDeleteTimeout = 15 * time.Minute
