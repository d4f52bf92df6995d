package provider

import (
	"context"
	"net/netip"

	"github.com/hashicorp/terraform-plugin-framework-nettypes/cidrtypes"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// ModifyPlan implements resource.ResourceWithModifyPlan.
func (r *networkResource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	defer func() { plannedEnd(ctx, objectName(ctx, "network", "cluster", req.State, resp.Plan), req, resp) }()
	if req.Plan.Raw.IsNull() || r.data == nil {
		return
	}
	var config, plan networkModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	if resp.Diagnostics.HasError() {
		return
	}
	plan.ID, plan.TagsAll = plan.Cluster, r.data.planTags(plan.Tags, &resp.Diagnostics)
	adopts := !config.VPCID.IsNull()
	if !adopts {
		planDefault(config.VPCCIDR, &plan.VPCCIDR, defaultVPCCIDR)
		planDefault(config.NodeCIDR, &plan.NodeCIDR, defaultSubnetCIDR)
		addFieldErrors(ctx, req.Plan, infraaws.CheckNodeCIDR(tf.Prefix(plan.NodeCIDR), tf.Prefix(plan.VPCCIDR)), &resp.Diagnostics)
	}
	for _, p := range tf.Prefixes(plan.AdminCIDRs) {
		if p.Bits() == 0 {
			resp.Diagnostics.AddAttributeWarning(path.Root("admin_cidrs"), "Open to the whole internet",
				"0.0.0.0/0 lets everyone connect to SSH on every machine and to the API server. Prefer your own address as a /32.")
		}
	}
	if plan.BastionRole.ValueString() == string(infraaws.RoleWorker) {
		resp.Diagnostics.AddAttributeWarning(path.Root("bastion_role"), "Pods reach SSH on every machine",
			"A security group cannot tell a worker from the pods on it. Prefer a bastion of the role lb, on which no pods run.")
	}
	if req.State.Raw.IsNull() {
		plan.NodeCIDRs = types.SetUnknown(cidrtypes.IPv4PrefixType{})
		if !adopts && !plan.NodeCIDR.IsUnknown() {
			plan.NodeCIDRs = tf.PrefixesValue([]netip.Prefix{tf.Prefix(plan.NodeCIDR)})
		}
		plan.SecurityGroupIDs = types.MapUnknown(types.StringType)
		plan.Ref = plan.ref(ctx, types.ListUnknown(subnetRef.Type()))
	} else {
		var state networkModel
		resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
		if req.Private != nil {
			readHolding(ctx, req.Private, state.Claim, &resp.Diagnostics).checkImported("network", state.Cluster, plan.Cluster, "delete the network of that cluster", &resp.Diagnostics)
		}
		plan.planFromState(ctx, state, adopts)
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
}

// planFromState plans the values of the state, unless a part of the network is missing. The subnets
// of an adopted VPC are those of the configuration.
func (m *networkModel) planFromState(ctx context.Context, state networkModel, adopts bool) {
	complete := len(state.SecurityGroupIDs.Elements()) == len(infraaws.Roles())
	m.SecurityGroupIDs = state.SecurityGroupIDs
	if !complete {
		m.SecurityGroupIDs = types.MapUnknown(types.StringType)
	}
	m.SubnetID = state.SubnetID
	sameSubnets := !state.SubnetID.IsNull()
	switch {
	case adopts:
		sameSubnets = m.SubnetIDs.Equal(state.SubnetIDs)
		if ids := m.SubnetIDs.Elements(); len(ids) == 0 || !ids[0].Equal(state.SubnetID) {
			m.SubnetID, m.NodeCIDR, m.AvailabilityZone = types.StringUnknown(), cidrtypes.NewIPv4PrefixUnknown(), types.StringUnknown()
		}
	case sameSubnets:
		m.SubnetIDs = state.SubnetIDs
	default:
		m.SubnetIDs, m.SubnetID = types.ListUnknown(types.StringType), types.StringUnknown()
	}
	m.NodeCIDRs = state.NodeCIDRs
	if !sameSubnets {
		m.NodeCIDRs = types.SetUnknown(cidrtypes.IPv4PrefixType{})
	}
	ref, known := networkRef.Read(ctx, state.Ref, &diag.Diagnostics{})
	if m.Ref = state.Ref; known && !ref.Paused.Equal(m.Paused) {
		ref.Paused = m.Paused
		m.Ref = networkRef.Value(ctx, ref)
	}
	if complete && sameSubnets {
		return
	}
	subnets := types.ListUnknown(subnetRef.Type())
	if known, ok := state.Ref.Attributes()["subnets"].(types.List); ok && sameSubnets {
		subnets = known
	}
	m.Ref = m.ref(ctx, subnets)
}

// ref returns the reference to the network.
func (m *networkModel) ref(ctx context.Context, subnets types.List) types.Object {
	return networkRef.Value(ctx, networkRefModel{
		Cluster: m.Cluster, VPCID: m.VPCID, VPCCIDR: m.VPCCIDR, NodeCIDR: m.NodeCIDR,
		Subnets: subnets, SecurityGroupIDs: m.SecurityGroupIDs, Paused: m.Paused,
	})
}

// planDefault plans the default for an argument that is not configured.
func planDefault(config cidrtypes.IPv4Prefix, plan *cidrtypes.IPv4Prefix, value netip.Prefix) {
	if config.IsNull() && (plan.IsUnknown() || plan.IsNull()) {
		*plan = tf.OptionalPrefix(value)
	}
}
