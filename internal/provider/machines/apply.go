package machines

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/maintenance"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// Create implements resource.Resource.
func (r *machineResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var m machineModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := argument.Patiently(ctx, m.Timeouts.Create, machineTimeout, &resp.Diagnostics)
	defer cancel()
	fail := func(err error) { session.AddError(&resp.Diagnostics, "Cannot make machine "+m.Name.ValueString(), err) }

	client, err := r.Session.AWS(ctx)
	if err != nil {
		fail(err)
		return
	}
	spec := m.spec(ctx, &resp.Diagnostics)
	h, err := r.Session.NewHolding(ctx, client)
	if err == nil {
		spec.Claim, spec.Claim.Adopt = h.Claim, m.Adopt.ValueBool()
		spec.AuthorizedKeys, err = r.Session.AuthorizedKeys()
	}
	if err != nil {
		fail(err)
		return
	}
	spec.BootCommand = bootCommand(ctx, r.Session, m, req.Config, &resp.Diagnostics)
	spec.BootCommand = fitting(spec, r.Session.Rand, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	say := func(message string) {
		tflog.Info(ctx, foreign.Text(message), map[string]any{"machine": m.Name.ValueString()})
	}
	say("machine: launching")
	launch, err := awsmachine.Launch(ctx, client, spec, r.Session.Rand)
	if err != nil {
		fail(err)
		return
	}
	made, err := launch.Bring(ctx, func(machine awsmachine.Machine, hostKeys []string) awsmachine.Shell {
		say("machine: running")
		return r.Session.Connect(machine, hostKeys)
	})
	if err != nil {
		// The instance costs money from now on, so it goes into the state. The next apply replaces
		// it.
		fail(err)
		if made.ID == "" {
			return
		}
	} else {
		say("machine: ready")
		r.Session.Claims.Made(h.Claim, made.Unsettled, nil)
	}
	m.fill(ctx, made)
	m.Claim = types.StringValue(h.ID)
	tf.WritePrivate(ctx, resp.Private, session.HoldingKey, h, &resp.Diagnostics)
	tf.WritePrivate(ctx, resp.Private, routesKey, made.RouteTables, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// routesKey is the private-state entry with the route tables that got the route to the machine's
// pods.
const routesKey = "route_tables"

// Read implements resource.Resource.
func (r *machineResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var m machineModel
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := argument.Patiently(ctx, m.Timeouts.Read, argument.ReadTimeout, &resp.Diagnostics)
	defer cancel()
	client, ok := r.Session.AWSForRead(ctx, "Cannot refresh machine "+m.Name.ValueString(), &resp.Diagnostics)
	if !ok {
		return
	}
	spec := m.spec(ctx, &resp.Diagnostics)
	spec.RoutedTables = tf.ReadPrivate[[]string](ctx, req.Private, routesKey, &resp.Diagnostics)
	h := session.ReadHolding(ctx, req.Private, m.Claim, &resp.Diagnostics)
	spec.Claim = h.Claim
	var found awsmachine.Machine
	var drift []finding.Finding
	err := r.Session.Checked(ctx, client, h)
	if err == nil {
		found, drift, err = awsmachine.Observe(ctx, client, m.ID.ValueString(), spec)
	}
	switch {
	case errors.Is(err, infraaws.ErrNotFound):
		r.Session.Gone.Store(m.ID.ValueString(), true)
		// Terraform itself does not say why it creates something again.
		resp.Diagnostics.AddWarning("Machine "+m.Name.ValueString()+" is gone", err.Error()+"\n\nThe next apply creates it again.")
		resp.State.RemoveResource(ctx)
		return
	case err != nil:
		session.AddError(&resp.Diagnostics, "Cannot refresh machine "+m.Name.ValueString(), err)
		return
	}
	lost := h.Lost()
	if h, err = r.Session.Recovered(ctx, client, h, found.Claim); err != nil {
		session.AddError(&resp.Diagnostics, "Cannot refresh machine "+m.Name.ValueString(), err)
		return
	}
	r.Session.Settle(ctx, client, h, found.Unsettled)
	tf.WritePrivate(ctx, resp.Private, session.HoldingKey, h, &resp.Diagnostics)
	// A failed update may have added routes without recording them.
	tf.WritePrivate(ctx, resp.Private, routesKey, union(spec.RoutedTables, found.RouteTables), &resp.Diagnostics)
	if found.HostKey == "" {
		// If someone deletes the tag, the state still has the key.
		found.HostKey = m.HostKey.ValueString()
	}
	grow := tf.ReadPrivate[bool](ctx, req.Private, growKey, &resp.Diagnostics)
	if lost && int64(found.RootVolumeGiB) > m.RootVolumeSize.ValueInt64() {
		grow = true // the volume was enlarged by the update that died, and perhaps not its file system
		tf.WritePrivate(ctx, resp.Private, growKey, grow, &resp.Diagnostics)
	}
	m.fill(ctx, found)
	if found.State == reference.Running && !r.Session.SSHUnknown {
		r.Session.Prepare(ctx, m.host().Remote(r.Session)) // the resources on it look at it soon
	}
	// With these values the plan knows that the instance is stopped and started, and that its public
	// address changes.
	m.InstanceType, m.PlacementGroup = types.StringValue(found.InstanceType), tf.OptionalString(found.PlacementGroup)
	m.InstanceProfile = tf.OptionalString(found.InstanceProfile)
	m.seeRootKey(found)
	if grow && !m.stops() {
		drift = append(drift, finding.Finding{Subject: m.Name.ValueString(), Kind: finding.RootFileSystem, Problem: finding.TooSmall})
	}
	drift = append(drift, r.inspectData(ctx, m, found, spec, drift, &resp.Diagnostics)...)
	m.Claim, m.Drift = tf.OptionalString(h.ID), argument.DriftValue(drift)
	tf.WritePrivate(ctx, resp.Private, rollKey, r.lookForImage(ctx, client, m, spec, &resp.Diagnostics), &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// Update implements resource.Resource. A machine that has to be stopped waits for its turn: the
// machines of a cluster go down one at a time, and the next one only after the previous one is
// healthy again.
func (r *machineResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var m, state machineModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if argument.OnlyProtection(req) {
		resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
		return
	}
	private := machinePrivate{
		grow:   tf.ReadPrivate[bool](ctx, req.Private, growKey, &resp.Diagnostics),
		routes: tf.ReadPrivate[[]string](ctx, req.Private, routesKey, &resp.Diagnostics),
	}
	fail := func(err error) {
		session.AddError(&resp.Diagnostics, "Cannot change machine "+m.Name.ValueString(), err)
	}
	client, err := r.Session.AWS(ctx)
	if err == nil {
		private.holding, err = r.Session.ForUpdate(ctx, client, session.ReadHolding(ctx, req.Private, state.Claim, &resp.Diagnostics), m.Adopt)
	}
	if err != nil {
		fail(err)
		return
	}
	restart, err := r.begin(ctx, client, m, state, &resp.Diagnostics)
	defer func() { restart.Done() }()
	if err != nil {
		fail(err)
		return
	}
	ctx, cancel := argument.Patiently(ctx, m.Timeouts.Update, machineChangeTimeout, &resp.Diagnostics)
	defer cancel()
	private, err = r.converge(ctx, client, &m, state, restart, private, &resp.Diagnostics)
	tf.WritePrivate(ctx, resp.Private, session.HoldingKey, private.holding, &resp.Diagnostics)
	tf.WritePrivate(ctx, resp.Private, growKey, private.grow, &resp.Diagnostics)
	tf.WritePrivate(ctx, resp.Private, routesKey, private.routes, &resp.Diagnostics)
	m.warnOfRestart(restart, &resp.Diagnostics)
	if err != nil {
		fail(err)
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// growKey is the private-state entry that records that the root volume was enlarged but its file
// system was not yet.
const growKey = "grow"

// finalReadTimeout limits the read that finds out what a failed update has done.
const finalReadTimeout = 30 * time.Second

// union returns the elements of both lists, sorted and without duplicates.
func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// machinePrivate is the part of private state that an update reads and writes.
type machinePrivate struct {
	grow   bool     // the root file system must still grow to its volume's size
	routes []string // route tables that have the route to the machine's pods

	holding session.Holding
}

// converge changes the machine to what is planned and returns the new private state.
func (r *machineResource) converge(ctx context.Context, client *infraaws.Client, m *machineModel, state machineModel, restart *maintenance.Restart, private machinePrivate, diags *diag.Diagnostics) (machinePrivate, error) {
	spec := m.spec(ctx, diags)
	spec.Claim = private.holding.Claim
	spec.RemoveTags = argument.RemovedKeys(state.TagsAll, m.TagsAll)
	if state.ImagePolicy.ValueString() == imageRolls {
		spec.RemoveTags = append(spec.RemoveTags, infraaws.TagRoll)
	}
	spec.RemovePodCIDR, spec.RoutedTables = tf.Prefix(state.PodCIDR), private.routes
	made, err := awsmachine.Converge(ctx, client, m.ID.ValueString(), spec, func(ctx context.Context, now awsmachine.Machine) error {
		return r.stop(ctx, client, restart, *m, now, diags)
	})
	if err != nil {
		restart.Abandon(ctx)
		// Do this also if the update was interrupted or its time limit was reached.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalReadTimeout)
		defer cancel()
		now, _, looked := awsmachine.Observe(last, client, m.ID.ValueString(), spec)
		private.routes = union(private.routes, now.RouteTables)
		private.grow = private.grow || looked == nil && int64(now.RootVolumeGiB) > state.RootVolumeSize.ValueInt64()
		return private, err
	}
	private.routes = made.RouteTables
	private.grow = private.grow || m.RootVolumeSize.ValueInt64() > state.RootVolumeSize.ValueInt64()
	made.Name, made.User, made.HostKey = m.Name.ValueString(), m.User.ValueString(), state.HostKey.ValueString()
	if m.stops() {
		m.fill(ctx, made)
		return private, nil
	}
	if restart.Suspended() || state.restarts(*m) {
		if err := waitBehind(ctx, r.Session, client, made, state.pausedNetwork().ValueBool()); err != nil {
			return private, err
		}
		if err := restart.Resume(ctx, r.sight(client, *m, made)); err != nil {
			return private, err
		}
	}
	if restart.Suspended() || state.restarts(*m) || state.usesDataOtherwise(*m) {
		if err := awsmachine.UseDataVolume(ctx, client, made, spec, r.Session.Connect); err != nil {
			return private, err
		}
	}
	if private.grow {
		if err := awsmachine.GrowRoot(ctx, made, spec.RootVolumeGiB, r.Session.Connect); err != nil {
			return private, err
		}
	}
	private.grow = false
	m.fill(ctx, made)
	return private, nil
}

// Delete implements resource.Resource. An instance that is another's by now is left alone.
func (r *machineResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var m machineModel
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	h := session.ReadHolding(ctx, req.Private, m.Claim, &resp.Diagnostics)
	spec := m.spec(ctx, &resp.Diagnostics)
	spec.RoutedTables = tf.ReadPrivate[[]string](ctx, req.Private, routesKey, &resp.Diagnostics)
	spec.Claim = h.Claim
	next := takeSuccession(ctx, m, req, resp)
	if resp.Diagnostics.HasError() {
		return
	}
	if !argument.MayDelete(ctx, "machine "+m.Name.ValueString(), req.State, &resp.Diagnostics) {
		return
	}
	client, err := r.Session.AWS(ctx)
	if err == nil {
		err = r.Session.Checked(ctx, client, h)
	}
	if err == nil {
		err = awsmachine.CheckClaim(ctx, client, m.ID.ValueString(), spec)
	}
	var left *maintenance.Departure
	if err == nil {
		ctx = argument.Patient(ctx, m.Timeouts.Delete, machineDeadlines.Delete)
		left, err = r.depart(ctx, client, m, next, &resp.Diagnostics)
		defer left.Done()
	}
	if err == nil {
		var cancel context.CancelFunc
		ctx, cancel = tf.WithTimeout(ctx, m.Timeouts.Delete, machineTimeout, &resp.Diagnostics)
		defer cancel()
		if err = awsmachine.Delete(ctx, client, m.ID.ValueString(), spec); err != nil {
			m.stays(ctx, left, next, &resp.Diagnostics)
		}
	}
	r.Session.Claims.Gone(h.Claim)
	if err != nil && !session.AddKept(&resp.Diagnostics, "Machine "+m.Name.ValueString(), err) {
		session.AddError(&resp.Diagnostics, "Cannot delete machine "+m.Name.ValueString(), err)
	}
}

func (m machineModel) spec(ctx context.Context, diags *diag.Diagnostics) awsmachine.Spec {
	network, _ := reference.OfNetwork.Read(ctx, m.Network, diags)
	var subnets []string
	for _, s := range network.KnownSubnets(ctx, diags) {
		subnets = append(subnets, s.ID.ValueString())
	}
	return awsmachine.Spec{
		Cluster:         network.Cluster.ValueString(),
		Name:            m.Name.ValueString(),
		Role:            infraaws.Role(m.Role.ValueString()),
		SubnetID:        m.subnet(ctx, diags).ID.ValueString(),
		VPCID:           network.VPCID.ValueString(),
		NetworkSubnets:  subnets,
		SecurityGroupID: tf.StringMap(network.SecurityGroupIDs)[m.Role.ValueString()],

		SecurityGroupIDs: tf.Strings(m.SecurityGroupIDs.Elements()),
		PrivateIP:        tf.Addr(m.PrivateIP),
		PodCIDR:          tf.Prefix(m.PodCIDR),
		PublicIP:         m.AssociatePublicIP.ValueBool(),
		Stopped:          m.stops(),
		InstanceType:     m.InstanceType.ValueString(),
		CPUCredits:       m.CPUCredits.ValueString(),
		PlacementGroup:   m.PlacementGroup.ValueString(),
		Spot:             m.spot(ctx, diags),
		InstanceProfile:  m.InstanceProfile.ValueString(),
		Image:            m.AMI.ValueString(),
		ImageFilter:      m.imageFilter(ctx, diags),
		Roll:             m.ImagePolicy.ValueString() == imageRolls,
		UserData:         m.UserData.ValueString(),
		RootVolumeGiB:    int32(m.RootVolumeSize.ValueInt64()),
		RootVolume:       m.rootPerformance().wanted(),
		RootVolumeKey:    m.RootVolumeKey.ValueString(),
		DataVolume:       m.dataVolume(ctx, diags),
		User:             m.User.ValueString(),
		Tags:             tf.StringMap(m.Tags),
	}
}

func (m machineModel) rootPerformance() performanceModel {
	return performanceModel{m.RootVolumeType, m.RootVolumeSize, m.RootVolumeIOPS, m.RootThroughput}
}

// fill sets all computed attributes from the machine that was found.
func (m *machineModel) fill(ctx context.Context, found awsmachine.Machine) {
	m.ID, m.ImageID = types.StringValue(found.ID), types.StringValue(found.ImageID)
	m.SubnetID, m.AvailabilityZone = types.StringValue(found.SubnetID), types.StringValue(found.AvailabilityZone)
	m.InstanceState, m.HostKey = types.StringValue(found.State), tf.OptionalString(found.HostKey)
	if found.PrivateIP.IsValid() || m.PrivateIP.IsUnknown() {
		m.PrivateIP = tf.OptionalAddr(found.PrivateIP)
	}
	// A stopped machine has no public address. The attribute keeps the last one until a start
	// assigns another, so that nothing that depends on it seems to change meanwhile.
	if found.State == reference.Running || m.PublicIP.IsUnknown() {
		m.PublicIP = tf.OptionalAddr(found.PublicIP)
	}
	// If someone enlarged the volume, the new size is shown; a smaller one is drift.
	m.RootVolumeSize = types.Int64Value(max(m.RootVolumeSize.ValueInt64(), int64(found.RootVolumeGiB)))
	root := m.rootPerformance()
	root.fill(found.RootVolume)
	m.RootVolumeIOPS, m.RootThroughput = root.IOPS, root.Throughput
	m.Drift = tf.NoDrift()
	m.Host = reference.OfHost.Value(ctx, m.host())
}
