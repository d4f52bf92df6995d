// Package volume makes EBS volumes that outlive the machines to which they are attached, and says what volumes can do.
// What is done on a machine may not enter: package machine attaches and mounts them.
package volume

import (
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
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// Spec is the wanted state of an EBS volume that outlives the machine to which it is attached.
// It is always encrypted.
type Spec struct {
	Cluster, Name string
	// SubnetID names the availability zone: a volume can be attached only to machines of its zone.
	SubnetID string
	SizeGiB  int32
	Performance
	// KMSKeyID is the id, ARN or alias of a KMS key, used only at the creation; empty means the
	// account's key for EBS.
	KMSKeyID string

	Tags       map[string]string
	RemoveTags []string
	// Claim says who owns the volume. Objects of other owners are neither changed nor deleted.
	Claim aws.Claim
}

// Performance is what a volume can do.
type Performance struct {
	Type string // "gp3", "gp2", "io1", "io2"
	// IOPS and ThroughputMiB (MiB/s) are zero where EC2 decides: see Check.
	IOPS, ThroughputMiB int32
}

// PerformanceOf reads what a volume can do from EC2's description.
func PerformanceOf(v types.Volume) Performance {
	return Performance{string(v.VolumeType), sdk.ToInt32(v.Iops), sdk.ToInt32(v.Throughput)}
}

// Volume is an EBS volume as found in EC2.
type Volume struct {
	ID               string
	Cluster, Name    string // from its tags
	AvailabilityZone string
	State            string // as EC2 calls it: "available", "in-use", "error", ...
	SizeGiB          int32
	Performance
	KMSKeyID            string // ARN
	InstanceID          string // to which it is attached, or about to be; empty if it is not
	Attachment          string // as EC2 calls it: "attaching", "attached", "detaching", "busy"; empty if there is none
	Device              string // the name that its attachment has in EC2, "/dev/sdf"
	DeletedWithInstance bool   // whether the end of the instance deletes it
	FileSystem          string // UUID of the file system that was made on it, as its tags say
	Tags                map[string]string
	Claim               aws.Claim // its owner
	Unsettled           []string  // its id, if it has a claim that is not settled
}

// Of reads EC2's description of a volume.
func Of(v types.Volume) Volume {
	tags := aws.TagMap(v.Tags)
	out := Volume{
		ID: sdk.ToString(v.VolumeId), Cluster: tags[aws.TagCluster], Name: tags[aws.TagResource],
		AvailabilityZone: sdk.ToString(v.AvailabilityZone), State: string(v.State),
		SizeGiB: sdk.ToInt32(v.Size), Performance: PerformanceOf(v),
		KMSKeyID: sdk.ToString(v.KmsKeyId), FileSystem: tags[aws.TagFileSystem], Tags: tags, Claim: aws.ClaimIn(tags),
	}
	for _, a := range v.Attachments {
		if a.State != types.VolumeAttachmentStateDetached {
			out.InstanceID, out.Attachment, out.Device = sdk.ToString(a.InstanceId), string(a.State), sdk.ToString(a.Device)
			out.DeletedWithInstance = sdk.ToBool(a.DeleteOnTermination)
		}
	}
	if aws.OwnerOf(tags).Unsettled() {
		out.Unsettled = []string{out.ID}
	}
	return out
}

// Ensure makes the volume, or continues with the one that an interrupted run left, and brings it to
// what is wanted in place. id is that of the volume, empty on creation. With an error it returns the
// volume that it has made or was given, but not a volume that it has found: Terraform deletes what a
// failed creation returns, and a found volume may have data. If the error is a ClaimedError, it
// returns nothing.
func Ensure(ctx context.Context, c *aws.Client, id string, spec Spec) (Volume, error) {
	zone, err := c.ZoneOfSubnet(ctx, spec.SubnetID)
	if err != nil {
		return Volume{}, spec.about(id, err)
	}
	v, err := claim(ctx, c, id, zone, spec)
	made := id == "" && errors.Is(err, aws.ErrNotFound)
	if made {
		v, err = create(ctx, c, zone, spec)
	} else if id == "" {
		err = aws.Raced(err)
	}
	if err != nil {
		return Volume{}, spec.about(id, err)
	}
	if v, err = awaitMade(ctx, c, v, spec); err == nil {
		v, err = put(ctx, c, v, spec)
	}
	switch {
	case err != nil && (made || id != ""):
		return v, spec.about(v.ID, err)
	case err != nil: // the next run finds it again, by its tags
		return Volume{}, spec.about(v.ID, err)
	}
	if id == "" {
		err = confirm(ctx, c, v, spec, made)
	}
	switch {
	case aws.IsClaimed(err):
		return Volume{}, aws.Raced(err)
	case err != nil && made:
		return v, spec.about(v.ID, err)
	case err != nil:
		return Volume{}, spec.about(v.ID, err)
	}
	return v, nil
}

// about says which volume an error is about. A ClaimedError names it itself.
func (s Spec) about(id string, err error) error {
	if aws.IsClaimed(err) {
		return err
	}
	return fmt.Errorf("%s: %w", strings.TrimSpace("volume "+s.Name+" "+parenthesized(id)), err)
}

func parenthesized(s string) string {
	if s == "" {
		return ""
	}
	return "(" + s + ")"
}

// create makes the volume. The client token is that of the claim: a call that is repeated
// because its answer was lost makes no second volume, and another owner never gets this one.
func create(ctx context.Context, c *aws.Client, zone string, spec Spec) (Volume, error) {
	in := &ec2.CreateVolumeInput{
		AvailabilityZone: &zone, Size: &spec.SizeGiB, VolumeType: types.VolumeType(spec.Type), Encrypted: sdk.Bool(true),
		Iops: aws.NonZero(spec.WantedIOPS()), Throughput: aws.NonZero(spec.ThroughputMiB),
		TagSpecifications: []types.TagSpecification{aws.TagSpecification(types.ResourceTypeVolume, tagsOf(c, spec))},
	}
	if spec.KMSKeyID != "" {
		in.KmsKeyId = &spec.KMSKeyID
	}
	if spec.Claim.ID != "" {
		in.ClientToken = sdk.String(aws.ClientToken(spec.Cluster, aws.KindVolume, spec.Name, zone, spec.Claim.ID))
	}
	out, err := c.EC2.CreateVolume(ctx, in)
	if err != nil {
		return Volume{}, fmt.Errorf("create it in %s: %w", zone, aboutKMSKey(err))
	}
	v := Of(types.Volume{
		VolumeId: out.VolumeId, AvailabilityZone: out.AvailabilityZone, State: out.State, Size: out.Size, VolumeType: out.VolumeType,
		Iops: out.Iops, Throughput: out.Throughput, KmsKeyId: out.KmsKeyId, Tags: out.Tags,
	})
	if len(v.Tags) == 0 {
		v.Tags, v.Claim, v.Unsettled = tagsOf(c, spec), spec.Claim, []string{v.ID}
	}
	return v, nil
}

// NeededOfKey names a KMS key, empty for the account's default, and says what EC2 needs of it.
func NeededOfKey(key string) string {
	what := "the KMS key " + key
	if key == "" {
		what = "the account's default KMS key for EBS, which `aws ec2 get-ebs-default-kms-key-id` shows"
	}
	return what + ": it must exist in this region and be enabled, and its policy or a grant must allow the caller " +
		"kms:CreateGrant, kms:Decrypt, kms:DescribeKey, kms:GenerateDataKeyWithoutPlaintext"
}

// madeBudget is how long EC2 may take to make a volume: usually a few seconds.
const madeBudget = 2 * time.Minute

// awaitMade waits until a volume has been made. If its KMS key cannot be used, EC2 says so by the
// state "error", and the volume vanishes soon after.
// https://docs.aws.amazon.com/ebs/latest/userguide/ebs-describing-volumes.html
func awaitMade(ctx context.Context, c *aws.Client, v Volume, spec Spec) (Volume, error) {
	ctx, cancel := patience.Within(ctx, madeBudget)
	defer cancel()
	unusable := func(seen string) error {
		return &invalid.Field{Field: "kms_key_id", Problem: "Unusable KMS key", Err: fmt.Errorf("EC2 could not make it (%s), most likely because it cannot use %s", seen, NeededOfKey(spec.KMSKeyID))}
	}
	err := aws.Poll(ctx, "wait until it has been made", func(ctx context.Context) (bool, string, error) {
		switch types.VolumeState(v.State) {
		case types.VolumeStateAvailable, types.VolumeStateInUse:
			return true, "", nil
		case types.VolumeStateError:
			return false, "", unusable("its state is error")
		}
		found, err := list(ctx, c, v.ID, spec)
		if err == nil && len(found) == 0 {
			err = unusable("it vanished after it was " + v.State)
		}
		if err != nil {
			return false, v.State, err
		}
		v = found[0]
		return false, v.State, nil
	})
	return v, err
}

// fits reports properties of a volume that are not as wanted and cannot be changed.
func (v Volume) fits(zone string, spec Spec) error {
	switch {
	case v.AvailabilityZone != zone:
		return &invalid.Field{Field: "subnet_id", Problem: "Another availability zone", Err: fmt.Errorf("it is in %s and cannot move, and the subnet %s is in %s: choose a subnet in %s. "+
			"To begin with an empty volume in %s, run apply with -replace for this resource, which loses the data",
			v.AvailabilityZone, spec.SubnetID, zone, v.AvailabilityZone, zone)}
	case v.SizeGiB > spec.SizeGiB:
		return &invalid.Field{Field: "size", Problem: "A volume cannot shrink", Err: fmt.Errorf("it has %d GiB, and a volume cannot shrink: set size to %d", v.SizeGiB, v.SizeGiB)}
	}
	return nil
}

// put sets size, performance and tags.
func put(ctx context.Context, c *aws.Client, v Volume, spec Spec) (Volume, error) {
	for _, r := range repairsOf(c, spec, v) {
		if err := r.Fix(ctx); err != nil {
			return v, fmt.Errorf("repair %q: %w", finding.Words(r.Findings), err)
		}
	}
	if err := c.RemoveTags(ctx, []string{v.ID}, spec.RemoveTags, tagsOf(c, spec)); err != nil {
		return v, err
	}
	return Find(ctx, c, v.ID)
}

// repairsOf compares a volume with its spec.
func repairsOf(c *aws.Client, spec Spec, v Volume) []aws.Repair {
	var out []aws.Repair
	kinds := Kinds{finding.VolumeSize, finding.VolumeType, finding.VolumeIOPS, finding.VolumeThroughput}
	if differs, change := kinds.Compare(v.ID, v.SizeGiB, v.Performance, spec.SizeGiB, spec.Performance); len(differs) > 0 {
		out = append(out, aws.Repair{Findings: differs, Fix: func(ctx context.Context) error { return Apply(ctx, c, change) }})
	}
	if differs := aws.DiffTags(tagsOf(c, spec), v.Tags); len(differs) > 0 {
		out = append(out, aws.Repair{Findings: differs, Fix: func(ctx context.Context) error {
			_, err := c.EC2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{v.ID}, Tags: aws.EC2Tags(tagsOf(c, spec))})
			return err
		}})
	}
	return out
}

// Observe returns how the volume differs from what is wanted. The findings have no subject. The
// error is ErrNotFound if it does not exist any more, and a ClaimedError if it belongs to another
// owner.
func Observe(ctx context.Context, c *aws.Client, id string, spec Spec) (Volume, []finding.Finding, error) {
	v, err := findTogether(ctx, c, spec.Cluster, id)
	if err == nil {
		_, err = spec.judge(v, true)
	}
	if err != nil {
		return Volume{}, nil, spec.about(id, err)
	}
	return v, aws.FindingsOf(repairsOf(c, spec, v)), nil
}

// Find returns a volume by its id, whoever owns it. The error is ErrNotFound if there is none.
func Find(ctx context.Context, c *aws.Client, id string) (Volume, error) {
	found, err := list(ctx, c, id, Spec{})
	if err != nil {
		return Volume{}, err
	}
	if len(found) == 0 {
		return Volume{}, fmt.Errorf("volume %s %w", id, aws.ErrNotFound)
	}
	return found[0], nil
}

// Named returns the id of a volume of a cluster, by its tags. Two such volumes are an error: tags can be copied.
func Named(ctx context.Context, c *aws.Client, cluster, name string) (string, error) {
	found, err := list(ctx, c, "", Spec{Cluster: cluster, Name: name})
	if err != nil {
		return "", err
	}
	var ids []string
	for _, v := range found {
		ids = append(ids, v.ID)
	}
	return aws.Only("volume "+name+" of cluster "+cluster, ids)
}

// list returns the volume with an id, or those with the specification's cluster and name if that
// is empty. What is being deleted is left out.
func list(ctx context.Context, c *aws.Client, id string, spec Spec) ([]Volume, error) {
	in := &ec2.DescribeVolumesInput{VolumeIds: []string{id}}
	if id == "" {
		in = &ec2.DescribeVolumesInput{Filters: []types.Filter{
			aws.TagFilter(aws.TagCluster, spec.Cluster), aws.TagFilter(aws.TagKind, aws.KindVolume), aws.TagFilter(aws.TagResource, spec.Name),
		}}
	}
	found, err := aws.All(ctx, ec2.NewDescribeVolumesPaginator(c.EC2, in), func(p *ec2.DescribeVolumesOutput) []types.Volume { return p.Volumes }, c.RetryInDoubt())
	if aws.IsCode(err, "InvalidVolume.NotFound", "InvalidParameterValue") && id != "" { // the latter of an id that cannot be one
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("describe the volume %s%s: %w", spec.Name, id, err)
	}
	var all []Volume
	for _, v := range found {
		if exists(v) {
			all = append(all, Of(v))
		}
	}
	slices.SortFunc(all, func(a, b Volume) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}

func tagsOf(c *aws.Client, spec Spec) map[string]string {
	out := c.ClusterTags(spec.Cluster, aws.KindVolume, spec.Name, spec.Tags)
	maps.Copy(out, spec.Claim.Tags())
	return out
}

// Delete deletes the volume with all data on it. It waits for a volume of a machine that is being terminated. A
// volume with a file system that is attached to any other machine is an error. A volume that does not exist is no
// error. The error is a ClaimedError if it belongs to another owner.
func Delete(ctx context.Context, c *aws.Client, id string, spec Spec) error {
	v, err := Find(ctx, c, id)
	if errors.Is(err, aws.ErrNotFound) {
		return nil
	}
	if err == nil {
		spec.Claim.Adopt = false
		_, err = spec.judge(v, true)
	}
	if err == nil {
		err = free(ctx, c, v)
	}
	if err == nil {
		_, err = c.EC2.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: &id}, c.RetryOn(aws.ConsistencyAttempts, "VolumeInUse", "IncorrectState"))
		err = aws.Ignore(err, "InvalidVolume.NotFound")
	}
	if err != nil && !errors.Is(err, aws.ErrNotFound) {
		return spec.about(id, err)
	}
	return nil
}

// detachBudget is how long a volume may take to be detached: seconds, unless it is in use.
const detachBudget = 5 * time.Minute

// free waits until a volume is detached from an instance that ends. From an instance that does not
// end it detaches only a volume that was never used, since programs on the instance may be using
// any other volume.
func free(ctx context.Context, c *aws.Client, v Volume) error {
	if v.Attachment == "" {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience.Of(ctx, detachBudget), fmt.Errorf("not within %s; if it is mounted there, stop what uses it and unmount it", patience.Of(ctx, detachBudget)))
	defer cancel()
	asked := false
	return aws.Poll(ctx, "wait until it is detached from "+v.InstanceID, func(ctx context.Context) (bool, string, error) {
		now, err := Find(ctx, c, v.ID)
		if err != nil || now.Attachment == "" {
			return err == nil, "", err
		}
		ending, err := c.InstanceEnds(ctx, now.InstanceID)
		if err != nil || ending || asked || now.Attachment == string(types.VolumeAttachmentStateDetaching) {
			return false, now.Attachment, err
		}
		if now.FileSystem != "" {
			return false, "", fmt.Errorf("%s has it and is not being terminated: stop what uses it there, unmount and detach it, or destroy the machine", now.InstanceID)
		}
		_, err = c.EC2.DetachVolume(ctx, &ec2.DetachVolumeInput{VolumeId: &v.ID, InstanceId: &now.InstanceID})
		asked = err == nil
		return false, now.Attachment, aws.Ignore(err, "IncorrectState", "InvalidAttachment.NotFound")
	})
}
