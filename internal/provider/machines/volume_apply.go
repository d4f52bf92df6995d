package machines

import (
	"context"
	"errors"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/volume"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// Create implements resource.Resource.
func (r *volumeResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var m volumeModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := tf.WithTimeout(ctx, m.Timeouts.Create, volumeTimeout, &resp.Diagnostics)
	defer cancel()
	client, err := r.Session.AWS(ctx)
	var h session.Holding
	if err == nil {
		h, err = r.Session.NewHolding(ctx, client)
	}
	var made volume.Volume
	if err == nil {
		h.Adopt = m.Adopt.ValueBool()
		spec := m.spec(ctx, &resp.Diagnostics)
		spec.Claim = h.Claim
		made, err = volume.Ensure(ctx, client, "", spec)
	}
	if err != nil {
		session.AddError(&resp.Diagnostics, "Cannot make volume "+m.Name.ValueString(), err)
	}
	if made.ID == "" {
		return
	}
	if err == nil {
		r.Session.Claims.Made(h.Claim, made.Unsettled, nil)
	}
	m.fill(made)
	m.Claim = types.StringValue(h.ID)
	tf.WritePrivate(ctx, resp.Private, session.HoldingKey, h, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// Read implements resource.Resource.
func (r *volumeResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var m volumeModel
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := tf.WithTimeout(ctx, m.Timeouts.Read, argument.ReadTimeout, &resp.Diagnostics)
	defer cancel()
	client, ok := r.Session.AWSForRead(ctx, "Cannot refresh volume "+m.Name.ValueString(), &resp.Diagnostics)
	if !ok {
		return
	}
	h := session.ReadHolding(ctx, req.Private, m.Claim, &resp.Diagnostics)
	spec := m.spec(ctx, &resp.Diagnostics)
	spec.Claim = h.Claim
	var found volume.Volume
	var drift []finding.Finding
	err := r.Session.Checked(ctx, client, h)
	if err == nil {
		found, drift, err = volume.Observe(ctx, client, m.ID.ValueString(), spec)
	}
	if err == nil {
		h, err = r.Session.Recovered(ctx, client, h, found.Claim)
	}
	switch {
	case errors.Is(err, infraaws.ErrNotFound):
		resp.Diagnostics.AddWarning("Volume "+m.Name.ValueString()+" is gone", err.Error()+"\n\nThe next apply makes another one, which is empty, and replaces the machine that has it.")
		resp.State.RemoveResource(ctx)
		return
	case err != nil:
		session.AddError(&resp.Diagnostics, "Cannot refresh volume "+m.Name.ValueString(), err)
		return
	}
	r.Session.Settle(ctx, client, h, found.Unsettled)
	tf.WritePrivate(ctx, resp.Private, session.HoldingKey, h, &resp.Diagnostics)
	before := m
	m.fill(found)
	if m.Size.ValueInt64() > before.Size.ValueInt64() && !before.Size.IsNull() {
		tf.WritePrivate(ctx, resp.Private, enlargedKey, true, &resp.Diagnostics)
	}
	// What differs is in drift. With the old values the plan does not change what EC2 computes.
	m.IOPS, m.Throughput = before.IOPS, before.Throughput
	m.Claim, m.Drift = tf.OptionalString(h.ID), argument.DriftValue(finding.About(m.Name.ValueString(), drift))
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// Update implements resource.Resource.
func (r *volumeResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var m, state volumeModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if argument.OnlyProtection(req) {
		resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
		return
	}
	ctx, cancel := tf.WithTimeout(ctx, m.Timeouts.Update, volumeTimeout, &resp.Diagnostics)
	defer cancel()
	client, err := r.Session.AWS(ctx)
	var h session.Holding
	if err == nil {
		h, err = r.Session.ForUpdate(ctx, client, session.ReadHolding(ctx, req.Private, state.Claim, &resp.Diagnostics), m.Adopt)
	}
	var now volume.Volume
	if err == nil {
		tf.WritePrivate(ctx, resp.Private, session.HoldingKey, h, &resp.Diagnostics)
		spec := m.spec(ctx, &resp.Diagnostics)
		spec.Claim, spec.RemoveTags = h.Claim, argument.RemovedKeys(state.TagsAll, m.TagsAll)
		now, err = volume.Ensure(ctx, client, m.ID.ValueString(), spec)
	}
	if err == nil && m.Size.ValueInt64() > state.Size.ValueInt64() {
		err = awsmachine.GrowDataVolume(ctx, client, now, r.Session.Connect)
	}
	if err != nil {
		session.AddError(&resp.Diagnostics, "Cannot change volume "+m.Name.ValueString(), err)
		return
	}
	m.fill(now)
	var size types.Int64
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("size"), &size)...)
	if size.Equal(m.Size) {
		tf.WritePrivate(ctx, resp.Private, enlargedKey, false, &resp.Diagnostics)
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// Delete implements resource.Resource. A volume that is another's by now is left alone.
func (r *volumeResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var m volumeModel
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	h := session.ReadHolding(ctx, req.Private, m.Claim, &resp.Diagnostics)
	spec := m.spec(ctx, &resp.Diagnostics)
	spec.Claim = h.Claim
	if resp.Diagnostics.HasError() || !argument.MayDelete(ctx, "volume "+m.Name.ValueString(), req.State, &resp.Diagnostics) {
		return
	}
	ctx, cancel := tf.WithTimeout(ctx, m.Timeouts.Delete, volumeTimeout, &resp.Diagnostics)
	defer cancel()
	client, err := r.Session.AWS(ctx)
	if err == nil {
		err = r.Session.Checked(ctx, client, h)
	}
	if err == nil {
		err = volume.Delete(ctx, client, m.ID.ValueString(), spec)
	}
	r.Session.Claims.Gone(h.Claim)
	if err != nil && !session.AddKept(&resp.Diagnostics, "Volume "+m.Name.ValueString(), err) {
		session.AddError(&resp.Diagnostics, "Cannot delete volume "+m.Name.ValueString(), err)
	}
}

func (m volumeModel) spec(ctx context.Context, diags *diag.Diagnostics) volume.Spec {
	network, _ := reference.OfNetwork.Read(ctx, m.Network, diags)
	subnet := m.SubnetID.ValueString()
	if subnets := network.KnownSubnets(ctx, diags); subnet == "" && len(subnets) > 0 {
		subnet = subnets[0].ID.ValueString()
	}
	return volume.Spec{
		Cluster:  network.Cluster.ValueString(),
		Name:     m.Name.ValueString(),
		SubnetID: subnet,
		SizeGiB:  int32(m.Size.ValueInt64()),
		KMSKeyID: m.KMSKeyID.ValueString(),
		Tags:     tf.StringMap(m.Tags),

		Performance: m.performance().wanted(),
	}
}

// fill sets all computed attributes from the volume that was found.
func (m *volumeModel) fill(found volume.Volume) {
	m.ID, m.AvailabilityZone = types.StringValue(found.ID), types.StringValue(found.AvailabilityZone)
	// If someone enlarged the volume, the new size is shown; a smaller one is drift.
	m.Size = types.Int64Value(max(m.Size.ValueInt64(), int64(found.SizeGiB)))
	p := m.performance()
	p.fill(found.Performance)
	m.IOPS, m.Throughput = p.IOPS, p.Throughput
	if m.KMSKeyID.IsUnknown() {
		m.KMSKeyID = tf.OptionalString(found.KMSKeyID)
	}
	m.Drift = tf.NoDrift()
}

func optionalInt(n int32) types.Int64 {
	if n == 0 {
		return types.Int64Null()
	}
	return types.Int64Value(int64(n))
}
