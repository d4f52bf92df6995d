package machines

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/image"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/bake"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/owned"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// Make implements owned.Kind.
func (r *bakedImage) Make(ctx context.Context, op *owned.Operation, m *bakedImageModel) error {
	content := m.content(ctx, r.Session, op.Diags)
	downloads, err := content.Artifacts(r.Session.Catalog)
	if errors.Is(err, artifact.ErrUnknownChecksum) {
		err = r.Session.Catalog.Resolve(ctx, downloads)
	}
	keys, noKeys := r.Session.AuthorizedKeys()
	if err = errors.Join(err, noKeys); err != nil {
		return err
	}
	if m.Digest.IsUnknown() {
		r.planContent(ctx, m, op.Diags)
	}
	var registries types.Map // with passwords
	op.Diags.Append(op.Config.GetAttribute(ctx, path.Root("registries"), &registries)...)
	spec := bake.Spec{Image: m.spec(op), Machine: m.machine(ctx, op)}
	spec.Machine.User, spec.Machine.AuthorizedKeys = r.Session.SSH.User, keys
	if op.Diags.HasError() {
		return nil
	}
	say := func(message string) {
		tflog.Info(ctx, foreign.Text(message), map[string]any{"image": m.Name.ValueString()})
	}
	work := r.Session.Bake(bake.Site{
		Name: m.Name.ValueString(), State: content.State(downloads), Images: content.PodImages(), Registries: argument.Registries(ctx, registries), Progress: say,
	})
	say("image: making")
	made, err := bake.Make(ctx, op.Client, spec, r.Session.Rand, r.Session.Connect, work)
	if err == nil {
		say("image: ready")
	}
	if made.ID != "" {
		op.Exists(made.Claim, made.Unsettled)
		err = errors.Join(err, m.fill(ctx, op, made))
	}
	return err
}

// Look implements owned.Kind.
func (r *bakedImage) Look(ctx context.Context, op *owned.Operation, m *bakedImageModel) error {
	found, drift, err := image.Observe(ctx, op.Client, m.ID.ValueString(), m.spec(op))
	if err != nil {
		return err
	}
	users, err := image.InUse(ctx, op.Client, found.ID)
	if err != nil {
		return err
	}
	op.Exists(found.Claim, found.Unsettled)
	op.Keep(ctx, usersKey, users[found.ID])
	op.Drift = finding.About(m.Name.ValueString(), drift)
	return m.fill(ctx, op, found)
}

// Change implements owned.Kind: of an image only the tags change.
func (r *bakedImage) Change(ctx context.Context, op *owned.Operation, m, _ *bakedImageModel) error {
	now, err := image.Change(ctx, op.Client, m.ID.ValueString(), m.spec(op))
	if err != nil {
		return err
	}
	return m.fill(ctx, op, now)
}

// Remove implements owned.Kind. An image in use stays if there is another one of its name, which takes care of it.
func (r *bakedImage) Remove(ctx context.Context, op *owned.Operation, m *bakedImageModel) error {
	spec, id := m.spec(op), m.ID.ValueString()
	left := bake.Remove(ctx, op.Client, spec)
	if infraaws.IsClaimed(left) { // another run makes an image of this name
		left = nil
	}
	err := errors.Join(left, image.Delete(ctx, op.Client, id, spec))
	var used *image.InUseError
	if errors.As(err, &used) {
		next, failed := image.Successor(ctx, op.Client, id, spec)
		switch {
		case failed != nil:
			return errors.Join(err, failed)
		case !next:
			return fmt.Errorf("%w: terminate these instances, or replace them, and run the same command again; nothing was deleted", err)
		}
		if err := image.Retire(ctx, op.Client, id, spec, r.Session.Now()); err != nil {
			return err
		}
		op.Diags.AddWarning("An AMI in use stays", fmt.Sprintf("%s is used by %s. It is no longer in this state, and costs as much as its snapshot. Once no instance has it, it is drift of the new image %s, and an apply deletes it.",
			id, strings.Join(used.Users, ", "), m.Name.ValueString()))
		return nil
	}
	if err != nil {
		return err
	}
	if next, err := image.Successor(ctx, op.Client, id, spec); err != nil || next {
		return err
	}
	// This was the last one of its name: nobody else takes care of those that it has replaced.
	busy, err := image.Sweep(ctx, op.Client, spec)
	for _, left := range slices.Sorted(maps.Keys(busy)) {
		op.Diags.AddWarning("An AMI in use stays", fmt.Sprintf("%s was replaced while it was in use, and is used by %s. Nothing takes care of it any more: deregister it and delete its snapshot when these instances are gone, "+
			"or make an image %s again, which deletes it.", left, strings.Join(busy[left], ", "), m.Name.ValueString()))
	}
	return err
}

var bakedID = regexp.MustCompile(`^ami-([0-9a-f]{8}|[0-9a-f]{17})$`)

// Find implements owned.Kind. What is on an image is known only by its digest.
func (r *bakedImage) Find(ctx context.Context, op *owned.Operation, id string, m *bakedImageModel) error {
	cluster, id, named, err := namedID(ctx, op.Client, id, bakedID, image.Named)
	if err != nil {
		return err
	}
	found, err := image.Find(ctx, op.Client, id)
	switch {
	case err != nil:
		return err
	case found.Cluster == "" || found.Name == "" || found.Content == "":
		return fmt.Errorf("image %s was not made by this provider: the tags %s, %s and %s say which one it is, and what it has", id, infraaws.TagCluster, infraaws.TagResource, image.TagContent)
	case named && found.Cluster != cluster:
		return fmt.Errorf("image %s is image %s of cluster %s, not of cluster %s: nothing was imported", id, found.Name, found.Cluster, cluster)
	}
	op.Exists(found.Claim, found.Unsettled)
	m.Name, m.Cluster, m.Digest = types.StringValue(found.Name), types.StringValue(found.Cluster), types.StringValue(found.Content)
	m.RootVolumeSize, m.AssociatePublicIP, m.InstanceType = types.Int64Value(int64(found.SizeGiB)), types.BoolValue(true), types.StringValue(infraaws.DefaultInstanceType)
	m.Tags = op.Tags(found.Tags)
	return m.fill(ctx, op, found)
}

// spec returns the specification of the image.
func (m bakedImageModel) spec(op *owned.Operation) image.Spec {
	return image.Spec{
		Cluster: m.Cluster.ValueString(), Name: m.Name.ValueString(), Content: m.Digest.ValueString(), Versions: bake.Summary(tf.StringMap(m.Versions)),
		Tags: tf.StringMap(m.Tags), RemoveTags: op.RemoveTags, Claim: op.Ownership.Claim,
	}
}

// machine returns the specification of the machine that is made for the image.
func (m bakedImageModel) machine(ctx context.Context, op *owned.Operation) awsmachine.Spec {
	network, given := reference.OfNetwork.Read(ctx, m.Network, op.Diags)
	subnet := m.SubnetID.ValueString()
	if given {
		subnet = m.subnet(ctx, network, op.Diags).ID.ValueString()
	}
	return awsmachine.Spec{
		SubnetID: subnet, VPCID: network.VPCID.ValueString(), SecurityGroupIDs: m.groups(network), PublicIP: m.AssociatePublicIP.ValueBool(),
		InstanceType: m.InstanceType.ValueString(), Image: m.AMI.ValueString(), ImageFilter: machineModel{ImageFilter: m.ImageFilter}.imageFilter(ctx, op.Diags),
		RootVolumeGiB: int32(m.RootVolumeSize.ValueInt64()), RootVolumeKey: m.KMSKeyID.ValueString(),
	}
}

// fill sets the computed attributes from the image that was found.
func (m *bakedImageModel) fill(ctx context.Context, op *owned.Operation, found image.Image) error {
	m.ID, m.SnapshotIDs, m.BaseImageID = types.StringValue(found.ID), tf.StringsValue(found.SnapshotIDs), tf.OptionalString(found.BaseID)
	m.Drift = tf.NoDrift()
	if !m.KMSKeyID.IsNull() && !m.KMSKeyID.IsUnknown() {
		return nil
	}
	key, err := image.Key(ctx, op.Client, found)
	m.KMSKeyID = tf.OptionalString(key)
	return err
}
