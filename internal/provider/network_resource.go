package provider

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-nettypes/cidrtypes"
	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
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

	networkCIDR = component.CIDR{Shortest: infraaws.ShortestPrefix, Longest: infraaws.LongestPrefix}

	networkDeadlines = tf.Deadlines{Create: networkTimeout, Read: readTimeout, Update: networkTimeout, Delete: networkDeleteTimeout}
)

type networkResource struct{ base }

func newNetworkResource() resource.Resource { return &networkResource{} }

type networkModel struct {
	ID               types.String         `tfsdk:"id"`
	Cluster          types.String         `tfsdk:"cluster"`
	VPCID            types.String         `tfsdk:"vpc_id"`
	SubnetIDs        types.List           `tfsdk:"subnet_ids"`
	SubnetID         types.String         `tfsdk:"subnet_id"`
	VPCCIDR          cidrtypes.IPv4Prefix `tfsdk:"vpc_cidr"`
	NodeCIDR         cidrtypes.IPv4Prefix `tfsdk:"node_cidr"`
	NodeCIDRs        types.Set            `tfsdk:"node_cidrs"`
	AvailabilityZone types.String         `tfsdk:"availability_zone"`
	InstanceTypes    types.Set            `tfsdk:"instance_types"`
	AdminCIDRs       types.Set            `tfsdk:"admin_cidrs"`
	NodePortCIDRs    types.Set            `tfsdk:"nodeport_cidrs"`
	BastionRole      types.String         `tfsdk:"bastion_role"`
	IgnoreRules      types.Object         `tfsdk:"ignore_rules"`
	Paused           types.Bool           `tfsdk:"paused"`
	Adopt            types.Bool           `tfsdk:"adopt"`
	Tags             types.Map            `tfsdk:"tags"`
	TagsAll          types.Map            `tfsdk:"tags_all"`
	SecurityGroupIDs types.Map            `tfsdk:"security_group_ids"`
	Ref              types.Object         `tfsdk:"ref"`
	Protection       types.Bool           `tfsdk:"deletion_protection"`
	Claim            types.String         `tfsdk:"claim"`
	Drift            types.Map            `tfsdk:"drift"`
	Timeouts         timeouts.Value       `tfsdk:"timeouts"`
}

func (r *networkResource) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = "k8s_network"
}

func (r *networkResource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	own := path.MatchRoot("vpc_id")
	resp.Schema = schema.Schema{
		MarkdownDescription: "The network of one cluster: a VPC with a public subnet, an internet gateway and a route table, and one security group per role with only the rules " +
			"that the role needs. With `vpc_id` and `subnet_ids` an existing VPC is adopted, and only the security groups are created.\n\n" +
			"Everything is tagged with the cluster's name and with whose it is. The next apply finds by these tags what an interrupted one has created. What another " +
			"state has created under the same name is refused before anything is written; see `adopt`.",
		Attributes: map[string]schema.Attribute{
			"id": schema.StringAttribute{
				Computed: true, MarkdownDescription: "Identifier: the cluster's name. Import takes it.",
				PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			},
			"cluster": schema.StringAttribute{
				Required: true, MarkdownDescription: "Name of the cluster. A change replaces the network and every machine in it.",
				Validators:    []validator.String{clusterName()},
				PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
			},
			"vpc_id": schema.StringAttribute{
				Optional: true, Computed: true,
				MarkdownDescription: "VPC to adopt instead of creating one. It is never changed or deleted. A change replaces the network. Default: a VPC is created, and this is its id.",
				Validators:          []validator.String{stringvalidator.AlsoRequires(path.MatchRoot("subnet_ids"))},
				PlanModifiers:       []planmodifier.String{stringplanmodifier.UseStateForUnknown(), stringplanmodifier.RequiresReplaceIfConfigured()},
			},
			"subnet_ids": schema.ListAttribute{
				Optional: true, Computed: true, ElementType: types.StringType,
				MarkdownDescription: "Subnets of the adopted VPC for machines. A machine is in the subnet that contains its `private_ip`, or in the first one if it sets none. A route to " +
					"the pods of every machine is added to the route table of each subnet, whether it is associated with the subnet or is the VPC's main one; nothing else " +
					"in these tables is changed. Changed in place; machines stay where they are. Add subnets at the end, since `node_cidr` is the network of the first " +
					"one. Default: the subnet that is created.",
				Validators: []validator.List{listvalidator.AlsoRequires(own), listvalidator.SizeAtLeast(1), listvalidator.UniqueValues()},
			},
			"subnet_id": schema.StringAttribute{Computed: true, MarkdownDescription: "The first of `subnet_ids`."},
			"vpc_cidr": schema.StringAttribute{
				Optional: true, Computed: true, CustomType: cidrtypes.IPv4PrefixType{},
				MarkdownDescription: "Network of the VPC that is created. A change replaces the network and every machine. Default: `10.240.0.0/16`.",
				Validators:          []validator.String{tf.CIDR(networkCIDR), stringvalidator.ConflictsWith(own)},
				PlanModifiers:       []planmodifier.String{stringplanmodifier.UseStateForUnknown(), stringplanmodifier.RequiresReplaceIfConfigured()},
			},
			"node_cidr": schema.StringAttribute{
				Optional: true, Computed: true, CustomType: cidrtypes.IPv4PrefixType{},
				MarkdownDescription: "Network of the machines, within `vpc_cidr`. A change replaces the network and every machine. Default: `10.240.0.0/24`; with an adopted VPC, the " +
					"network of the first subnet.",
				Validators:    []validator.String{tf.CIDR(networkCIDR), stringvalidator.ConflictsWith(own)},
				PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown(), stringplanmodifier.RequiresReplaceIfConfigured()},
			},
			"node_cidrs": schema.SetAttribute{
				Computed: true, ElementType: cidrtypes.IPv4PrefixType{},
				MarkdownDescription: "Networks of all subnets for machines: the value for `node_cidrs` of `k8s_control_plane`.",
			},
			"availability_zone": schema.StringAttribute{
				Optional: true, Computed: true,
				MarkdownDescription: "Availability zone of the subnet that is created, such as `eu-central-1a`. A change replaces the network and every machine. Default: one that offers `instance_types`.",
				Validators:          []validator.String{stringvalidator.ConflictsWith(own)},
				PlanModifiers:       []planmodifier.String{stringplanmodifier.UseStateForUnknown(), stringplanmodifier.RequiresReplaceIfConfigured()},
			},
			"instance_types": schema.SetAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Instance types that the machines are to have. Not every availability zone offers every type: the subnet is made in one that offers all of these, and an " +
					"`availability_zone` that does not is refused. They matter only when the subnet is created. Default: `" + infraaws.DefaultInstanceType + "`, unless `availability_zone` is set.",
				Validators: []validator.Set{setvalidator.SizeAtLeast(1), setvalidator.ValueStringsAre(instanceTypeName()), setvalidator.ConflictsWith(own)},
			},
			"admin_cidrs": schema.SetAttribute{
				Required: true, ElementType: cidrtypes.IPv4PrefixType{},
				MarkdownDescription: "Networks from which people and Terraform reach the machines by SSH and the API server through the load balancer: usually your own public address as a " +
					"/32. The whole internet (`0.0.0.0/0`) must be written explicitly. Changed in place.",
				Validators: []validator.Set{setvalidator.SizeAtLeast(1), setvalidator.ValueStringsAre(tf.CIDR(component.AnyCIDR))},
			},
			"nodeport_cidrs": schema.SetAttribute{
				Optional: true, ElementType: cidrtypes.IPv4PrefixType{},
				MarkdownDescription: "Networks from which the NodePorts (30000-32767) of workers are reachable. Changed in place. Default: none.",
				Validators:          []validator.Set{setvalidator.ValueStringsAre(tf.CIDR(component.AnyCIDR))},
			},
			"bastion_role": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Role of the machines through which the others are reached: `lb`, `controller` or `worker`. The security groups let SSH in from them to every machine, as the " +
					"provider's `ssh.bastion` needs it when the bastion is a machine of the cluster. Prefer `lb`: pods run on workers, and with `worker` they reach SSH, too. Changed in " +
					"place. Default: none.",
				Validators: []validator.String{stringvalidator.OneOf(string(infraaws.RoleLoadBalancer), string(infraaws.RoleController), string(infraaws.RoleWorker))},
			},
			"ignore_rules": ignoreRulesAttribute(),
			"paused": schema.BoolAttribute{
				Optional: true, Computed: true, Default: booldefault.StaticBool(false),
				MarkdownDescription: "Whether the whole cluster is paused: every `k8s_machine` with this network is stopped, and starts again with `false`. Before the first instance stops, pods are " +
					"ended, then the API servers and the etcd members stop, the leader last. Disks, private addresses, the Elastic IP and host keys stay. While a cluster is paused, the provider " +
					"connects to none of its machines, and other arguments of its resources cannot be changed: see the guide on pausing. To stop one machine, set its `power_state`. Default: `false`.",
			},
			"adopt":    adoptAttribute(),
			protection: protectionAttribute(),
			"tags":     tagsAttribute(),
			"tags_all": tagsAllAttribute(),
			"security_group_ids": schema.MapAttribute{
				Computed: true, ElementType: types.StringType,
				MarkdownDescription: "Id of the security group by role: `lb`, `controller`, `worker`.",
			},
			"ref":   networkRef.Output("Reference: the value for `network` of `k8s_machine`."),
			"claim": claimAttribute(inTags, guardsAll),
			"drift": tf.DriftAttribute(),
		},
		Blocks: map[string]schema.Block{"timeouts": networkDeadlines.Block(ctx)},
	}
}

// tagsAttribute is the argument `tags`.
func tagsAttribute() schema.MapAttribute {
	return schema.MapAttribute{
		Optional: true, ElementType: types.StringType,
		MarkdownDescription: "Tags, added to the provider's `default_tags`, which they override. Changed in place. Default: none.",
		Validators:          tagValidators(),
	}
}

// tagsAllAttribute is the computed attribute `tags_all`.
func tagsAllAttribute() schema.MapAttribute {
	return schema.MapAttribute{
		Computed: true, ElementType: types.StringType,
		MarkdownDescription: "All tags: the provider's `default_tags`, overridden by `tags`.",
	}
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
	client, err := r.data.aws(ctx)
	if err != nil {
		addError(&resp.Diagnostics, "Cannot make network "+m.Cluster.ValueString(), err)
		return
	}
	h, err := r.data.newHolding(ctx, client)
	if err != nil {
		addError(&resp.Diagnostics, "Cannot make network "+m.Cluster.ValueString(), err)
		return
	}
	h.Adopt = m.Adopt.ValueBool()
	adopts := !config.VPCID.IsNull()
	spec := m.spec(networkPrivate{Adopts: adopts})
	spec.Claim = h.Claim
	n, err := client.EnsureNetwork(ctx, spec)
	if err != nil {
		addError(&resp.Diagnostics, "Cannot make network "+m.Cluster.ValueString(), err)
	}
	if n.VPCID == "" {
		return
	}
	if err == nil {
		r.data.claims.made(h.Claim, n.Unsettled, nil)
	}
	m.fill(ctx, n)
	m.Claim = types.StringValue(h.ID)
	tf.WritePrivate(ctx, resp.Private, holdingKey, h, &resp.Diagnostics)
	tf.WritePrivate(ctx, resp.Private, networkKey, networkPrivate{adopts, routeTableOf(n)}, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

func (r *networkResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var m networkModel
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	private := tf.ReadPrivate[networkPrivate](ctx, req.Private, networkKey, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := tf.WithTimeout(ctx, m.Timeouts.Read, readTimeout, &resp.Diagnostics)
	defer cancel()
	client, ok := r.data.awsForRead(ctx, "Cannot refresh network "+m.Cluster.ValueString(), &resp.Diagnostics)
	if !ok {
		return
	}
	h := readHolding(ctx, req.Private, m.Claim, &resp.Diagnostics)
	var n infraaws.Network
	var drift []finding.Finding
	err := r.data.checked(ctx, client, h)
	if err == nil {
		private, err = private.recovered(ctx, client, h, m)
	}
	if err == nil {
		spec := m.spec(private)
		spec.Claim = h.Claim
		n, drift, err = client.ObserveNetwork(ctx, spec)
	}
	if err == nil {
		h, err = r.data.recovered(ctx, client, h, n.Claim)
	}
	switch {
	case errors.Is(err, infraaws.ErrNotFound):
		resp.Diagnostics.AddWarning("Network "+m.Cluster.ValueString()+" is gone", err.Error()+"\n\nThe next apply creates it again, or adopts the VPC in vpc_id.")
		resp.State.RemoveResource(ctx)
		return
	case err != nil:
		addError(&resp.Diagnostics, "Cannot refresh network "+m.Cluster.ValueString(), err)
		return
	}
	r.data.settle(ctx, client, h, n.Unsettled)
	m.fill(ctx, n)
	m.Claim, m.Drift = tf.OptionalString(h.ID), driftValue(drift)
	tf.WritePrivate(ctx, resp.Private, holdingKey, h, &resp.Diagnostics)
	if table := routeTableOf(n); table != "" {
		private.RouteTableID = table
	}
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
	if onlyProtection(req) {
		resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
		return
	}
	ctx, cancel := tf.WithTimeout(ctx, m.Timeouts.Update, networkTimeout, &resp.Diagnostics)
	defer cancel()
	client, err := r.data.aws(ctx)
	if err != nil {
		addError(&resp.Diagnostics, "Cannot change network "+m.Cluster.ValueString(), err)
		return
	}
	h, err := r.data.forUpdate(ctx, client, readHolding(ctx, req.Private, state.Claim, &resp.Diagnostics), m.Adopt)
	if err == nil {
		private, err = private.recovered(ctx, client, h, state)
	}
	if err != nil {
		addError(&resp.Diagnostics, "Cannot change network "+m.Cluster.ValueString(), err)
		return
	}
	tf.WritePrivate(ctx, resp.Private, holdingKey, h, &resp.Diagnostics)
	spec := m.spec(private)
	spec.Claim = h.Claim
	spec.Known = state.known(private)
	spec.RemoveTags = removedKeys(state.TagsAll, m.TagsAll)
	n, err := client.EnsureNetwork(ctx, spec)
	if err != nil {
		addError(&resp.Diagnostics, "Cannot change network "+m.Cluster.ValueString(), err)
		return
	}
	m.fill(ctx, n)
	private.RouteTableID = routeTableOf(n)
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
	if !mayDelete(ctx, "network "+m.Cluster.ValueString(), req.State, &resp.Diagnostics) {
		return
	}
	ctx, cancel := tf.WithTimeout(ctx, m.Timeouts.Delete, networkDeleteTimeout, &resp.Diagnostics)
	defer cancel()
	h := readHolding(ctx, req.Private, m.Claim, &resp.Diagnostics)
	client, err := r.data.aws(ctx)
	if err == nil {
		err = r.data.checked(ctx, client, h)
	}
	if err == nil {
		private, err = private.recovered(ctx, client, h, m)
	}
	if err == nil {
		spec := m.spec(private)
		spec.Claim = h.Claim
		err = client.DeleteNetwork(ctx, spec)
	}
	if errors.Is(err, infraaws.ErrNotFound) {
		err = nil
	}
	r.data.claims.gone(h.Claim)
	if err != nil && !addKept(&resp.Diagnostics, "Network "+m.Cluster.ValueString(), err) {
		addError(&resp.Diagnostics, "Cannot delete network "+m.Cluster.ValueString(), err)
	}
}

func (r *networkResource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	client, err := r.data.aws(ctx)
	if err != nil {
		addError(&resp.Diagnostics, "Cannot import network "+req.ID, err)
		return
	}
	n, spec, err := client.FindNetwork(ctx, req.ID)
	var h holding
	if err == nil {
		h, err = r.data.imported(ctx, client, n.Claim)
	}
	if err != nil {
		addError(&resp.Diagnostics, "Cannot import network "+req.ID, err)
		return
	}
	m := networkModel{
		Cluster:     types.StringValue(req.ID),
		AdminCIDRs:  tf.PrefixesValue(spec.AdminCIDRs),
		BastionRole: tf.OptionalString(string(spec.BastionRole)),
		Tags:        types.MapNull(types.StringType),
		TagsAll:     r.data.tagsAll(types.MapNull(types.StringType)),
		// Null and empty mean the same; an import chooses null.
		NodePortCIDRs: types.SetNull(cidrtypes.IPv4PrefixType{}),
		InstanceTypes: types.SetNull(types.StringType), // they mattered for the choice of the zone only
		IgnoreRules:   noIgnoreRules(),
		Paused:        types.BoolValue(false),
	}
	if len(spec.NodePortCIDRs) > 0 {
		m.NodePortCIDRs = tf.PrefixesValue(spec.NodePortCIDRs)
	}
	if spec.Tags != nil {
		m.Tags = tf.StringMapValue(spec.Tags)
		m.TagsAll = r.data.tagsAll(m.Tags)
	}
	m.fill(ctx, n)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("cluster"), m.Cluster)...)
	var state networkModel
	resp.Diagnostics.Append(resp.State.Get(ctx, &state)...)
	m.Timeouts, m.Claim = state.Timeouts, types.StringValue(h.ID)
	tf.WritePrivate(ctx, resp.Private, holdingKey, h, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// networkKey is the private-state entry of networkPrivate.
const networkKey = "network"

// networkPrivate is the resource's entry in private state.
type networkPrivate struct {
	Adopts bool `json:"adopts"`
	// RouteTableID identifies the network's own route table if it has lost its tags.
	RouteTableID string `json:"route_table_id,omitempty"`
}

// recovered returns the entry, also if the private state was lost: the VPC's tags say whether it
// was made or adopted.
func (p networkPrivate) recovered(ctx context.Context, client *infraaws.Client, h holding, m networkModel) (networkPrivate, error) {
	if !h.lost() {
		return p, nil
	}
	made, err := client.MadeVPC(ctx, m.Cluster.ValueString(), m.VPCID.ValueString())
	return networkPrivate{Adopts: !made}, err
}

// routeTableOf returns the route table of the first subnet.
func routeTableOf(n infraaws.Network) string {
	if len(n.Subnets) == 0 {
		return ""
	}
	return n.Subnets[0].RouteTableID
}

func (m networkModel) spec(private networkPrivate) infraaws.NetworkSpec {
	s := infraaws.NetworkSpec{
		Cluster:          m.Cluster.ValueString(),
		VPCCIDR:          tf.Prefix(m.VPCCIDR),
		NodeCIDR:         tf.Prefix(m.NodeCIDR),
		InstanceTypes:    tf.Strings(m.InstanceTypes.Elements()),
		AvailabilityZone: m.AvailabilityZone.ValueString(),
		AdminCIDRs:       tf.Prefixes(m.AdminCIDRs),
		NodePortCIDRs:    tf.Prefixes(m.NodePortCIDRs),
		BastionRole:      infraaws.Role(m.BastionRole.ValueString()),
		IgnoreRules:      ignoreRulesFrom(m.IgnoreRules),
		Tags:             tf.StringMap(m.Tags),
		Known:            m.known(private),
	}
	if private.Adopts {
		s.VPCID, s.SubnetIDs = m.VPCID.ValueString(), tf.Strings(m.SubnetIDs.Elements())
	}
	return s
}

// known returns the ids in the state.
func (m networkModel) known(private networkPrivate) infraaws.Network {
	n := infraaws.Network{Cluster: m.Cluster.ValueString(), VPCID: m.VPCID.ValueString(), SecurityGroups: map[infraaws.Role]string{}}
	for role, id := range tf.StringMap(m.SecurityGroupIDs) {
		n.SecurityGroups[infraaws.Role(role)] = id
	}
	n.Subnets = append(n.Subnets, infraaws.Subnet{RouteTableID: private.RouteTableID})
	for _, id := range tf.Strings(m.SubnetIDs.Elements()) {
		n.Subnets = append(n.Subnets, infraaws.Subnet{ID: id})
	}
	return n
}

// fill sets all computed attributes from the network that was found.
func (m *networkModel) fill(ctx context.Context, n infraaws.Network) {
	m.ID = m.Cluster
	m.VPCID, m.VPCCIDR = types.StringValue(n.VPCID), tf.OptionalPrefix(n.VPCCIDR)
	m.SubnetID = types.StringNull()
	if m.AvailabilityZone.IsUnknown() {
		m.AvailabilityZone = types.StringNull()
	}
	var ids, subnets []attr.Value
	var cidrs []netip.Prefix
	for _, s := range n.Subnets {
		cidrs = append(cidrs, s.CIDR)
		ids = append(ids, types.StringValue(s.ID))
		subnets = append(subnets, subnetRef.Value(ctx, subnetModel{ID: types.StringValue(s.ID), CIDR: tf.OptionalPrefix(s.CIDR)}))
	}
	if len(n.Subnets) > 0 {
		first := n.Subnets[0]
		m.NodeCIDRs = tf.PrefixesValue(cidrs)
		m.SubnetID, m.NodeCIDR, m.AvailabilityZone = types.StringValue(first.ID), tf.OptionalPrefix(first.CIDR), tf.OptionalString(first.AvailabilityZone)
	}
	m.SubnetIDs = types.ListValueMust(types.StringType, ids)
	groups := map[string]string{}
	for role, id := range n.SecurityGroups {
		groups[string(role)] = id
	}
	m.SecurityGroupIDs = tf.StringMapValue(groups)
	m.Drift = tf.NoDrift()
	if m.NodeCIDR.IsUnknown() {
		m.NodeCIDR = cidrtypes.NewIPv4PrefixNull()
	}
	if m.NodeCIDRs.IsNull() || m.NodeCIDRs.IsUnknown() {
		m.NodeCIDRs = tf.PrefixesValue(nil)
	}
	m.Ref = m.ref(ctx, types.ListValueMust(subnetRef.Type(), subnets))
}

// removedKeys returns the tag keys of before that are not in after.
func removedKeys(before, after types.Map) []string {
	now := tf.StringMap(after)
	var out []string
	for k := range tf.StringMap(before) {
		if _, still := now[k]; !still {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}
