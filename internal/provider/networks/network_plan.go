package networks

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-nettypes/cidrtypes"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsnetwork "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/owned"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// Plan implements owned.Kind.
func (r *networkResource) Plan(ctx context.Context, p *owned.Plan[networkModel]) {
	plan, state := &p.Plan, p.State
	plan.ID = plan.Cluster
	adopts := !p.Config.VPCID.IsNull()
	if !adopts {
		planDefault(p.Config.VPCCIDR, &plan.VPCCIDR, defaultVPCCIDR)
		planDefault(p.Config.NodeCIDR, &plan.NodeCIDR, defaultSubnetCIDR)
		plan.planPublicCIDR(p.Config)
	}
	for _, open := range tf.Prefixes(plan.AdminCIDRs) {
		if open.Bits() == 0 {
			p.Diags.AddAttributeWarning(path.Root("admin_cidrs"), "Open to the whole internet",
				"0.0.0.0/0 lets everyone connect to SSH on every machine and to the API server. Prefer your own address as a /32.")
		}
	}
	for _, e := range awsnetwork.CheckRules(plan.spec(networkPrivate{})) { // the account's quota may be higher
		p.Diags.AddAttributeWarning(path.Root(e.Field), e.Problem, e.Err.Error())
	}
	if role := plan.BastionRole.ValueString(); role == string(infraaws.RoleWorker) || role == string(infraaws.RoleController) && plan.ControllerPods.ValueBool() {
		p.Diags.AddAttributeWarning(path.Root("bastion_role"), "Pods reach SSH on every machine",
			fmt.Sprintf("A security group cannot tell a %s from the pods on it. Prefer a bastion of the role lb, on which no pods run.", role))
	}
	p.Ownership.CheckImported("network", state.Cluster, plan.Cluster, "delete the network of that cluster", p.Diags)
	if adopts {
		plan.planAdopted(state)
	} else {
		if plan.planZones(p.Config, state) {
			p.Response.RequiresReplace.Append(path.Root("availability_zones"))
		}
		if !state.PublicCIDR.IsNull() && !plan.PublicCIDR.IsUnknown() && !plan.PublicCIDR.Equal(state.PublicCIDR) {
			p.Response.RequiresReplace.Append(path.Root("public_cidr"))
		}
		session.AddFieldErrors(ctx, p.Request.Plan, awsnetwork.CheckSubnets(plan.spec(networkPrivate{})), p.Diags)
		plan.planSubnets(ctx, state, p.Diags)
	}
	plan.SecurityGroupIDs = state.SecurityGroupIDs
	if len(state.SecurityGroupIDs.Elements()) != len(awsnetwork.Groups()) {
		plan.SecurityGroupIDs = types.MapUnknown(types.StringType)
	}
	switch plan.InstanceConnectID = state.InstanceConnectID; {
	case !plan.InstanceConnect.ValueBool():
		plan.InstanceConnectID = types.StringNull()
	case state.InstanceConnectID.IsNull() || !state.VPCID.Equal(plan.VPCID) || state.Drift.IsUnknown() || len(state.Drift.Elements()) > 0:
		plan.InstanceConnectID = types.StringUnknown()
	}
	plan.planExpiry(state, r.Session.Now(), p.Diags)
	plan.Ref = plan.ref(ctx, plan.Subnets)
}

// lastYear is the last one in which systemd lets a timer end.
const lastYear = 2199

// planExpiry plans whether the cluster has expired. The refresh has found that out, and not the clock of the plan: Terraform
// plans again while it applies, and the second plan must say the same. A new time must be to come.
func (m *networkModel) planExpiry(state networkModel, now time.Time, diags *diag.Diagnostics) {
	at := reference.Time(m.ExpiresAt)
	m.Expired = types.BoolValue(!at.IsZero() && at.Equal(reference.Time(state.ExpiresAt)) && state.Expired.ValueBool())
	if m.ExpiresAt.IsUnknown() && state.Expired.ValueBool() {
		m.Expired = types.BoolUnknown()
	}
	switch {
	case m.Expired.ValueBool():
		diags.AddAttributeWarning(path.Root("expires_at"), "The cluster has expired",
			fmt.Sprintf("expires_at, %s, has passed, so the machines of cluster %s power themselves off, and it counts as paused. Set a later time, or none, to start it again, or destroy it.",
				m.ExpiresAt.ValueString(), m.Cluster.ValueString()))
	case at.UTC().Year() > lastYear:
		diags.AddAttributeError(path.Root("expires_at"), "The time is too late", fmt.Sprintf("Timers of systemd end with the year %d: set an earlier time, or none.", lastYear))
	case m.reference().Expired(now) && !at.Equal(reference.Time(state.ExpiresAt)):
		diags.AddAttributeError(path.Root("expires_at"), "The time has passed",
			fmt.Sprintf("%s has passed: it is %s. Set a later time, or none. paused = true stops the machines of a cluster now.", m.ExpiresAt.ValueString(), now.UTC().Format(time.RFC3339)))
	}
}

// planPublicCIDR plans the network of the public subnets beside private ones.
func (m *networkModel) planPublicCIDR(config networkModel) {
	switch {
	case config.NATGateways.IsNull():
		m.PublicCIDR = cidrtypes.NewIPv4PrefixNull()
	case !config.PublicCIDR.IsNull():
	case tf.AllKnown(m.VPCCIDR, m.NodeCIDR):
		m.PublicCIDR = tf.OptionalPrefix(awsnetwork.DefaultPublicCIDR(tf.Prefix(m.VPCCIDR), tf.Prefix(m.NodeCIDR)))
	default:
		m.PublicCIDR = cidrtypes.NewIPv4PrefixUnknown()
	}
}

// planZones plans the availability zones of our own VPC. It reports whether a zone that there is already
// changes.
func (m *networkModel) planZones(config, state networkModel) (replace bool) {
	if config.Zones.IsUnknown() || config.ZoneCount.IsUnknown() {
		m.Zones, m.ZoneCount = types.ListUnknown(types.StringType), types.Int64Unknown()
		if !config.ZoneCount.IsUnknown() && !config.ZoneCount.IsNull() {
			m.ZoneCount = config.ZoneCount
		}
		return false
	}
	zones := slices.Clone(config.Zones.Elements())
	was := state.Zones.Elements()
	if config.Zones.IsNull() {
		count := max(1, int(config.ZoneCount.ValueInt64()))
		zones = slices.Clone(was[:min(len(was), count)])
		for len(zones) < count {
			zones = append(zones, types.StringUnknown())
		}
	}
	for i := range min(len(zones), len(was)) {
		replace = replace || !zones[i].IsUnknown() && !zones[i].Equal(was[i])
	}
	m.Zones, m.ZoneCount = types.ListValueMust(types.StringType, zones), types.Int64Value(int64(len(zones)))
	return replace
}

// planSubnets plans the subnets of our own VPC. Those of the state stay as they are.
func (m *networkModel) planSubnets(ctx context.Context, state networkModel, diags *diag.Diagnostics) {
	m.SubnetID, m.SubnetIDs, m.NodeCIDRs = types.StringUnknown(), types.ListUnknown(types.StringType), types.ListUnknown(cidrtypes.IPv4PrefixType{})
	m.Subnets, m.NATIPs = types.ListUnknown(reference.OfSubnet.Type()), types.MapUnknown(types.StringType)
	if state.VPCID.Equal(m.VPCID) && len(state.NATIPs.Elements()) == awsnetwork.PlannedNATGateways(m.spec(networkPrivate{})) {
		m.NATIPs = state.NATIPs
	}
	if m.Zones.IsUnknown() {
		return
	}
	existing := map[string]reference.Subnet{}
	if state.VPCID.Equal(m.VPCID) { // otherwise the network is replaced
		known, _ := tf.Objects[reference.Subnet](ctx, state.Subnets, diags)
		for _, s := range known {
			existing[s.CIDR.ValueString()] = s
		}
	}
	var ids, cidrs, subnets []attr.Value
	for _, planned := range awsnetwork.PlannedSubnets(m.spec(networkPrivate{})) {
		if !planned.CIDR.IsValid() {
			return // not known yet, or refused
		}
		s, exists := existing[planned.CIDR.String()]
		if !exists {
			s = reference.Subnet{ID: types.StringUnknown(), CIDR: tf.OptionalPrefix(planned.CIDR), AvailabilityZone: types.StringUnknown(), Public: types.BoolValue(planned.Public)}
			if planned.AvailabilityZone != "" {
				s.AvailabilityZone = types.StringValue(planned.AvailabilityZone)
			}
		}
		ids, cidrs, subnets = append(ids, s.ID), append(cidrs, s.CIDR), append(subnets, reference.OfSubnet.Value(ctx, s))
	}
	m.SubnetID, _ = ids[0].(types.String)
	m.SubnetIDs, m.NodeCIDRs = types.ListValueMust(types.StringType, ids), types.ListValueMust(cidrtypes.IPv4PrefixType{}, cidrs)
	m.Subnets = types.ListValueMust(reference.OfSubnet.Type(), subnets)
}

// planAdopted plans what is read from an adopted VPC.
func (m *networkModel) planAdopted(state networkModel) {
	m.PublicCIDR, m.NATIPs = cidrtypes.NewIPv4PrefixNull(), tf.StringMapValue(nil)
	if m.SubnetIDs.Equal(state.SubnetIDs) && !state.SubnetID.IsNull() && state.VPCID.Equal(m.VPCID) {
		m.SubnetID, m.NodeCIDR, m.NodeCIDRs, m.Zones, m.ZoneCount, m.Subnets = state.SubnetID, state.NodeCIDR, state.NodeCIDRs, state.Zones, state.ZoneCount, state.Subnets
		return
	}
	m.NodeCIDRs, m.Subnets = types.ListUnknown(cidrtypes.IPv4PrefixType{}), types.ListUnknown(reference.OfSubnet.Type())
	m.Zones, m.ZoneCount = types.ListUnknown(types.StringType), types.Int64Unknown()
	if ids := m.SubnetIDs.Elements(); len(ids) > 0 && ids[0].Equal(state.SubnetID) {
		m.SubnetID, m.NodeCIDR = state.SubnetID, state.NodeCIDR
	} else {
		m.SubnetID, m.NodeCIDR = types.StringUnknown(), cidrtypes.NewIPv4PrefixUnknown()
	}
}

// privacyChanges makes a change between public and private subnets a replacement.
func privacyChanges(_ context.Context, req planmodifier.StringRequest, resp *stringplanmodifier.RequiresReplaceIfFuncResponse) {
	resp.RequiresReplace = req.StateValue.IsNull() != req.PlanValue.IsNull()
}

// ref returns the reference to the network.
func (m *networkModel) ref(ctx context.Context, subnets types.List) types.Object {
	ref := m.reference()
	ref.Subnets = subnets
	return reference.OfNetwork.Value(ctx, ref)
}

// reference is ref without subnets. A cluster that has expired is paused.
func (m *networkModel) reference() reference.Network {
	paused := m.Paused
	switch {
	case m.Expired.ValueBool():
		paused = types.BoolValue(true)
	case m.Expired.IsUnknown() && !paused.ValueBool():
		paused = types.BoolUnknown()
	}
	return reference.Network{
		Cluster: m.Cluster, VPCID: m.VPCID, VPCCIDR: m.VPCCIDR, NodeCIDR: m.NodeCIDR,
		SecurityGroupIDs: m.SecurityGroupIDs, ControllerPods: m.ControllerPods, Paused: paused, ExpiresAt: m.ExpiresAt,
	}
}

// planDefault plans the default for an argument that is not configured.
func planDefault(config cidrtypes.IPv4Prefix, plan *cidrtypes.IPv4Prefix, value netip.Prefix) {
	if config.IsNull() && (plan.IsUnknown() || plan.IsNull()) {
		*plan = tf.OptionalPrefix(value)
	}
}
