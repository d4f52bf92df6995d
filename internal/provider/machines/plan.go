package machines

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-nettypes/iptypes"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	awsnetwork "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/owned"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// ModifyPlan implements resource.ResourceWithModifyPlan.
func (r *machineResource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	markReplacement(ctx, req, resp)
	r.Resource.ModifyPlan(ctx, req, resp)
}

// Plan implements owned.Kind.
func (r *machineResource) Plan(ctx context.Context, p *owned.Plan[machineModel]) {
	config, plan, state := p.Config, &p.Plan, p.State
	network, _ := reference.OfNetwork.Read(ctx, plan.Network, p.Diags)
	plan.check(ctx, p.Request.Plan, config, network, p.Diags)
	plan.planPower(config, network, r.Session.Now(), p.Diags)
	refuseExpired(ctx, p, network)
	plan.checkSpot(ctx, p.New, p.Diags)
	plan.planRootVolume(ctx, p.Request.Plan, config, state, p.Diags)
	plan.planRootKey(ctx, p.Request.Plan, config, state, p.Diags)
	if p.New {
		r.planNew(ctx, config, plan, p.Diags)
		return
	}
	checkImported(ctx, p, network)
	moved, movesData := movedNetwork(ctx, state.Network, network, state.subnet(ctx, p.Diags), p.Diags), state.movesData(*plan)
	if moved {
		p.Response.RequiresReplace.Append(path.Root("network"))
	}
	if movesData {
		p.Response.RequiresReplace.Append(path.Root("data_volume"))
	}
	otherProcessor := !plan.InstanceType.IsUnknown() && !plan.architecture().Equal(state.architecture())
	if otherProcessor {
		p.Response.RequiresReplace.Append(path.Root("instance_type"))
	}
	movesSpot := state.movesSpot(*plan)
	if movesSpot {
		p.Response.RequiresReplace.Append(path.Root("instance_type"), path.Root("placement_group"))
	}
	if !moved && !movesData && !otherProcessor && !movesSpot && !plan.planRoll(ctx, p.Request, p.Response, state) {
		plan.planUpdate(ctx, state, p.Diags)
		return
	}
	plan.ID, plan.ImageID, plan.HostKey = types.StringUnknown(), types.StringUnknown(), types.StringUnknown()
	plan.PublicIP = iptypes.NewIPv4AddressUnknown()
	if config.PrivateIP.IsNull() {
		plan.PrivateIP = iptypes.NewIPv4AddressUnknown()
	}
	if config.SubnetID.IsNull() {
		plan.SubnetID = types.StringUnknown()
	}
	if config.AvailabilityZone.IsNull() {
		plan.AvailabilityZone = types.StringUnknown()
	}
	r.planNew(ctx, config, plan, p.Diags)
}

// planRootVolume plans the performance of the root volume, also of that of a machine that is replaced.
func (m *machineModel) planRootVolume(ctx context.Context, p tfsdk.Plan, config, state machineModel, diags *diag.Diagnostics) {
	root := m.rootPerformance()
	errs := root.plan("root_volume_", config.rootPerformance(), state.rootPerformance())
	m.RootVolumeIOPS, m.RootThroughput = root.IOPS, root.Throughput
	session.AddFieldErrors(ctx, p, errs, diags)
}

// checkImported refuses an imported machine of another cluster, which would be terminated. A
// machine that was made here is replaced when its cluster gets another name.
func checkImported(ctx context.Context, p *owned.Plan[machineModel], network reference.Network) {
	old, ok := reference.OfNetwork.Read(ctx, p.State.Network, p.Diags)
	if !ok || network.Cluster.IsUnknown() || network.Cluster.Equal(old.Cluster) || !p.Ownership.Imported {
		return
	}
	p.Diags.AddAttributeError(path.Root("network"), "Imported machine of another cluster",
		fmt.Sprintf("Instance %s is machine %s of cluster %s, and network belongs to cluster %s. To replace it would terminate the other cluster's machine.\n\nImport an instance of this "+
			"cluster instead. If this one is in the state already, remove it with `terraform state rm`.",
			p.State.ID.ValueString(), p.State.Name.ValueString(), old.Cluster.ValueString(), network.Cluster.ValueString()))
}

// planNew plans a machine that does not exist yet.
func (r *machineResource) planNew(ctx context.Context, config machineModel, plan *machineModel, diags *diag.Diagnostics) {
	plan.refuseNew(ctx, r.Session.Now(), diags)
	r.Session.CheckAgentKey(diags)
	checkUserData(r.Session, *plan, diags)
	if config.User.IsNull() {
		plan.User = types.StringValue(r.Session.SSH.User)
		if r.Session.SSHUnknown {
			plan.User = types.StringUnknown()
		}
	}
	plan.planZone(ctx, diags)
	plan.PublicIP = iptypes.NewIPv4AddressUnknown()
	if !plan.AssociatePublicIP.IsUnknown() && !plan.AssociatePublicIP.ValueBool() {
		plan.PublicIP = iptypes.NewIPv4AddressNull()
	}
	plan.Host = reference.OfHost.Value(ctx, plan.host())
}

// planUpdate plans an update in place.
func (m *machineModel) planUpdate(ctx context.Context, state machineModel, diags *diag.Diagnostics) {
	if size := state.RootVolumeSize.ValueInt64(); !m.RootVolumeSize.IsUnknown() && m.RootVolumeSize.ValueInt64() < size {
		diags.AddAttributeError(path.Root("root_volume_size"), "A volume cannot shrink",
			fmt.Sprintf("The root volume of %s has %d GiB: set root_volume_size to %d, or replace the machine with -replace.", m.Name.ValueString(), size, size))
	}
	if m.stops() && !m.RootVolumeSize.Equal(state.RootVolumeSize) {
		diags.AddAttributeError(path.Root("root_volume_size"), "A stopped machine's file system cannot grow",
			fmt.Sprintf("%s is to be stopped, and its file system grows only while it runs. Change the size before the stop, or after the next start.", m.Name.ValueString()))
	}
	if m.stops() && state.DataVolume.IsNull() && !m.DataVolume.IsNull() {
		diags.AddAttributeError(path.Root("data_volume"), "A stopped machine cannot mount a volume",
			fmt.Sprintf("%s is to be stopped, and a volume is formatted and mounted only on a running machine. Add data_volume while the machine runs, or in the apply that starts it.", m.Name.ValueString()))
	}
	m.PublicIP = state.PublicIP
	if state.restarts(*m) && m.AssociatePublicIP.ValueBool() {
		m.PublicIP = iptypes.NewIPv4AddressUnknown()
	}
	m.Host = reference.OfHost.Value(ctx, m.host())
}

// restarts reports whether an update from this state to the plan starts the instance. public_ip does
// not tell: a machine without a public address has none before and after.
func (m machineModel) restarts(plan machineModel) bool {
	return !plan.stops() && (m.InstanceState.ValueString() != reference.Running || m.reshapes(plan))
}

// reshapes reports whether an update to the plan changes something for which the instance has to be stopped.
func (m machineModel) reshapes(plan machineModel) bool {
	return !plan.InstanceType.Equal(m.InstanceType) || !plan.PlacementGroup.Equal(m.PlacementGroup)
}

// host returns the machine as other resources see it. Attributes may be unknown.
func (m machineModel) host() reference.Host {
	power := m.PowerState
	if m.pausedNetwork().ValueBool() {
		power = types.StringValue(reference.Paused)
	}
	rebalance := types.BoolUnknown()
	if !m.Spot.IsUnknown() {
		rebalance, _ = m.Spot.Attributes()["drain_on_rebalance"].(types.Bool) // null without one
	}
	h := reference.Host{
		PowerState: power,
		Name:       m.Name, PrivateIP: m.PrivateIP, PublicIP: m.PublicIP, Port: types.Int64Value(22),
		User: m.User, HostKey: m.HostKey, PodCIDR: m.PodCIDR, InstanceID: m.ID, Role: m.Role, Zone: m.AvailabilityZone, Rebalance: rebalance,
		Address: m.PublicIP.StringValue, Arch: m.architecture(), Type: m.InstanceType,
	}
	if m.PublicIP.IsNull() {
		h.Address = m.PrivateIP.StringValue
	}
	return h
}

// architecture returns the architecture of the machine's processors, unknown if its type is.
func (m machineModel) architecture() types.String {
	if m.InstanceType.IsUnknown() {
		return types.StringUnknown()
	}
	return types.StringValue(awsmachine.Architecture(m.InstanceType.ValueString()))
}

// check adds errors for invalid values.
func (m machineModel) check(ctx context.Context, p tfsdk.Plan, config machineModel, network reference.Network, diags *diag.Diagnostics) {
	vpc, pods := tf.Prefix(network.VPCCIDR), tf.Prefix(m.PodCIDR)
	errs := append(m.checkSubnet(ctx, config, network, diags), m.checkGroups(network, diags)...)
	if v := m.dataVolume(ctx, diags); v != nil {
		errs = append(errs, awsmachine.CheckMountPoint(v.MountPoint)...)
		errs = append(errs, awsmachine.CheckDataVolumeType(m.InstanceType.ValueString())...)
	}
	errs = append(errs, awsmachine.CheckInstanceType(m.InstanceType.ValueString())...)
	errs = append(errs, awsmachine.CheckCPUCredits(m.CPUCredits.ValueString(), m.InstanceType.ValueString())...)
	if !m.AMI.IsNull() && !m.ImageFilter.IsNull() {
		errs.Say("image_filter", "Two images", "Both ami and image_filter say which image the machine is launched from: remove one of them.")
	}
	errs = append(errs, awsmachine.CheckPlacementGroup(m.PlacementGroup.ValueString())...)
	errs = append(errs, awsmachine.CheckUserData(m.UserData.ValueString())...)
	errs = append(errs, awsmachine.CheckInstanceProfile(m.InstanceProfile.ValueString())...)
	session.AddFieldErrors(ctx, p, append(errs, awsnetwork.CheckPodCIDR(pods, vpc)...), diags)
	if m.PodCIDR.IsNull() {
		return
	}
	switch infraaws.MachineRole(m.Role.ValueString()) {
	case infraaws.RoleController:
		if !network.ControllerPods.ValueBool() && !network.ControllerPods.IsUnknown() {
			diags.AddAttributeError(path.Root("pod_cidr"), "Controllers without pods",
				fmt.Sprintf("%s is a controller, and its security group lets nothing reach its pods: set controller_pods of the k8s_network, or remove pod_cidr.", m.Name.ValueString()))
		}
	case infraaws.RoleLoadBalancer, infraaws.RoleEtcd:
		diags.AddAttributeError(path.Root("pod_cidr"), "No pods run on this machine",
			fmt.Sprintf("%s has the role %s: remove pod_cidr.", m.Name.ValueString(), m.Role.ValueString()))
	}
}

// checkGroups warns of more security groups than AWS allows a machine by default, and returns errors for a reference that lacks
// one of the network's, which somebody has kept or written.
func (m machineModel) checkGroups(network reference.Network, diags *diag.Diagnostics) (errs invalid.Fields) {
	if n := len(m.SecurityGroupIDs.Elements()); n > groupsPerInterface-ofNetwork { // the account's quota may be higher
		diags.AddAttributeWarning(path.Root("security_group_ids"), "More security groups than AWS allows by default",
			fmt.Sprintf("%d groups are given, and the network gives the machine %d. AWS allows %d unless the account's quota is higher: the apply would fail. "+
				"Give fewer, or ask for more: Service Quotas, Amazon VPC, Security groups per network interface (L-2AFB9258).", n, ofNetwork, groupsPerInterface))
	}
	groups := network.SecurityGroupIDs
	if groups.IsNull() || groups.IsUnknown() || m.Role.IsUnknown() {
		return nil
	}
	for _, name := range []string{m.Role.ValueString(), string(awsnetwork.GroupSSH)} {
		if groups.Elements()[name] == nil {
			errs.Say("network", "Security group missing", "security_group_ids has no entry %s: take the whole ref of the k8s_network, after an apply of its configuration.", name)
		}
	}
	return errs
}

// movedNetwork reports whether the machine's VPC or subnet is replaced.
func movedNetwork(ctx context.Context, before types.Object, now reference.Network, was reference.Subnet, diags *diag.Diagnostics) bool {
	old, ok := reference.OfNetwork.Read(ctx, before, diags)
	if !ok {
		return false
	}
	if !now.VPCID.Equal(old.VPCID) {
		return true
	}
	if !tf.AllKnown(now.Subnets) {
		return false // not known yet which subnets there will be; the apply finds out
	}
	for _, s := range now.KnownSubnets(ctx, diags) {
		if s.ID.Equal(was.ID) {
			return false
		}
	}
	return true
}
