package aws

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

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// VolumeSpec is the wanted state of an EBS volume that outlives the machine to which it is attached.
// It is always encrypted.
type VolumeSpec struct {
	Cluster, Name string
	// SubnetID names the availability zone: a volume can be attached only to machines of its zone.
	SubnetID string
	SizeGiB  int32
	VolumePerformance
	// KMSKeyID is the id, ARN or alias of a KMS key, used only at the creation; empty means the
	// account's key for EBS.
	KMSKeyID string

	Tags       map[string]string
	RemoveTags []string
	// Claim says whose the volume is. What it does not own is neither changed nor deleted.
	Claim Claim
}

// VolumePerformance is what a volume can do.
type VolumePerformance struct {
	Type string // "gp3", "gp2", "io1", "io2"
	// IOPS and ThroughputMiB (MiB/s) are zero where EC2 decides: see CheckVolume.
	IOPS, ThroughputMiB int32
}

func performanceOf(v types.Volume) VolumePerformance {
	return VolumePerformance{string(v.VolumeType), sdk.ToInt32(v.Iops), sdk.ToInt32(v.Throughput)}
}

// Volume is an EBS volume as found in EC2.
type Volume struct {
	ID               string
	Cluster, Name    string // from its tags
	AvailabilityZone string
	State            string // as EC2 calls it: "available", "in-use", "error", ...
	SizeGiB          int32
	VolumePerformance
	KMSKeyID            string // ARN
	InstanceID          string // to which it is attached, or about to be; empty if it is not
	Attachment          string // as EC2 calls it: "attaching", "attached", "detaching", "busy"; empty if there is none
	Device              string // the name that its attachment has in EC2, "/dev/sdf"
	DeletedWithInstance bool   // whether the end of the instance deletes it
	FileSystem          string // UUID of the file system that was made on it, as its tags say
	Tags                map[string]string
	Claim               Claim    // whose it is
	Unsettled           []string // its id, if it carries a claim that is not settled
}

func volumeOf(v types.Volume) Volume {
	tags := TagMap(v.Tags)
	out := Volume{
		ID: sdk.ToString(v.VolumeId), Cluster: tags[TagCluster], Name: tags[TagResource],
		AvailabilityZone: sdk.ToString(v.AvailabilityZone), State: string(v.State),
		SizeGiB: sdk.ToInt32(v.Size), VolumePerformance: performanceOf(v),
		KMSKeyID: sdk.ToString(v.KmsKeyId), FileSystem: tags[TagFileSystem], Tags: tags, Claim: Held(tags),
	}
	for _, a := range v.Attachments {
		if a.State != types.VolumeAttachmentStateDetached {
			out.InstanceID, out.Attachment, out.Device = sdk.ToString(a.InstanceId), string(a.State), sdk.ToString(a.Device)
			out.DeletedWithInstance = sdk.ToBool(a.DeleteOnTermination)
		}
	}
	if HolderOf(tags).Unsettled() {
		out.Unsettled = []string{out.ID}
	}
	return out
}

// EnsureVolume makes the volume, or continues with the one that an interrupted run left, and brings
// it to what is wanted in place. id is that of the volume, empty on creation. With an error it
// returns the volume that it has made or was given, and nothing of one that it has found: Terraform
// deletes what a failed creation returns, and there may be data on that. Nor does it return anything
// if the error is a ClaimedError.
func (c *Client) EnsureVolume(ctx context.Context, id string, spec VolumeSpec) (Volume, error) {
	zone, err := c.ZoneOfSubnet(ctx, spec.SubnetID)
	if err != nil {
		return Volume{}, spec.about(id, err)
	}
	v, err := c.claimVolume(ctx, id, zone, spec)
	made := id == "" && errors.Is(err, ErrNotFound)
	if made {
		v, err = c.createVolume(ctx, zone, spec)
	} else if id == "" {
		err = Raced(err)
	}
	if err != nil {
		return Volume{}, spec.about(id, err)
	}
	if v, err = c.awaitMade(ctx, v, spec); err == nil {
		v, err = c.putVolume(ctx, v, spec)
	}
	switch {
	case err != nil && (made || id != ""):
		return v, spec.about(v.ID, err)
	case err != nil: // the next run finds it again, by its tags
		return Volume{}, spec.about(v.ID, err)
	}
	if id == "" {
		err = c.confirmVolume(ctx, v, spec, made)
	}
	switch {
	case IsClaimed(err):
		return Volume{}, Raced(err)
	case err != nil && made:
		return v, spec.about(v.ID, err)
	case err != nil:
		return Volume{}, spec.about(v.ID, err)
	}
	return v, nil
}

// about says which volume an error is about. That of another's volume says so itself.
func (s VolumeSpec) about(id string, err error) error {
	if IsClaimed(err) {
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

// createVolume makes the volume. The client token is that of the claim: a call that is repeated
// because its answer was lost makes no second volume, and another owner never gets this one.
func (c *Client) createVolume(ctx context.Context, zone string, spec VolumeSpec) (Volume, error) {
	in := &ec2.CreateVolumeInput{
		AvailabilityZone: &zone, Size: &spec.SizeGiB, VolumeType: types.VolumeType(spec.Type), Encrypted: sdk.Bool(true),
		Iops: nonZero(spec.chosenIOPS()), Throughput: nonZero(spec.ThroughputMiB),
		TagSpecifications: []types.TagSpecification{TagSpecification(types.ResourceTypeVolume, c.volumeTags(spec))},
	}
	if spec.KMSKeyID != "" {
		in.KmsKeyId = &spec.KMSKeyID
	}
	if spec.Claim.ID != "" {
		in.ClientToken = sdk.String(clientToken(spec.Cluster, kindVolume, spec.Name, zone, spec.Claim.ID))
	}
	out, err := c.EC2.CreateVolume(ctx, in)
	if err != nil {
		return Volume{}, fmt.Errorf("create it in %s: %w", zone, aboutKMSKey(err))
	}
	v := volumeOf(types.Volume{
		VolumeId: out.VolumeId, AvailabilityZone: out.AvailabilityZone, State: out.State, Size: out.Size, VolumeType: out.VolumeType,
		Iops: out.Iops, Throughput: out.Throughput, KmsKeyId: out.KmsKeyId, Tags: out.Tags,
	})
	if len(v.Tags) == 0 {
		v.Tags, v.Claim, v.Unsettled = c.volumeTags(spec), spec.Claim, []string{v.ID}
	}
	return v, nil
}

// volumeMadeBudget is how long EC2 may take to make a volume: usually a few seconds.
const volumeMadeBudget = 2 * time.Minute

// awaitMade waits until a volume has been made. If its KMS key cannot be used, EC2 says so by the
// state "error", and the volume vanishes soon after.
// https://docs.aws.amazon.com/ebs/latest/userguide/ebs-describing-volumes.html
func (c *Client) awaitMade(ctx context.Context, v Volume, spec VolumeSpec) (Volume, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, volumeMadeBudget, fmt.Errorf("not within %s", volumeMadeBudget))
	defer cancel()
	key := "the account's KMS key for EBS"
	if spec.KMSKeyID != "" {
		key = "the KMS key " + spec.KMSKeyID
	}
	unusable := func(seen string) error {
		return &invalid.Field{Field: "kms_key_id", Problem: "Unusable KMS key", Err: fmt.Errorf("EC2 could not make it (%s), most likely because it cannot use %s: "+
			"the key must exist in this region and be enabled, and the caller must be allowed kms:CreateGrant, kms:Decrypt, kms:DescribeKey, kms:GenerateDataKeyWithoutPlaintext on it", seen, key)}
	}
	err := Poll(ctx, "wait until it has been made", func(ctx context.Context) (bool, string, error) {
		switch types.VolumeState(v.State) {
		case types.VolumeStateAvailable, types.VolumeStateInUse:
			return true, "", nil
		case types.VolumeStateError:
			return false, "", unusable("its state is error")
		}
		found, err := c.volumes(ctx, v.ID, spec)
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

// fits reports what of a volume cannot be changed and is not as wanted.
func (v Volume) fits(zone string, spec VolumeSpec) error {
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

// putVolume sets size, performance and tags.
func (c *Client) putVolume(ctx context.Context, v Volume, spec VolumeSpec) (Volume, error) {
	for _, r := range c.volumeRepairs(spec, v) {
		if err := r.Fix(ctx); err != nil {
			return v, fmt.Errorf("repair %q: %w", finding.Words(r.Findings), err)
		}
	}
	if err := c.RemoveTags(ctx, []string{v.ID}, spec.RemoveTags, c.volumeTags(spec)); err != nil {
		return v, err
	}
	return c.FindVolume(ctx, v.ID)
}

// volumeRepairs compares a volume with its spec.
func (c *Client) volumeRepairs(spec VolumeSpec, v Volume) []Repair {
	var out []Repair
	kinds := volumeKinds{finding.VolumeSize, finding.VolumeType, finding.VolumeIOPS, finding.VolumeThroughput}
	if differs, change := kinds.compare(v.ID, v.SizeGiB, v.VolumePerformance, spec.SizeGiB, spec.VolumePerformance); len(differs) > 0 {
		out = append(out, Repair{Findings: differs, Fix: func(ctx context.Context) error { return c.changeVolume(ctx, change) }})
	}
	if differs := DiffTags(c.volumeTags(spec), v.Tags); len(differs) > 0 {
		out = append(out, Repair{Findings: differs, Fix: func(ctx context.Context) error {
			_, err := c.EC2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{v.ID}, Tags: EC2Tags(c.volumeTags(spec))})
			return err
		}})
	}
	return out
}

// ObserveVolume returns how the volume differs from what is wanted. The findings have no subject. The
// error is ErrNotFound if it does not exist any more, and a ClaimedError if it is another's.
func (c *Client) ObserveVolume(ctx context.Context, id string, spec VolumeSpec) (Volume, []finding.Finding, error) {
	v, err := c.findVolumeTogether(ctx, spec.Cluster, id)
	if err == nil {
		_, err = spec.judge(v, true)
	}
	if err != nil {
		return Volume{}, nil, spec.about(id, err)
	}
	return v, FindingsOf(c.volumeRepairs(spec, v)), nil
}

// FindVolume returns a volume by its id, whoever's it is. The error is ErrNotFound if there is none.
func (c *Client) FindVolume(ctx context.Context, id string) (Volume, error) {
	found, err := c.volumes(ctx, id, VolumeSpec{})
	if err != nil {
		return Volume{}, err
	}
	if len(found) == 0 {
		return Volume{}, fmt.Errorf("volume %s %w", id, ErrNotFound)
	}
	return found[0], nil
}

// volumes returns the volume with an id, or those with the specification's cluster and name if that
// is empty. What is being deleted is left out.
func (c *Client) volumes(ctx context.Context, id string, spec VolumeSpec) ([]Volume, error) {
	in := &ec2.DescribeVolumesInput{VolumeIds: []string{id}}
	if id == "" {
		in = &ec2.DescribeVolumesInput{Filters: []types.Filter{
			TagFilter(TagCluster, spec.Cluster), TagFilter(TagKind, kindVolume), TagFilter(TagResource, spec.Name),
		}}
	}
	out, err := c.EC2.DescribeVolumes(ctx, in, c.RetryInDoubt())
	if IsCode(err, "InvalidVolume.NotFound", "InvalidParameterValue") && id != "" { // the latter of an id that cannot be one
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("describe the volume %s%s: %w", spec.Name, id, err)
	}
	var all []Volume
	for _, v := range out.Volumes {
		if v.State != types.VolumeStateDeleting && v.State != types.VolumeStateDeleted {
			all = append(all, volumeOf(v))
		}
	}
	slices.SortFunc(all, func(a, b Volume) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}

func (c *Client) volumeTags(spec VolumeSpec) map[string]string {
	out := c.ClusterTags(spec.Cluster, kindVolume, spec.Name, spec.Tags)
	maps.Copy(out, spec.Claim.Tags())
	return out
}

// DeleteVolume deletes the volume with all data on it. One of a machine that is being terminated is
// waited for. One with a file system that is attached to any other machine is an error. A volume that does not exist is no error. The
// error is a ClaimedError if it is another's.
func (c *Client) DeleteVolume(ctx context.Context, id string, spec VolumeSpec) error {
	v, err := c.FindVolume(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err == nil {
		spec.Claim.Adopt = false
		_, err = spec.judge(v, true)
	}
	if err == nil {
		err = c.freeVolume(ctx, v)
	}
	if err == nil {
		_, err = c.EC2.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: &id}, c.RetryOn(SettleAttempts, "VolumeInUse", "IncorrectState"))
		err = Ignore(err, "InvalidVolume.NotFound")
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return spec.about(id, err)
	}
	return nil
}

// detachBudget is how long a volume may take to be detached: seconds, unless it is in use.
const detachBudget = 5 * time.Minute

// freeVolume waits until a volume is detached from an instance that ends. From one that does not end it
// detaches only a volume that was never used: whoever uses the others would lose the data.
func (c *Client) freeVolume(ctx context.Context, v Volume) error {
	if v.Attachment == "" {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, detachBudget, fmt.Errorf("not within %s; if it is mounted there, stop what uses it and unmount it", detachBudget))
	defer cancel()
	asked := false
	return Poll(ctx, "wait until it is detached from "+v.InstanceID, func(ctx context.Context) (bool, string, error) {
		now, err := c.FindVolume(ctx, v.ID)
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
		return false, now.Attachment, Ignore(err, "IncorrectState", "InvalidAttachment.NotFound")
	})
}
