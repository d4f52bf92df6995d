package machines

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/maintenance"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/owned"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// Make implements owned.Kind. An instance costs money as soon as it is launched. The next apply replaces it if it was
// not brought up.
func (r *machineResource) Make(ctx context.Context, op *owned.Operation, m *machineModel) (err error) {
	spec := m.wanted(ctx, op)
	if spec.AuthorizedKeys, err = r.Session.AuthorizedKeys(); err != nil {
		return err
	}
	at := m.expiresAt(ctx, op.Diags)
	if err := r.inTime(at); err != nil {
		return err
	}
	spec.BootCommand = fitting(spec, at, bootCommand(ctx, r.Session, *m, op.Config, op.Diags), r.Session.Rand, op.Diags)
	if op.Diags.HasError() {
		return nil
	}
	say := func(message string) {
		tflog.Info(ctx, foreign.Text(message), map[string]any{"machine": m.Name.ValueString()})
	}
	say("machine: launching")
	launch, err := awsmachine.Launch(ctx, op.Client, spec, r.Session.Rand)
	if err != nil {
		return err
	}
	made, err := launch.Bring(ctx, func(machine awsmachine.Machine, hostKeys []string) awsmachine.Shell {
		say("machine: running")
		return r.Session.Connect(machine, hostKeys)
	})
	if err == nil && !at.IsZero() {
		r.warnOfExpiry(ctx, made, at, op.Diags)
	}
	if err == nil {
		say("machine: ready")
	}
	if made.ID != "" {
		op.Exists(made.Claim, made.Unsettled)
		m.fill(ctx, made)
		op.Keep(ctx, routesKey, made.RouteTables)
		op.Keep(ctx, expiryKey, !at.IsZero())
	}
	return err
}

// routesKey is the private-state entry with the route tables that got the route to the machine's
// pods.
const routesKey = "route_tables"

// Look implements owned.Kind.
func (r *machineResource) Look(ctx context.Context, op *owned.Operation, m *machineModel) error {
	expired, news := r.expire(ctx, m, op.Diags)
	spec := m.wanted(ctx, op)
	found, drift, err := awsmachine.Observe(ctx, op.Client, m.ID.ValueString(), spec)
	if errors.Is(err, infraaws.ErrNotFound) {
		r.Session.Gone.Store(m.ID.ValueString(), true)
	}
	if err != nil {
		return err
	}
	if news {
		drift = withoutPower(drift)
	}
	op.Exists(found.Claim, found.Unsettled)
	op.Keep(ctx, expiredKey, expired)
	// A failed update may have added routes without recording them.
	op.Keep(ctx, routesKey, union(spec.RoutedTables, found.RouteTables))
	grow := owned.Kept[bool](ctx, op, growKey)
	if op.Ownership.Lost() && int64(found.RootVolumeGiB) > m.RootVolumeSize.ValueInt64() {
		grow = true // the volume was enlarged by the update that died, and perhaps not its file system
		op.Keep(ctx, growKey, grow)
	}
	// With the values that are set here the plan knows that the instance is stopped and started, and that its public
	// address changes.
	m.InstanceType, m.PlacementGroup = types.StringValue(found.InstanceType), tf.OptionalString(found.PlacementGroup)
	m.fill(ctx, found)
	if found.State == reference.Running && !m.host().Off() && !r.Session.SSHUnknown {
		r.Session.Prepare(ctx, m.host().Remote(r.Session)) // the resources on it look at it soon
	}
	m.InstanceProfile = tf.OptionalString(found.InstanceProfile)
	m.seeRootKey(found)
	if grow && !m.stops() {
		drift = append(drift, finding.Finding{Subject: m.Name.ValueString(), Kind: finding.RootFileSystem, Problem: finding.TooSmall})
	}
	drift = append(drift, r.inspectData(ctx, *m, found, spec, drift, op.Diags)...)
	op.Drift = append(drift, r.inspectExpiry(ctx, op, *m, found)...)
	m.warnOfEvents(ctx, op.Client, found, op.Diags)
	op.Keep(ctx, rollKey, r.lookForImage(ctx, op.Client, *m, spec, op.Diags))
	return nil
}

// Change implements owned.Kind. A machine that has to be stopped waits for its turn: the
// machines of a cluster go down one at a time, and the next one only after the previous one is
// healthy again.
func (r *machineResource) Change(ctx context.Context, op *owned.Operation, m, state *machineModel) error {
	restart, err := r.begin(ctx, op.Client, *m, *state, op.Diags)
	defer func() { restart.Done() }()
	if err != nil {
		return err
	}
	ctx, cancel := argument.WithTimeout(ctx, m.Timeouts.Update, r.Deadlines.Update, op.Diags)
	defer cancel()
	private := machinePrivate{grow: owned.Kept[bool](ctx, op, growKey), routes: owned.Kept[[]string](ctx, op, routesKey), expires: owned.Kept[*bool](ctx, op, expiryKey)}
	private, err = r.converge(ctx, op, m, *state, restart, private)
	op.Keep(ctx, growKey, private.grow)
	op.Keep(ctx, routesKey, private.routes)
	op.Keep(ctx, expiryKey, private.expires)
	m.warnOfRestart(restart, op.Diags)
	return err
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
	// expires says whether the machine has, or may have, the timer that powers it off; nil if the refresh has yet to see.
	expires *bool
}

// converge changes the machine to what is planned and returns the new private state.
func (r *machineResource) converge(ctx context.Context, op *owned.Operation, m *machineModel, state machineModel, restart *maintenance.Restart, private machinePrivate) (machinePrivate, error) {
	client, spec := op.Client, m.wanted(ctx, op)
	if state.ImagePolicy.ValueString() == imageRolls {
		spec.RemoveTags = append(spec.RemoveTags, infraaws.TagRoll)
	}
	spec.RemovePodCIDR = tf.Prefix(state.PodCIDR)
	at := m.expiresAt(ctx, op.Diags)
	if err := r.inTime(at); err != nil && !m.stops() {
		return private, err
	}
	made, err := awsmachine.Converge(ctx, client, m.ID.ValueString(), spec, func(ctx context.Context, now awsmachine.Machine) error {
		return r.stop(ctx, client, restart, *m, now, op.Diags)
	})
	if err != nil {
		restart.Abandon(ctx)
		// Do this also if the update was interrupted or its time limit was reached.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience.Of(ctx, finalReadTimeout))
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
	started := restart.Suspended() || state.restarts(*m)
	if started || state.stops() { // an interrupted apply, or somebody else, may have started it a moment ago
		if err := waitBehind(ctx, r.Session, client, made, state.pausedNetwork().ValueBool()); err != nil {
			return private, err
		}
	}
	if started {
		if err := restart.Resume(ctx, r.sight(client, *m, made)); err != nil {
			return private, err
		}
	}
	if started || state.usesDataOtherwise(*m) {
		if err := awsmachine.UseDataVolume(ctx, client, made, spec, r.Session.Connect); err != nil {
			return private, err
		}
	}
	if !at.IsZero() || private.expires != nil && *private.expires {
		private.expires = new(true)
		if err := r.setExpiry(ctx, made, at); err != nil {
			return private, err
		}
		private.expires = new(!at.IsZero())
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

// Remove implements owned.Kind.
func (r *machineResource) Remove(ctx context.Context, op *owned.Operation, m *machineModel) error {
	spec, next := m.wanted(ctx, op), takeSuccession(ctx, *m, op)
	if err := awsmachine.CheckClaim(ctx, op.Client, m.ID.ValueString(), spec); err != nil {
		return err
	}
	left, err := r.depart(ctx, op.Client, *m, next, op.Diags)
	defer left.Done()
	if err != nil {
		return err
	}
	ctx, cancel := argument.WithTimeout(ctx, m.Timeouts.Delete, machineTimeout, op.Diags)
	defer cancel()
	if err = awsmachine.Delete(ctx, op.Client, m.ID.ValueString(), spec); err != nil {
		m.stays(ctx, left, next, op.Diags)
	}
	return err
}

// wanted returns the specification for an operation.
func (m machineModel) wanted(ctx context.Context, op *owned.Operation) awsmachine.Spec {
	s := m.spec(ctx, op.Diags)
	s.HostKey = m.HostKey.ValueString()
	s.Claim, s.RemoveTags, s.RoutedTables = op.Ownership.Claim, op.RemoveTags, owned.Kept[[]string](ctx, op, routesKey)
	return s
}

func (m machineModel) spec(ctx context.Context, diags *diag.Diagnostics) awsmachine.Spec {
	network, _ := reference.OfNetwork.Read(ctx, m.Network, diags)
	role := infraaws.MachineRole(m.Role.ValueString())
	var subnets []string
	for _, s := range network.KnownSubnets(ctx, diags) {
		subnets = append(subnets, s.ID.ValueString())
	}
	return awsmachine.Spec{
		Cluster:          network.Cluster.ValueString(),
		Name:             m.Name.ValueString(),
		Role:             role,
		SubnetID:         m.subnet(ctx, diags).ID.ValueString(),
		VPCID:            network.VPCID.ValueString(),
		NetworkSubnets:   subnets,
		SecurityGroupIDs: append(network.MachineGroups(role), tf.Strings(m.SecurityGroupIDs.Elements())...),
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
