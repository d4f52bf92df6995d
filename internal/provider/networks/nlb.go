package networks

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/addressplan"
	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/balancer"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/owned"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// nlbResource is a Network Load Balancer for the cluster's machines, and one that faces the internet.
type nlbResource struct {
	owned.Resource[nlbModel, *nlbModel]
}

func NewNLB() resource.Resource { return newNLB() }

func newNLB() *nlbResource {
	r := &nlbResource{}
	r.Resource = owned.Resource[nlbModel, *nlbModel]{
		Kind: r, Name: "nlb", What: "the network load balancer of cluster", By: "id",
		Deadlines: tf.Deadlines{Create: nlbTimeout, Read: argument.ReadTimeout, Update: nlbTimeout, Delete: nlbTimeout},
	}
	return r
}

type nlbModel struct {
	owned.Model
	Network         types.Object `tfsdk:"network"`
	Controllers     types.List   `tfsdk:"controllers"`
	Zones           types.Set    `tfsdk:"availability_zones"`
	Public          types.Bool   `tfsdk:"public"`
	Internal        types.Object `tfsdk:"internal"`
	InternetFacing  types.Object `tfsdk:"internet_facing"`
	Endpoint        types.String `tfsdk:"endpoint"`
	PrivateEndpoint types.String `tfsdk:"private_endpoint"`
	Ref             types.Object `tfsdk:"ref"`
}

// balancerModel is one of the load balancers.
type balancerModel struct {
	ARN     types.String `tfsdk:"arn"`
	DNSName types.String `tfsdk:"dns_name"`
	ZoneID  types.String `tfsdk:"zone_id"`
}

var balancerRef = tf.NewReference[balancerModel](map[string]schema.Attribute{
	"arn":      reference.Required("ARN of the load balancer."),
	"dns_name": reference.Required("Name of the load balancer."),
	"zone_id":  reference.Required("Hosted zone of `dns_name`, for an alias record in Route 53."),
})

// Schema implements resource.Resource.
func (r *nlbResource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Network Load Balancers of AWS in front of the API servers, in place of `k8s_lb`: an internal one for the cluster's machines, and with `public` another one that faces the " +
			"internet. The endpoint does not depend on a single machine.",
		Attributes: owned.With(ctx, r.Deadlines, map[string]schema.Attribute{
			"id": schema.StringAttribute{
				Computed: true, MarkdownDescription: "Identifier: the cluster's name. Import takes it.", PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			},
			"network": reference.OfNetwork.Input("Network of the cluster: `k8s_network.<name>.ref`. The load balancers are in one of its subnets in each availability zone: the internal one in a private subnet if there " +
				"is one, and the other one in a public subnet. Another VPC replaces them and changes their names."),
			"controllers": reference.HostsAttribute("Machines of the API servers, which are EC2 instances. A change registers and deregisters them; open connections to others are kept.", listvalidator.SizeAtLeast(1)),
			"availability_zones": schema.SetAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Zones of the network in which the load balancers are. Changed in place. Before you remove a zone from the network, remove it here in a separate apply. Default: all zones " +
					"of the network.",
				Validators: []validator.Set{setvalidator.SizeAtLeast(1)},
			},
			"public": schema.BoolAttribute{
				Optional: true, Computed: true, Default: booldefault.StaticBool(true),
				MarkdownDescription: "Whether a second load balancer faces the internet, as the public endpoint. With `false`, `endpoint` is the private endpoint. Changed in place: `false` deletes the load " +
					"balancer, and kubeconfigs with its name no longer work. Default: `true`.",
			},
			"internal":         balancerRef.Output("Load balancer for the cluster's machines. Its name leads to private addresses."),
			"internet_facing":  balancerRef.Output("Load balancer for people and Terraform. Null with `public = false`."),
			"endpoint":         schema.StringAttribute{Computed: true, MarkdownDescription: reference.PublicEndpoint},
			"private_endpoint": schema.StringAttribute{Computed: true, MarkdownDescription: reference.PrivateEndpoint},
			"ref":              reference.OfLB.Output("Reference: the value for `lb` of `k8s_control_plane`."),
		}),
	}
}

// Plan implements owned.Kind.
func (r *nlbResource) Plan(ctx context.Context, p *owned.Plan[nlbModel]) {
	plan, keeps := &p.Plan, !p.New
	network, _ := reference.OfNetwork.Read(ctx, plan.Network, p.Diags)
	plan.ID = network.Cluster
	session.AddFieldErrors(ctx, p.Request.Plan, plan.check(ctx, network, p.Diags), p.Diags)
	old, known := reference.OfNetwork.Read(ctx, p.State.Network, p.Diags)
	if known && (!network.VPCID.Equal(old.VPCID) || !network.Cluster.Equal(old.Cluster)) {
		p.Ownership.CheckImported("load balancer", old.Cluster, network.Cluster, "delete the load balancer of that cluster", p.Diags)
		p.Response.RequiresReplace.Append(path.Root("network"))
		keeps = false
	}
	plan.planBalancers(ctx, keeps, p.State, p.Diags)
	plan.outputs(ctx, p.Diags)
}

// check validates what is known of the plan.
func (m *nlbModel) check(ctx context.Context, network reference.Network, diags *diag.Diagnostics) (errs invalid.Fields) {
	if hosts, known := reference.HostsFrom(ctx, m.Controllers, diags); known {
		errs = component.CheckControllers("controllers", reference.ComponentHosts(hosts))
		for i, h := range hosts {
			if h.InstanceID.IsNull() {
				errs.Say(fmt.Sprintf("controllers[%d].instance_id", i), "Not an EC2 instance", "%s is not an EC2 instance, and a network load balancer sends connections only to EC2 instances: use k8s_lb.", h.Name.ValueString())
			}
		}
	}
	if !tf.AllKnown(m.Network, m.Public, m.Zones) {
		return errs
	}
	subnets := network.KnownSubnets(ctx, diags)
	if len(subnets) > 1 && slices.ContainsFunc(subnets, func(s reference.Subnet) bool { return s.AvailabilityZone.IsNull() }) {
		errs.Say("network", "Subnets without zones", "A load balancer has one subnet in each zone, so each of several subnets needs its availability_zone.")
		return errs
	}
	for _, zone := range tf.Strings(m.Zones.Elements()) {
		if !slices.ContainsFunc(subnets, func(s reference.Subnet) bool { return s.AvailabilityZone.ValueString() == zone }) {
			errs.Say("availability_zones", "Not a zone of the network", "The network has no subnet in %s.", zone)
		}
	}
	subnets = m.inZones(subnets)
	if m.Public.ValueBool() && len(subnetsByZone(subnets, true)) == 0 {
		errs.Say("public", "No public subnet", "The network has no subnet with a route to an internet gateway, which a load balancer needs to face the internet: set public = false, or give the network one.")
	}
	return errs
}

// inZones returns the subnets in the zones of the load balancers.
func (m *nlbModel) inZones(subnets []reference.Subnet) []reference.Subnet {
	if m.Zones.IsNull() {
		return subnets
	}
	zones := tf.Strings(m.Zones.Elements())
	return slices.DeleteFunc(subnets, func(s reference.Subnet) bool { return !slices.Contains(zones, s.AvailabilityZone.ValueString()) })
}

// subnetsByZone returns the subnets for a load balancer: public ones, or for machines of the cluster those that
// are not public first. There it takes the last address for load balancers, so that it has none of a machine's.
func subnetsByZone(subnets []reference.Subnet, public bool) map[string][]balancer.Subnet {
	out := map[string][]balancer.Subnet{}
	for _, publicOnes := range []bool{false, true} {
		for _, s := range subnets {
			if s.Public.ValueBool() != publicOnes || public && !publicOnes {
				continue
			}
			address, _ := addressplan.Machine(tf.Prefix(s.CIDR), component.RoleLoadBalancer, lastBalancer)
			zone := s.AvailabilityZone.ValueString()
			out[zone] = append(out[zone], balancer.Subnet{ID: s.ID.ValueString(), Address: address})
		}
	}
	return out
}

// lastBalancer is the index of the last machine of the role lb in a subnet.
const lastBalancer = 5

// planBalancers plans which load balancers there are. What exists stays as it is, and what is gone is made
// again under another name.
func (m *nlbModel) planBalancers(ctx context.Context, keeps bool, state nlbModel, diags *diag.Diagnostics) {
	keep := func(had types.Object) types.Object {
		if !keeps || had.IsNull() {
			return balancerRef.Unknown()
		}
		return had
	}
	m.Internal = keep(state.Internal)
	switch {
	case m.Public.IsUnknown():
		m.InternetFacing = balancerRef.Unknown()
	case m.Public.ValueBool():
		m.InternetFacing = keep(state.InternetFacing)
	default:
		m.InternetFacing = types.ObjectNull(balancerRef.Type().AttrTypes)
		if had, ok := balancerRef.Read(ctx, state.InternetFacing, diags); ok && keeps {
			diags.AddAttributeWarning(path.Root("public"), "The load balancer "+had.DNSName.ValueString()+" is deleted",
				"The API server of cluster "+m.ID.ValueString()+" can be reached at private addresses only then. Kubeconfigs that name this load balancer no longer work.")
		}
	}
}

// outputs sets the computed attributes that are derived from others.
func (m *nlbModel) outputs(ctx context.Context, diags *diag.Diagnostics) {
	name := func(o types.Object) types.String {
		if o.IsUnknown() {
			return types.StringUnknown()
		}
		b, _ := balancerRef.Read(ctx, o, diags)
		return b.DNSName
	}
	private := name(m.Internal)
	public := private
	if !m.InternetFacing.IsNull() {
		public = name(m.InternetFacing)
	}
	ref := reference.LBOfAWS(m.ID, reference.ControllersValue(ctx, m.Controllers, diags), public, private)
	m.Endpoint, m.PrivateEndpoint, m.Ref = ref.Endpoint, ref.PrivateEndpoint, reference.OfLB.Value(ctx, ref)
}

// wanted are the load balancers as specified, and where the model has each.
func (m *nlbModel) wanted(ctx context.Context, op *owned.Operation) []wantedBalancer {
	network, _ := reference.OfNetwork.Read(ctx, m.Network, op.Diags)
	subnets := m.inZones(network.KnownSubnets(ctx, op.Diags))
	groups := tf.StringMap(network.SecurityGroupIDs)
	spec := balancer.Spec{
		Cluster: network.Cluster.ValueString(), VPCID: network.VPCID.ValueString(), GroupID: groups[string(infraaws.RoleLoadBalancer)],
		Tags: tf.StringMap(m.Tags), Claim: op.Ownership.Claim, RemoveTags: op.RemoveTags,
	}
	hosts, _ := reference.HostsFrom(ctx, m.Controllers, op.Diags)
	for _, host := range hosts {
		spec.InstanceIDs = append(spec.InstanceIDs, host.InstanceID.ValueString())
		if host.Off() {
			spec.StoppedIDs = append(spec.StoppedIDs, host.InstanceID.ValueString())
		}
	}
	internal, facing := spec, spec
	internal.Name, internal.Subnets = balancer.Internal, subnetsByZone(subnets, false)
	facing.Name, facing.Public, facing.Subnets = balancer.Public, true, subnetsByZone(subnets, true)
	return []wantedBalancer{{internal, &m.Internal, true}, {facing, &m.InternetFacing, m.Public.ValueBool()}}
}

// wantedBalancer is one of the load balancers.
type wantedBalancer struct {
	spec   balancer.Spec
	value  *types.Object // of the model
	wanted bool
}

// arn returns the ARN that the model has; empty if it has none.
func (w wantedBalancer) arn(ctx context.Context, op *owned.Operation) string {
	b, _ := balancerRef.Read(ctx, *w.value, op.Diags)
	return b.ARN.ValueString()
}

func (w wantedBalancer) set(ctx context.Context, found balancer.Balancer) {
	*w.value = balancerRef.Value(ctx, balancerModel{types.StringValue(found.ARN), types.StringValue(found.DNSName), types.StringValue(found.ZoneID)})
}

// A network load balancer forwards two or three minutes after it was made, and there may be two.
const nlbTimeout = 20 * time.Minute
