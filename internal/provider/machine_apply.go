package provider

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// Create implements resource.Resource.
func (r *machineResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var m machineModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := tf.Within(ctx, m.Timeouts.Create, machineTimeout, &resp.Diagnostics)
	defer cancel()
	fail := func(err error) { addError(&resp.Diagnostics, "Cannot make machine "+m.Name.ValueString(), err) }

	client, err := r.data.aws(ctx)
	if err != nil {
		fail(err)
		return
	}
	spec := m.spec(ctx, &resp.Diagnostics)
	if spec.Claim, err = r.data.newClaim(); err == nil {
		spec.AuthorizedKeys, err = r.data.authorizedKeys(ctx)
	}
	if err != nil {
		fail(err)
		return
	}
	say := func(message string) { tflog.Info(ctx, message, map[string]any{"machine": m.Name.ValueString()}) }
	say("machine: launching")
	launch, err := client.LaunchMachine(ctx, spec, r.data.rand)
	if err != nil {
		fail(err)
		return
	}
	made, err := launch.Bring(ctx, func(machine infraaws.Machine, hostKeys []string) infraaws.Shell {
		say("machine: running")
		return r.data.connect(machine, hostKeys)
	})
	if err != nil {
		// The instance costs money from now on: it stays in the state, and the
		// next apply replaces it.
		fail(err)
	} else {
		say("machine: ready")
	}
	m.fill(ctx, made)
	tf.WritePrivate(ctx, resp.Private, claimKey, spec.Claim, &resp.Diagnostics)
	tf.WritePrivate(ctx, resp.Private, routesKey, made.RouteTables, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// claimKey is where private state holds the claim to the instance.
const claimKey = "claim"

// routesKey is where private state lists the route tables that got the route to
// the machine's pods.
const routesKey = "route_tables"

// newClaim makes a claim that nobody else has.
func (d *providerData) newClaim() (string, error) {
	b := make([]byte, 8)
	if _, err := io.ReadFull(d.rand, b); err != nil {
		return "", fmt.Errorf("make a claim: %w", err)
	}
	return hex.EncodeToString(b), nil
}

// Read implements resource.Resource.
func (r *machineResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var m machineModel
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := tf.Within(ctx, m.Timeouts.Read, readTimeout, &resp.Diagnostics)
	defer cancel()
	client, err := r.data.aws(ctx)
	if errors.Is(err, errNotYetKnown) {
		return
	}
	if err != nil {
		addError(&resp.Diagnostics, "Cannot refresh machine "+m.Name.ValueString(), err)
		return
	}
	spec := m.spec(ctx, &resp.Diagnostics)
	spec.RoutedTables = tf.ReadPrivate[[]string](ctx, req.Private, routesKey, &resp.Diagnostics)
	found, drift, err := client.ObserveMachine(ctx, m.ID.ValueString(), spec)
	switch {
	case errors.Is(err, infraaws.ErrNotFound):
		// Terraform itself does not tell why it makes something anew.
		resp.Diagnostics.AddWarning("Machine "+m.Name.ValueString()+" is gone", err.Error()+"\n\nThe next apply creates it again.")
		resp.State.RemoveResource(ctx)
		return
	case err != nil:
		addError(&resp.Diagnostics, "Cannot refresh machine "+m.Name.ValueString(), err)
		return
	}
	// An update that failed may have made routes without a record of them.
	tf.WritePrivate(ctx, resp.Private, routesKey, union(spec.RoutedTables, found.RouteTables), &resp.Diagnostics)
	if found.HostKey == "" {
		// Whoever deletes the tag takes nothing away: the state knows the key.
		found.HostKey = m.HostKey.ValueString()
	}
	m.fill(ctx, found)
	// The plan then knows that the instance stops and starts, and that its
	// public address becomes another one.
	m.InstanceType = types.StringValue(found.InstanceType)
	if tf.ReadPrivate[bool](ctx, req.Private, growKey, &resp.Diagnostics) {
		drift = append(drift, finding.Finding{Subject: m.Name.ValueString(), Kind: finding.RootFileSystem, Problem: finding.TooSmall})
	}
	m.Drift = driftValue(drift)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// Update implements resource.Resource. A machine that has to be stopped waits
// for its turn: the machines of a cluster go down one at a time, and the next
// one only when the last does again what it did before.
func (r *machineResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var m, state machineModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	keeps := machinePrivate{
		grow:   tf.ReadPrivate[bool](ctx, req.Private, growKey, &resp.Diagnostics),
		routes: tf.ReadPrivate[[]string](ctx, req.Private, routesKey, &resp.Diagnostics),
	}
	fail := func(err error) { addError(&resp.Diagnostics, "Cannot change machine "+m.Name.ValueString(), err) }
	way, err := r.begin(ctx, m, state, &resp.Diagnostics)
	defer func() { way.done() }()
	if err != nil {
		fail(err)
		return
	}
	ctx, cancel := tf.Within(ctx, m.Timeouts.Update, machineChangeTimeout, &resp.Diagnostics)
	defer cancel()
	client, err := r.data.aws(ctx)
	if err == nil {
		keeps, err = r.converge(ctx, client, &m, state, way, keeps, &resp.Diagnostics)
	}
	tf.WritePrivate(ctx, resp.Private, growKey, keeps.grow, &resp.Diagnostics)
	tf.WritePrivate(ctx, resp.Private, routesKey, keeps.routes, &resp.Diagnostics)
	way.warn(&resp.Diagnostics)
	if err != nil {
		fail(err)
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// growKey is where private state remembers that the root volume was enlarged
// and the file system on it was not yet.
const growKey = "grow"

// lastLook is how long a failed update may take to see what it did.
const lastLook = 30 * time.Second

// union returns what is in either list, sorted.
func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// machinePrivate is what an update reads of private state and leaves there.
type machinePrivate struct {
	grow   bool     // the root file system has yet to fill its volume
	routes []string // tables that got the route to the machine's pods
}

// converge brings the machine to what is planned, and returns what is to be
// kept in private state.
func (r *machineResource) converge(ctx context.Context, client *infraaws.Client, m *machineModel, state machineModel, way *stopover, keeps machinePrivate, diags *diag.Diagnostics) (machinePrivate, error) {
	spec := m.spec(ctx, diags)
	spec.RemoveTags = removedKeys(state.TagsAll, m.TagsAll)
	spec.RemovePodCIDR, spec.RoutedTables = tf.Prefix(state.PodCIDR), keeps.routes
	made, err := client.ConvergeMachine(ctx, m.ID.ValueString(), spec, func(ctx context.Context, now infraaws.Machine) error {
		return way.stop(ctx, client, now)
	})
	if err != nil {
		way.abandon(ctx, client)
		// Also when it was interrupted or its time is over.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLook)
		defer cancel()
		now, _, looked := client.ObserveMachine(last, m.ID.ValueString(), spec)
		keeps.routes = union(keeps.routes, now.RouteTables)
		keeps.grow = keeps.grow || looked == nil && int64(now.RootVolumeGiB) > state.RootVolumeSize.ValueInt64()
		return keeps, err
	}
	keeps.routes = made.RouteTables
	keeps.grow = keeps.grow || m.RootVolumeSize.ValueInt64() > state.RootVolumeSize.ValueInt64()
	made.Name, made.User, made.HostKey = m.Name.ValueString(), m.User.ValueString(), state.HostKey.ValueString()
	if m.PublicIP.IsUnknown() { // it was started
		if err := client.WaitMachine(ctx, made, r.data.connect); err != nil {
			return keeps, err
		}
		if err := way.resume(ctx, made); err != nil {
			return keeps, err
		}
	}
	if keeps.grow {
		if err := client.GrowRoot(ctx, made, spec.RootVolumeGiB, r.data.connect); err != nil {
			return keeps, err
		}
	}
	keeps.grow = false
	m.fill(ctx, made)
	return keeps, nil
}

// Delete implements resource.Resource. An instance that another create has
// adopted since belongs to that one's state: with create_before_destroy there
// is only one instance, and it must not go.
func (r *machineResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var m machineModel
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	claim := tf.ReadPrivate[string](ctx, req.Private, claimKey, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	client, err := r.data.aws(ctx)
	if err == nil {
		now, looked := client.LookMachine(ctx, m.ID.ValueString())
		if looked == nil && now.Claim != "" && now.Claim != claim {
			resp.Diagnostics.AddWarning("Machine "+m.Name.ValueString()+" was kept", m.ID.ValueString()+" is not terminated: another object has adopted the instance, "+
				"as the replacement of a machine does with create_before_destroy. A machine's name and address are taken as long as it exists, so there cannot be two of it.\n\n"+
				"To replace the machine, remove create_before_destroy from its lifecycle block and from the resources that depend on it, and apply with -replace.")
			return
		}
		var done func()
		done, err = r.dismiss(ctx, client, m, &resp.Diagnostics)
		defer done()
	}
	if err == nil {
		var cancel context.CancelFunc
		ctx, cancel = tf.Within(ctx, m.Timeouts.Delete, machineTimeout, &resp.Diagnostics)
		defer cancel()
		spec := m.spec(ctx, &resp.Diagnostics)
		spec.RoutedTables = tf.ReadPrivate[[]string](ctx, req.Private, routesKey, &resp.Diagnostics)
		err = client.DeleteMachine(ctx, m.ID.ValueString(), spec)
	}
	if err != nil {
		addError(&resp.Diagnostics, "Cannot delete machine "+m.Name.ValueString(), err)
	}
}

func (m machineModel) spec(ctx context.Context, diags *diag.Diagnostics) infraaws.MachineSpec {
	network, _ := networkRef.Read(ctx, m.Network, diags)
	var subnets []string
	for _, s := range network.subnets(ctx, diags) {
		subnets = append(subnets, s.ID.ValueString())
	}
	return infraaws.MachineSpec{
		Cluster:         network.Cluster.ValueString(),
		Name:            m.Name.ValueString(),
		Role:            infraaws.Role(m.Role.ValueString()),
		SubnetID:        m.subnet(ctx, diags).ID.ValueString(),
		VPCID:           network.VPCID.ValueString(),
		NetworkSubnets:  subnets,
		SecurityGroupID: tf.StringMap(network.SecurityGroupIDs)[m.Role.ValueString()],
		PrivateIP:       tf.Addr(m.PrivateIP),
		PodCIDR:         tf.Prefix(m.PodCIDR),
		PublicIP:        m.AssociatePublicIP.ValueBool(),
		InstanceType:    m.InstanceType.ValueString(),
		Image:           m.AMI.ValueString(),
		RootVolumeGiB:   int32(m.RootVolumeSize.ValueInt64()),
		User:            m.User.ValueString(),
		Tags:            tf.StringMap(m.Tags),
	}
}

// fill sets everything computed from the machine as it is.
func (m *machineModel) fill(ctx context.Context, found infraaws.Machine) {
	m.ID, m.ImageID = types.StringValue(found.ID), types.StringValue(found.ImageID)
	m.InstanceState, m.HostKey = types.StringValue(found.State), tf.OptionalString(found.HostKey)
	if found.PrivateIP.IsValid() || m.PrivateIP.IsUnknown() {
		m.PrivateIP = tf.OptionalAddr(found.PrivateIP)
	}
	// A stopped machine has no public address; it keeps its last one here until
	// a start gives it another, so that nothing else seems to change meanwhile.
	if found.State == running || m.PublicIP.IsUnknown() {
		m.PublicIP = tf.OptionalAddr(found.PublicIP)
	}
	// Somebody who grew the volume gets to see it; a smaller one is drift.
	m.RootVolumeSize = types.Int64Value(max(m.RootVolumeSize.ValueInt64(), int64(found.RootVolumeGiB)))
	m.Drift = tf.NoDrift()
	m.Host = hostRef.Value(ctx, m.host())
}
