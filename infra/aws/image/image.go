// Package image makes machine images (AMIs) of stopped instances, finds them again, and deletes them with their snapshots. What
// is on an image, and how a machine becomes one, may not enter: see package bake.
package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// Kind is the kind of an image in its tags.
const Kind = "image"

// Tags that only images have, and what becomes one.
const (
	// TagContent is the digest of what an image has; on a machine of which an image is made also how far it is, see package bake.
	TagContent = "k8s-from-scratch/content"
	// TagVersions says what an image has, for people.
	TagVersions = "k8s-from-scratch/versions"
	// TagRetired says since when no state has an image any more that was in use when it was to be deleted, see Retire.
	TagRetired = "k8s-from-scratch/retired"
)

// Spec is the wanted state of an image. An image never changes: only its tags do.
type Spec struct {
	// Cluster and Name are in the tags of the image. Several images may have the same ones, also with the same content: that is
	// how one is replaced by another.
	Cluster, Name string
	// Content identifies what is on the image: a digest in hex, 12 characters or more.
	Content string
	// Versions says for people what is on it, in the characters of a tag: "kubernetes 1.36.4, etcd 3.6.16".
	Versions string

	Tags       map[string]string
	RemoveTags []string
	// Claim says who owns the image. Those of other owners are neither changed nor deleted.
	Claim aws.Claim
}

// Image is an image of the account as found in EC2.
type Image struct {
	ID, AMIName            string
	Cluster, Name, Content string    // from its tags
	State                  string    // as EC2 calls it: "pending", "available", "failed", ...
	Reason                 string    // why it is in that state; empty if EC2 does not say it
	Created                time.Time // zero if EC2 does not say it
	SizeGiB                int32
	Encrypted              bool     // whether every snapshot is
	SnapshotIDs            []string // sorted
	BaseID                 string   // the image of the instance of which it was made; empty if EC2 does not say it
	Tags                   map[string]string
	Claim                  aws.Claim // its owner
	Unsettled              []string  // the ids of the image and of its snapshots, if its claim is not settled
}

// Retired reports whether the image was in use when its owner wanted to delete it; see Retire.
func (i Image) Retired() bool { return i.Tags[TagRetired] != "" }

// ends reports whether the image will never be available.
func (i Image) ends() bool {
	return slices.Contains([]types.ImageState{types.ImageStateFailed, types.ImageStateError, types.ImageStateInvalid}, types.ImageState(i.State))
}

// tagged returns the ids of what carries the image's tags.
func (i Image) tagged() []string { return append([]string{i.ID}, i.SnapshotIDs...) }

func of(found types.Image) Image {
	tags := aws.TagMap(found.Tags)
	i := Image{
		ID: sdk.ToString(found.ImageId), AMIName: sdk.ToString(found.Name), Cluster: tags[aws.TagCluster], Name: tags[aws.TagResource], Content: tags[TagContent],
		State: string(found.State), Encrypted: true, BaseID: sdk.ToString(found.SourceImageId), Tags: tags, Claim: aws.ClaimIn(tags),
	}
	i.Created, _ = time.Parse(time.RFC3339, sdk.ToString(found.CreationDate))
	if found.StateReason != nil {
		i.Reason = cmp.Or(sdk.ToString(found.StateReason.Message), sdk.ToString(found.StateReason.Code))
	}
	for _, m := range found.BlockDeviceMappings {
		if m.Ebs == nil || m.Ebs.SnapshotId == nil {
			continue
		}
		i.SnapshotIDs, i.SizeGiB = append(i.SnapshotIDs, *m.Ebs.SnapshotId), max(i.SizeGiB, sdk.ToInt32(m.Ebs.VolumeSize))
		i.Encrypted = i.Encrypted && sdk.ToBool(m.Ebs.Encrypted)
	}
	slices.Sort(i.SnapshotIDs)
	if aws.OwnerOf(tags).Unsettled() {
		i.Unsettled = i.tagged()
	}
	return i
}

// about says which image an error is about. A ClaimedError names it itself.
func (s Spec) about(id string, err error) error {
	if aws.IsClaimed(err) || err == nil {
		return err
	}
	what := "image " + s.Name
	if id != "" {
		what += " (" + id + ")"
	}
	return fmt.Errorf("%s: %w", what, err)
}

func tagsOf(c *aws.Client, s Spec) map[string]string {
	out := c.ClusterTags(s.Cluster, Kind, s.Name, s.Tags)
	out[TagContent] = s.Content
	if s.Versions != "" {
		out[TagVersions] = s.Versions
	}
	maps.Copy(out, s.Claim.Tags())
	return out
}

// judge decides about an image. known says that the caller knows its id.
func (s Spec) judge(i Image, known bool) (take bool, err error) {
	return s.Claim.Judge("image "+i.Name+" ("+i.ID+")", aws.OwnerOf(i.Tags), known)
}

// list returns the account's images that match, the oldest first. EC2 does not say which images there were.
func list(ctx context.Context, c *aws.Client, filters ...types.Filter) ([]Image, error) {
	found, err := aws.All(ctx, ec2.NewDescribeImagesPaginator(c.EC2, &ec2.DescribeImagesInput{Owners: []string{"self"}, Filters: filters, MaxResults: sdk.Int32(aws.PageSize)}),
		func(p *ec2.DescribeImagesOutput) []types.Image { return p.Images })
	if err != nil {
		return nil, fmt.Errorf("look for images: %w", err)
	}
	var all []Image
	for _, f := range found {
		if f.State != types.ImageStateDeregistered {
			all = append(all, of(f))
		}
	}
	slices.SortFunc(all, func(a, b Image) int { return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID)) })
	return all, nil
}

// named returns the images with the specification's cluster and name, whatever is on them.
func named(ctx context.Context, c *aws.Client, s Spec) ([]Image, error) {
	return list(ctx, c, append(aws.KindFilters(Kind, s.Cluster), aws.TagFilter(aws.TagResource, s.Name))...)
}

// Find returns an image of the account by its id, whoever owns it. The error is ErrNotFound if there is none.
func Find(ctx context.Context, c *aws.Client, id string) (Image, error) {
	found, err := list(ctx, c, aws.Filter("image-id", id))
	if err != nil {
		return Image{}, err
	}
	if len(found) == 0 {
		return Image{}, fmt.Errorf("image %s %w", id, aws.ErrNotFound)
	}
	return found[0], nil
}

// owned is Find for an image that has to be the specification's own: it adopts none. The error is a ClaimedError if it is not.
func owned(ctx context.Context, c *aws.Client, id string, spec Spec) (Image, error) {
	i, err := Find(ctx, c, id)
	if err == nil {
		spec.Claim.Adopt = false
		_, err = spec.judge(i, true)
	}
	return i, err
}

// Key returns the ARN of the KMS key with which the first snapshot of an image is encrypted, empty if there is none.
func Key(ctx context.Context, c *aws.Client, i Image) (string, error) {
	if len(i.SnapshotIDs) == 0 {
		return "", nil
	}
	out, err := c.EC2.DescribeSnapshots(ctx, &ec2.DescribeSnapshotsInput{Filters: []types.Filter{aws.Filter("snapshot-id", i.SnapshotIDs[0])}, OwnerIds: []string{"self"}})
	if err != nil || len(out.Snapshots) == 0 {
		return "", err
	}
	return sdk.ToString(out.Snapshots[0].KmsKeyId), nil
}

// Named returns the id of the image of a cluster with a name, by its tags. Of several, those that are retired do not count. If
// there are still two the error asks for an id.
func Named(ctx context.Context, c *aws.Client, cluster, name string) (string, error) {
	found, err := named(ctx, c, Spec{Cluster: cluster, Name: name})
	if err != nil {
		return "", err
	}
	var ids []string
	for _, i := range found {
		if !i.Retired() && !i.ends() {
			ids = append(ids, i.ID)
		}
	}
	return aws.Only("image "+name+" of "+cluster, ids)
}

// Observe returns the image, and how it differs from what is wanted: its tags, and retired images of its name that nothing uses
// any more. The findings have no subject. The error is ErrNotFound if the image does not exist any more or will never be
// available, and a ClaimedError if it belongs to another owner.
func Observe(ctx context.Context, c *aws.Client, id string, spec Spec) (Image, []finding.Finding, error) {
	i, err := Find(ctx, c, id)
	if err == nil {
		_, err = spec.judge(i, true)
	}
	if err == nil && i.ends() {
		err = fmt.Errorf("it is %s (%s): as an image it %w", i.State, cmp.Or(i.Reason, "EC2 does not say why"), aws.ErrNotFound)
	}
	if err != nil {
		return Image{}, nil, spec.about(id, err)
	}
	findings := aws.DiffTags(tagsOf(c, spec), i.Tags)
	idle, _, err := retired(ctx, c, spec)
	for _, r := range idle {
		findings = append(findings, finding.Finding{Kind: finding.RetiredImage, Target: r.ID, Problem: finding.NotWanted})
	}
	return i, findings, spec.about(id, err)
}

// Change sets the tags of the image and of its snapshots, and deletes retired images of its name that nothing uses any more. The
// error is a ClaimedError if it belongs to another owner.
func Change(ctx context.Context, c *aws.Client, id string, spec Spec) (Image, error) {
	i, err := Find(ctx, c, id)
	take := false
	if err == nil {
		take, err = spec.judge(i, true)
	}
	if err == nil && take {
		i, err = takeOver(ctx, c, i, spec)
	}
	if err == nil {
		err = errors.Join(c.WriteTags(ctx, i.tagged(), tagsOf(c, spec)), c.RemoveTags(ctx, i.tagged(), spec.RemoveTags, tagsOf(c, spec)))
	}
	if err == nil {
		_, err = Sweep(ctx, c, spec)
	}
	if err == nil {
		i, err = Find(ctx, c, id)
	}
	return i, spec.about(id, err)
}

// takeOver writes the claim on an image that an interrupted create has left, or that is to be adopted.
func takeOver(ctx context.Context, c *aws.Client, i Image, spec Spec) (Image, error) {
	if err := c.TakeOver(ctx, spec.Claim, i.tagged()); err != nil {
		return i, err
	}
	id := i.ID
	err := aws.ReadBack(ctx, func(ctx context.Context) (err error) {
		i, err = owned(ctx, c, id, spec)
		return err
	})
	return i, err
}
