package machines

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/volume"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/owned"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// Make implements owned.Kind.
func (r *volumeResource) Make(ctx context.Context, op *owned.Operation, m *volumeModel) error {
	made, err := volume.Ensure(ctx, op.Client, "", m.spec(ctx, op))
	if made.ID != "" {
		m.fill(made)
		op.Exists(made.Claim, made.Unsettled)
	}
	return err
}

// Look implements owned.Kind.
func (r *volumeResource) Look(ctx context.Context, op *owned.Operation, m *volumeModel) error {
	found, drift, err := volume.Observe(ctx, op.Client, m.ID.ValueString(), m.spec(ctx, op))
	if err != nil {
		return err
	}
	op.Exists(found.Claim, found.Unsettled)
	op.Drift = finding.About(m.Name.ValueString(), drift)
	before := *m
	m.fill(found)
	if m.Size.ValueInt64() > before.Size.ValueInt64() && !before.Size.IsNull() {
		op.Keep(ctx, enlargedKey, true)
	}
	// What differs is in drift. With the old values the plan does not change what EC2 computes.
	m.IOPS, m.Throughput = before.IOPS, before.Throughput
	return nil
}

// Change implements owned.Kind.
func (r *volumeResource) Change(ctx context.Context, op *owned.Operation, m, state *volumeModel) error {
	now, err := volume.Ensure(ctx, op.Client, m.ID.ValueString(), m.spec(ctx, op))
	if err == nil && m.Size.ValueInt64() > state.Size.ValueInt64() {
		err = awsmachine.GrowDataVolume(ctx, op.Client, now, r.Session.Connect)
	}
	if err != nil {
		return err
	}
	m.fill(now)
	var size types.Int64
	op.Diags.Append(op.Config.GetAttribute(ctx, path.Root("size"), &size)...)
	if size.Equal(m.Size) {
		op.Keep(ctx, enlargedKey, false)
	}
	return nil
}

// Remove implements owned.Kind.
func (r *volumeResource) Remove(ctx context.Context, op *owned.Operation, m *volumeModel) error {
	return volume.Delete(ctx, op.Client, m.ID.ValueString(), m.spec(ctx, op))
}

func (m volumeModel) spec(ctx context.Context, op *owned.Operation) volume.Spec {
	network, _ := reference.OfNetwork.Read(ctx, m.Network, op.Diags)
	subnet := m.SubnetID.ValueString()
	if subnets := network.KnownSubnets(ctx, op.Diags); subnet == "" && len(subnets) > 0 {
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
		Claim:       op.Ownership.Claim, RemoveTags: op.RemoveTags,
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
