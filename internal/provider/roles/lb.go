package roles

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-nettypes/iptypes"
	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64default"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/objectplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsaddress "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/address"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/loadbalancer"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

type lbModel struct {
	roleModel
	Host            types.Object         `tfsdk:"host"`
	Standbys        types.List           `tfsdk:"standbys"`
	Controllers     types.List           `tfsdk:"controllers"`
	PKI             types.Object         `tfsdk:"pki"`
	Port            types.Int64          `tfsdk:"port"`
	AllowedCIDRs    types.Set            `tfsdk:"allowed_cidrs"`
	Public          types.Bool           `tfsdk:"public"`
	VirtualIP       iptypes.IPv4Address  `tfsdk:"virtual_ip"`
	FormerIPs       types.List           `tfsdk:"former_virtual_ips"`
	RouterID        types.Int64          `tfsdk:"virtual_router_id"`
	CheckInterval   timetypes.GoDuration `tfsdk:"check_interval"`
	Adopt           types.Bool           `tfsdk:"adopt"`
	Tags            types.Map            `tfsdk:"tags"`
	AllocationID    types.String         `tfsdk:"allocation_id"`
	PublicIP        types.String         `tfsdk:"public_ip"`
	Endpoint        types.String         `tfsdk:"endpoint"`
	PrivateEndpoint types.String         `tfsdk:"private_endpoint"`
	Ref             types.Object         `tfsdk:"ref"`
}

func NewLB() resource.Resource {
	kept := []planmodifier.String{stringplanmodifier.UseStateForUnknown()}
	return &roleResource[lbModel, loadbalancer.LoadBalancer]{kind: kind[lbModel, loadbalancer.LoadBalancer]{
		name:        "lb",
		title:       "load balancer",
		description: "HAProxy on a host, and an Elastic IP as the address of the cluster's API server. The address stays for the life of the cluster: it moves to the new machine when the machine is replaced. With `public = false` the API server has only a private address.",
		settings:    lbSettings(),
		attributes: map[string]schema.Attribute{
			"host":     lbHostAttribute(),
			"standbys": standbysAttribute(),
			"controllers": reference.HostsAttribute("Machines of the API servers. A change reloads HAProxy; open connections are kept.",
				listvalidator.SizeAtLeast(1)),
			"pki": lbKeysAttribute(),
			"public": schema.BoolAttribute{
				Optional: true, Computed: true, Default: booldefault.StaticBool(true),
				MarkdownDescription: "Whether an EC2 instance gets an Elastic IP as the public endpoint. With `false`, `endpoint` is the private endpoint. Changed in place: `false` releases the Elastic IP, " +
					"and kubeconfigs with its address no longer work. Default: `true`.",
			},
			"adopt": argument.AdoptAttribute(),
			"tags": schema.MapAttribute{
				Optional: true, ElementType: types.StringType, MarkdownDescription: "Tags of the Elastic IP, added to the provider's `default_tags`, which they override. Changed in place. Default: none.",
				Validators: argument.TagValidators(),
			},
			"allocation_id":    schema.StringAttribute{Computed: true, MarkdownDescription: "Allocation id of the Elastic IP. Empty if there is none.", PlanModifiers: kept},
			"public_ip":        schema.StringAttribute{Computed: true, MarkdownDescription: "Public address: the Elastic IP, or the address of a host that is not an EC2 instance. Null with `public = false`.", PlanModifiers: kept},
			"endpoint":         schema.StringAttribute{Computed: true, MarkdownDescription: reference.PublicEndpoint},
			"private_endpoint": schema.StringAttribute{Computed: true, MarkdownDescription: reference.PrivateEndpoint},
			"ref":              reference.OfLB.Output("Reference: the value for `lb` of `k8s_control_plane`."),
		},
		common:   func(m *lbModel) *roleModel { return &m.roleModel },
		check:    checkLB,
		outputs:  lbOutputs,
		complete: completeLB,
		importer: lbImporter(),
		acquire:  acquireAddress,
		inspect:  inspectAddress,
		release:  releaseAddress,
		needed:   oneHost,
	}}
}

// lbSettings are the arguments that are fields of the specification.
func lbSettings() settings[lbModel, loadbalancer.LoadBalancer] {
	return settings[lbModel, loadbalancer.LoadBalancer]{
		extraFilesName: extraFilesSetting(func(m *lbModel) *roleModel { return &m.roleModel }, func(s *loadbalancer.LoadBalancer) *[]desired.ExtraFile { return &s.Spec.Extra }),
		"port": newSetting(schema.Int64Attribute{
			Optional: true, Computed: true, Default: int64default.StaticInt64(6443),
			MarkdownDescription: "Port on which HAProxy listens. The security group of `k8s_network` opens only 6443. Changed in place. Default: 6443.",
			Validators:          []validator.Int64{tf.Port()},
		}, number, func(m *lbModel, s *loadbalancer.LoadBalancer) (*types.Int64, *int) { return &m.Port, &s.Spec.Port }),
		"allowed_cidrs": allowedCIDRs("HAProxy", "the workers and all clients of the API server, such as Terraform",
			func(m *lbModel, s *loadbalancer.LoadBalancer) (*types.Set, *[]netip.Prefix) {
				return &m.AllowedCIDRs, &s.Spec.AllowedCIDRs
			}),
		"virtual_ip":         virtualIPSetting(),
		"former_virtual_ips": formerIPsSetting(),
		"virtual_router_id":  routerIDSetting(),
		"check_interval":     checkIntervalSetting(),
	}
}

// lbHostAttribute is the argument host. A change of its public address alone is no change, since
// that address changes when the Elastic IP is associated.
func lbHostAttribute() schema.SingleNestedAttribute {
	a := reference.HostAttribute("Machine of the load balancer. When it is replaced, the Elastic IP moves to the new machine and HAProxy is installed there.")
	a.PlanModifiers = []planmodifier.Object{sameMachine{}}
	return a
}

// lbKeysAttribute is the argument pki. The Elastic IP belongs to the cluster that has the keys.
func lbKeysAttribute() schema.SingleNestedAttribute {
	a := pkiAttribute()
	a.MarkdownDescription += " The keys of another cluster replace the load balancer and its address."
	a.PlanModifiers = []planmodifier.Object{objectplanmodifier.RequiresReplaceIf(func(ctx context.Context, req planmodifier.ObjectRequest, resp *objectplanmodifier.RequiresReplaceIfFuncResponse) {
		before, after := reference.ClusterOf(ctx, req.StateValue, &resp.Diagnostics), reference.ClusterOf(ctx, req.PlanValue, &resp.Diagnostics)
		resp.RequiresReplace = !after.IsUnknown() && !after.Equal(before)
	}, "", "")}
	return a
}

type sameMachine struct{}

func (sameMachine) Description(context.Context) string {
	return "A machine whose public address alone has changed is the same machine."
}
func (s sameMachine) MarkdownDescription(ctx context.Context) string { return s.Description(ctx) }

func (sameMachine) PlanModifyObject(ctx context.Context, req planmodifier.ObjectRequest, resp *planmodifier.ObjectResponse) {
	if req.StateValue.IsNull() || req.PlanValue.IsUnknown() || !tf.AllKnown(req.PlanValue) {
		return
	}
	prior, ok := reference.OfHost.Read(ctx, req.StateValue, &resp.Diagnostics)
	if !ok {
		return
	}
	plan, ok := reference.OfHost.Read(ctx, req.PlanValue, &resp.Diagnostics)
	if !ok || plan.InstanceID.IsNull() {
		return
	}
	plan.Address, plan.PublicIP = prior.Address, prior.PublicIP
	if plan == prior {
		resp.PlanValue = req.StateValue
	}
}

func checkLB(ctx context.Context, plan, prior *lbModel, s loadbalancer.LoadBalancer, diags *diag.Diagnostics) (errs invalid.Fields) {
	planAddress(ctx, plan, prior, diags)
	if hosts, known := reference.HostsFrom(ctx, plan.Controllers, diags); known {
		errs = component.CheckControllers("controllers", reference.ComponentHosts(hosts))
	}
	errs = append(errs, checkVirtualIP(ctx, plan, s, diags)...)
	warnOfLostAddress(plan, prior, diags)
	return errs
}

// planAddress plans the Elastic IP. It is kept, unless the configuration makes the endpoint private or
// public, or the Elastic IP was released.
func planAddress(ctx context.Context, plan, prior *lbModel, diags *diag.Diagnostics) {
	host, known := reference.OfHost.Read(ctx, plan.Host, diags)
	switch {
	case plan.Public.IsUnknown():
		plan.AllocationID, plan.PublicIP = types.StringUnknown(), types.StringUnknown()
	case !plan.Public.ValueBool():
		if prior != nil && prior.AllocationID.ValueString() != "" {
			diags.AddAttributeWarning(path.Root("public"), "The Elastic IP "+prior.PublicIP.ValueString()+" is released",
				"The API server of cluster "+reference.ClusterOf(ctx, plan.PKI, diags).ValueString()+" can be reached at its private address only then. Kubeconfigs that name the Elastic IP no longer work, and AWS may give the address to somebody else.")
		}
		plan.AllocationID, plan.PublicIP = types.StringValue(""), types.StringNull()
	case known && host.InstanceID.IsNull() && (prior == nil || prior.AllocationID.ValueString() == ""):
		plan.AllocationID, plan.PublicIP = types.StringValue(""), plan.ownAddress(host)
	case prior == nil, !prior.Public.ValueBool():
		plan.AllocationID, plan.PublicIP = types.StringUnknown(), types.StringUnknown()
		if known && host.InstanceID.ValueString() != "" && host.PublicIP.IsNull() {
			diags.AddAttributeWarning(path.Root("public"), "The Elastic IP may reach nothing",
				host.Name.ValueString()+" has no public address. If its subnet is private, so that its way to the internet is a NAT gateway, nothing reaches it at an Elastic IP either: "+
					"set public = false, or associate_public_ip_address = true on the machine.")
		}
	case known && prior.AllocationID.ValueString() == "" && host.InstanceID.ValueString() != "":
		plan.AllocationID, plan.PublicIP = types.StringUnknown(), types.StringUnknown()
	}
}

// publicHost is the address of the public endpoint: the private one if there is no other.
func (m *lbModel) publicHost(private types.String) types.String {
	if m.PublicIP.IsNull() {
		return private
	}
	return m.PublicIP
}

func lbOutputs(ctx context.Context, m *lbModel, diags *diag.Diagnostics) {
	m.ID = reference.ClusterOf(ctx, m.PKI, diags)
	private, machine := types.StringUnknown(), types.StringUnknown()
	if host, ok := reference.OfHost.Read(ctx, m.Host, diags); ok {
		machine = host.PrivateIP.StringValue
		private = machine
	}
	if !m.VirtualIP.IsNull() {
		private = m.VirtualIP.StringValue
	}
	public := m.publicHost(private)
	m.Endpoint, m.PrivateEndpoint = reference.URLOf(public, m.Port), reference.URLOf(private, m.Port)
	m.Ref = reference.OfLB.Value(ctx, reference.LB{Cluster: m.ID, Controllers: reference.ControllersValue(ctx, m.Controllers, diags), Machines: m.machines(ctx, diags),
		Endpoint: m.Endpoint, PrivateEndpoint: m.PrivateEndpoint, Names: m.names(public, private, machine), NoticeSeconds: m.notice()})
}

func completeLB(ctx context.Context, d *session.Session, m *lbModel, s *loadbalancer.LoadBalancer, diags *diag.Diagnostics) {
	ref, _ := reference.PKIFrom(ctx, m.PKI, diags)
	host, _ := reference.OfHost.Read(ctx, m.Host, diags)
	target := fleet.Target{Host: host.Remote(d), Node: host.Node()}
	if m.Public.Equal(types.BoolValue(false)) && target.Node.InstanceID != "" {
		// Its public address may be that of an Elastic IP which is released. Whoever reaches a private
		// endpoint reaches the machine there too.
		target.Host = host.RemoteAt(host.PrivateIP.ValueString(), d)
	}
	if m.AllocationID.ValueString() != "" {
		// The Elastic IP has replaced the address that the machine was launched with.
		target.Node.PublicIP = tf.Addr(iptypes.IPv4Address{StringValue: m.PublicIP})
		target.Host = host.RemoteAt(m.PublicIP.ValueString(), d)
	}
	s.Spec.Cluster = component.Cluster{Name: ref.Cluster, PKI: ref, Authorities: d.Authorities}
	s.Spec.Backends = fleet.Nodes(reference.TargetsFrom(ctx, d, m.Controllers, diags))
	s.Targets = append([]fleet.Target{target}, reference.TargetsFrom(ctx, d, m.Standbys, diags)...)
}

func (m *lbModel) address(ctx context.Context, d *session.Session, diags *diag.Diagnostics) awsaddress.Spec {
	host, _ := reference.OfHost.Read(ctx, m.Host, diags)
	return awsaddress.Spec{
		Cluster:    reference.ClusterOf(ctx, m.PKI, diags).ValueString(),
		Name:       "lb",
		InstanceID: host.InstanceID.ValueString(),
		Tags:       tf.StringMap(m.Tags),
	}
}

// acquireAddress allocates the Elastic IP and associates it, or releases it if the endpoint is private
// now. A host that is not an EC2 instance is reached at its own address.
func acquireAddress(ctx context.Context, d *session.Session, plan, prior *lbModel, h *session.Ownership, diags *diag.Diagnostics) bool {
	host, _ := reference.OfHost.Read(ctx, plan.Host, diags)
	if !plan.Public.ValueBool() {
		if prior != nil {
			releaseAddress(ctx, d, prior, *h, diags)
		}
		return false
	}
	if host.InstanceID.ValueString() == "" {
		plan.AllocationID, plan.PublicIP = types.StringValue(""), plan.ownAddress(host)
		return false
	}
	client, err := d.AWS(ctx)
	if err != nil {
		session.AddError(diags, "Cannot reach AWS", err)
		return false
	}
	if prior == nil || h.Account == "" && prior.AllocationID.ValueString() == "" {
		*h, err = d.NewOwnership(ctx, client)
		if prior != nil {
			h.ID = cmp.Or(prior.Claim.ValueString(), h.ID)
		}
		h.Adopt = plan.Adopt.ValueBool()
	} else {
		*h, err = d.ForUpdate(ctx, client, *h, plan.Adopt)
	}
	if err != nil {
		session.AddError(diags, "Cannot apply the Elastic IP", err)
		return false
	}
	spec := plan.address(ctx, d, diags)
	spec.Claim = h.Claim
	allocated := ""
	if prior != nil {
		allocated = prior.AllocationID.ValueString()
		for k := range tf.StringMap(prior.Tags) {
			if _, kept := spec.Tags[k]; !kept {
				spec.RemoveTags = append(spec.RemoveTags, k)
			}
		}
	}
	a, err := awsaddress.Ensure(ctx, client, allocated, spec)
	if a.AllocationID != "" {
		plan.AllocationID, plan.PublicIP = types.StringValue(a.AllocationID), types.StringValue(a.PublicIP.String())
	}
	if err != nil {
		session.AddError(diags, "Cannot apply the Elastic IP", err)
	} else if allocated == "" {
		d.Claims.Made(h.Claim, a.Unsettled, nil)
	}
	return a.AllocationID != ""
}

// inspectAddress returns what differs on the Elastic IP, and recovers a lost ownership.
func inspectAddress(ctx context.Context, d *session.Session, m *lbModel, h *session.Ownership, diags *diag.Diagnostics) []finding.Finding {
	if m.AllocationID.ValueString() == "" {
		return nil
	}
	client, ok := d.AWSForRead(ctx, "Cannot refresh the Elastic IP", diags)
	if !ok {
		return nil
	}
	spec := m.address(ctx, d, diags)
	spec.Claim = h.Claim
	var err error
	var found awsaddress.Address
	var drift []finding.Finding
	if err = d.Checked(ctx, client, *h); err == nil {
		found, drift, err = awsaddress.Observe(ctx, client, m.AllocationID.ValueString(), spec)
	}
	if err == nil {
		*h, err = d.Recovered(ctx, client, *h, found.Claim)
	}
	if err == nil {
		d.Settle(ctx, client, *h, found.Unsettled)
	}
	switch {
	case errors.Is(err, infraaws.ErrNotFound):
		drift = []finding.Finding{{Kind: finding.ReleasedAddress, Target: m.PublicIP.ValueString(), Problem: finding.Missing, Found: m.AllocationID.ValueString()}}
		m.AllocationID, m.PublicIP = types.StringValue(""), types.StringValue("")
	case err != nil:
		session.AddError(diags, "Cannot refresh the Elastic IP", err)
	}
	return finding.About("elastic-ip", drift)
}

// leadsElsewhere reports whether the Elastic IP does not lead to the machine: somebody has moved it, or an
// apply was killed after it had moved it to the machine's successor. What answers there is not compared.
func leadsElsewhere(drift []finding.Finding) bool {
	return slices.ContainsFunc(drift, func(f finding.Finding) bool { return f.Kind == finding.Address || f.Kind == finding.ReleasedAddress })
}

// releaseAddress releases the Elastic IP.
func releaseAddress(ctx context.Context, d *session.Session, m *lbModel, h session.Ownership, diags *diag.Diagnostics) {
	if m.AllocationID.ValueString() == "" {
		return
	}
	client, err := d.AWS(ctx)
	if err == nil {
		err = awsaddress.Delete(ctx, client, m.AllocationID.ValueString(), h.Claim)
	}
	d.Claims.Gone(h.Claim)
	if err != nil && !session.AddKept(diags, "Elastic IP "+m.PublicIP.ValueString(), err) {
		session.AddError(diags, "Cannot release the Elastic IP", err)
	}
}
