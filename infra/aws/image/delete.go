package image

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

// InUseError says that an image is in use, and was not deleted for that reason.
type InUseError struct {
	ID    string
	Users []string // "i-0123 (demo-worker-0)", "launch template web (lt-0123)"
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("image %s is in use by %s", e.ID, strings.Join(e.Users, ", "))
}

// InUse returns who uses any of the images, by image: instances that were launched from it and run or can be started, and launch templates that name it in
// their latest or default version, as an Auto Scaling group has them. An instance needs its image no longer, but whoever replaces it by the same
// configuration does.
func InUse(ctx context.Context, c *aws.Client, ids ...string) (map[string][]string, error) {
	out := map[string][]string{}
	for some := range slices.Chunk(ids, aws.FilterValues) {
		err := c.EachInstance(ctx, func(i types.Instance) {
			name := sdk.ToString(i.InstanceId)
			if n := aws.TagMap(i.Tags)["Name"]; n != "" {
				name += " (" + n + ")"
			}
			out[sdk.ToString(i.ImageId)] = append(out[sdk.ToString(i.ImageId)], name)
		}, aws.Filter("image-id", some...), aws.Filter("instance-state-name", "pending", "running", "stopping", "stopped"))
		if err != nil {
			return nil, fmt.Errorf("find out who uses images: %w", err)
		}
		versions, err := aws.All(ctx, ec2.NewDescribeLaunchTemplateVersionsPaginator(c.EC2, &ec2.DescribeLaunchTemplateVersionsInput{
			Versions: []string{"$Latest", "$Default"}, Filters: []types.Filter{aws.Filter("image-id", some...)},
		}), func(p *ec2.DescribeLaunchTemplateVersionsOutput) []types.LaunchTemplateVersion {
			return p.LaunchTemplateVersions
		})
		if err != nil {
			return nil, fmt.Errorf("find out which launch templates use images: %w", err)
		}
		for _, v := range versions {
			id := sdk.ToString(v.LaunchTemplateData.ImageId)
			out[id] = append(out[id], fmt.Sprintf("launch template %s (%s)", sdk.ToString(v.LaunchTemplateName), sdk.ToString(v.LaunchTemplateId)))
		}
	}
	for id, users := range out {
		slices.Sort(users)
		out[id] = slices.Compact(users)
	}
	return out, nil
}

// Delete deregisters the image and deletes its snapshots. An image that does not exist is no error: what is left of its snapshots
// goes. The error is an InUseError if an instance uses it, and a ClaimedError if it belongs to another owner.
func Delete(ctx context.Context, c *aws.Client, id string, spec Spec) error {
	i, err := owned(ctx, c, id, spec)
	if errors.Is(err, aws.ErrNotFound) {
		return spec.about(id, deleteSnapshots(ctx, c, id, spec))
	}
	if err != nil {
		return spec.about(id, err)
	}
	users, err := InUse(ctx, c, id)
	if err == nil && len(users[id]) > 0 {
		err = &InUseError{ID: id, Users: users[id]}
	}
	if err == nil {
		err = remove(ctx, c, i)
	}
	return spec.about(id, err)
}

// remove deregisters an image whose owner is known.
func remove(ctx context.Context, c *aws.Client, i Image) error {
	_, err := c.EC2.DeregisterImage(ctx, &ec2.DeregisterImageInput{ImageId: &i.ID, DeleteAssociatedSnapshots: sdk.Bool(true)},
		c.RetryOn(aws.DoubtAttempts, "InvalidAMIID.NotFound"))
	if err = aws.Ignore(err, "InvalidAMIID.NotFound", "InvalidAMIID.Unavailable"); err != nil {
		return fmt.Errorf("deregister %s: %w", i.ID, err)
	}
	return deleteSnapshots(ctx, c, i.ID, Spec{Claim: i.Claim})
}

// snapshotsOf returns the snapshots of an image, also of one that is gone: their description is EC2's own.
func snapshotsOf(ctx context.Context, c *aws.Client, id string) ([]types.Snapshot, error) {
	input := &ec2.DescribeSnapshotsInput{OwnerIds: []string{"self"}, Filters: []types.Filter{aws.Filter("description", "Created by CreateImage(*) for "+id+"*")}}
	return aws.All(ctx, ec2.NewDescribeSnapshotsPaginator(c.EC2, input), func(p *ec2.DescribeSnapshotsOutput) []types.Snapshot { return p.Snapshots })
}

// deleteSnapshots deletes the snapshots that are left of an image.
func deleteSnapshots(ctx context.Context, c *aws.Client, id string, spec Spec) error {
	found, err := snapshotsOf(ctx, c, id)
	if err != nil {
		return fmt.Errorf("look for its snapshots: %w", err)
	}
	for _, s := range found {
		if _, err := spec.Claim.Judge("snapshot "+sdk.ToString(s.SnapshotId), aws.OwnerOf(aws.TagMap(s.Tags)), true); err != nil {
			return err
		}
		// For a moment EC2 may still say that the image has it.
		_, err := c.EC2.DeleteSnapshot(ctx, &ec2.DeleteSnapshotInput{SnapshotId: s.SnapshotId}, c.RetryOn(aws.ConsistencyAttempts, "InvalidSnapshot.InUse"))
		if err = aws.Ignore(err, "InvalidSnapshot.NotFound"); err != nil {
			return fmt.Errorf("delete its snapshot %s: %w", sdk.ToString(s.SnapshotId), err)
		}
	}
	return nil
}

// Successor reports whether the account has another image of the same cluster and name that can be used.
func Successor(ctx context.Context, c *aws.Client, id string, spec Spec) (bool, error) {
	found, err := named(ctx, c, spec)
	return slices.ContainsFunc(found, func(i Image) bool {
		return i.ID != id && !i.Retired() && i.State == string(types.ImageStateAvailable)
	}), err
}

// Retire marks an image that is in use: no state has it from now on, and whoever has another image of its cluster and name deletes
// it once nothing uses it any more. The error is a ClaimedError if it belongs to another owner.
func Retire(ctx context.Context, c *aws.Client, id string, spec Spec, now time.Time) error {
	i, err := owned(ctx, c, id, spec)
	if err == nil {
		err = c.WriteTags(ctx, i.tagged(), map[string]string{TagRetired: now.UTC().Format(time.RFC3339)})
	}
	return spec.about(id, err)
}

// retired returns the retired images of the specification's cluster and name, and who uses those that are in use.
func retired(ctx context.Context, c *aws.Client, spec Spec) (idle []Image, busy map[string][]string, err error) {
	found, err := named(ctx, c, spec)
	if err != nil {
		return nil, nil, err
	}
	found = slices.DeleteFunc(found, func(i Image) bool { return !i.Retired() })
	if len(found) == 0 {
		return nil, nil, nil
	}
	var ids []string
	for _, i := range found {
		ids = append(ids, i.ID)
	}
	if busy, err = InUse(ctx, c, ids...); err != nil {
		return nil, nil, err
	}
	return slices.DeleteFunc(found, func(i Image) bool { return len(busy[i.ID]) > 0 }), busy, nil
}

// Sweep deletes the retired images of the specification's cluster and name that nothing uses any more. It returns who uses the
// others, by image.
func Sweep(ctx context.Context, c *aws.Client, spec Spec) (busy map[string][]string, err error) {
	idle, busy, err := retired(ctx, c, spec)
	for _, i := range idle {
		err = errors.Join(err, remove(ctx, c, i))
	}
	return busy, err
}
