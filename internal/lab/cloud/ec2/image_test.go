package ec2_test

import (
	"context"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

// createImage asks for an image of an instance and returns its id.
func createImage(t *testing.T, l *cloudtest.Lab, instance, name string) string {
	t.Helper()
	out := cloudtest.Must[*awsec2.CreateImageOutput](t)(l.CreateImage(t.Context(), &awsec2.CreateImageInput{InstanceId: &instance, Name: &name}))
	return *out.ImageId
}

func image(t *testing.T, l *cloudtest.Lab, id string) types.Image {
	t.Helper()
	return cloudtest.Must[*awsec2.DescribeImagesOutput](t)(l.DescribeImages(t.Context(), &awsec2.DescribeImagesInput{ImageIds: []string{id}})).Images[0]
}

// becomes waits until an image has a state, some seconds after its snapshot was taken.
func becomes(t *testing.T, l *cloudtest.Lab, id string, want types.ImageState) types.Image {
	t.Helper()
	cloudtest.Eventually(t, "the snapshot is taken", func() bool {
		_, taken := l.Machines.Taken(snapshotOf(t, l, id))
		return taken
	})
	cloudtest.Eventually(t, id+" is "+string(want), func() bool {
		l.Clock.Advance(2 * time.Second)
		return image(t, l, id).State == want
	})
	return image(t, l, id)
}

func snapshotOf(t *testing.T, l *cloudtest.Lab, id string) string {
	t.Helper()
	return *image(t, l, id).BlockDeviceMappings[0].Ebs.SnapshotId
}

func snapshot(t *testing.T, l *cloudtest.Lab, id string) types.Snapshot {
	t.Helper()
	return cloudtest.Must[*awsec2.DescribeSnapshotsOutput](t)(l.DescribeSnapshots(t.Context(), &awsec2.DescribeSnapshotsInput{SnapshotIds: []string{id}})).Snapshots[0]
}

func deregister(t *testing.T, l *cloudtest.Lab, id string, snapshots bool) (*awsec2.DeregisterImageOutput, error) {
	t.Helper()
	return l.DeregisterImage(t.Context(), &awsec2.DeregisterImageInput{ImageId: &id, DeleteAssociatedSnapshots: &snapshots})
}

func launch(l *cloudtest.Lab, t *testing.T, s cloudtest.Site, image string) (*awsec2.RunInstancesOutput, error) {
	t.Helper()
	in := s.RunInput()
	in.ImageId = &image
	return l.RunInstances(t.Context(), in)
}

// TestImageLife follows an image from an instance to its end: what it is while it is pending, what launches get from
// it, and who holds what.
func TestImageLife(t *testing.T) {
	l := cloudtest.New(t)
	s, ctx := l.NewSite(t), t.Context()
	in := s.RunInput()
	in.BlockDeviceMappings = []types.BlockDeviceMapping{{DeviceName: aws.String("/dev/xvda"), Ebs: &types.EbsBlockDevice{VolumeSize: aws.Int32(12), Encrypted: aws.Bool(true), KmsKeyId: aws.String(keyID)}}}
	builder := l.Run(t, in)
	made := cloudtest.Must[*awsec2.CreateImageOutput](t)(l.CreateImage(ctx, &awsec2.CreateImageInput{
		InstanceId: builder.InstanceId, Name: aws.String("workers (1)"), Description: aws.String("for workers"),
		TagSpecifications: append(cloudtest.Tags(types.ResourceTypeImage, "Name", "image"), cloudtest.Tags(types.ResourceTypeSnapshot, "Name", "disk")...),
	}))
	id := *made.ImageId
	i := image(t, l, id)
	if i.State != types.ImageStatePending || *i.OwnerId != "123456789012" || *i.Public || *i.Tags[0].Value != "image" || *i.SourceInstanceId != *builder.InstanceId || *i.SourceImageId != cloudtest.Image {
		t.Errorf("pending: %+v", i)
	}
	device := i.BlockDeviceMappings[0]
	if *device.DeviceName != "/dev/xvda" || *device.Ebs.VolumeSize != 12 || !*device.Ebs.Encrypted || device.Ebs.KmsKeyId != nil {
		t.Errorf("its device: %+v", device.Ebs)
	}
	snap := *device.Ebs.SnapshotId
	if got := snapshot(t, l, snap); got.State != types.SnapshotStatePending || *got.Tags[0].Value != "disk" || *got.VolumeSize != 12 || *got.KmsKeyId != "arn:aws:kms:us-east-1:123456789012:key/"+keyID ||
		*got.Description != "Created by CreateImage("+*builder.InstanceId+") for "+id {
		t.Errorf("its snapshot: %+v", got)
	}
	_, err := launch(l, t, s, id)
	cloudtest.Refused(t, err, "InvalidAMIID.Unavailable")
	_, err = l.DeleteSnapshot(ctx, &awsec2.DeleteSnapshotInput{SnapshotId: &snap})
	cloudtest.Refused(t, err, "InvalidSnapshot.InUse")
	_, err = l.CreateImage(ctx, &awsec2.CreateImageInput{InstanceId: builder.InstanceId, Name: aws.String("workers (1)")})
	cloudtest.Refused(t, err, "InvalidAMIName.Duplicate")

	becomes(t, l, id, types.ImageStateAvailable)
	if running, _ := l.Machines.Taken(snap); running {
		t.Error("the machine ran while its snapshot was taken, although the request does not forbid the reboot")
	}
	l.Await(t, *builder.InstanceId, types.InstanceStateNameRunning)
	cloudtest.Eventually(t, "the machine runs again", func() bool { return l.Machines.Running(*builder.InstanceId) })
	for name, value := range map[string]string{
		"name": "workers (1)", "state": "available", "owner-id": "123456789012", "tag:Name": "image", "is-public": "false",
		"block-device-mapping.snapshot-id": snap, "block-device-mapping.encrypted": "true", "source-instance-id": *builder.InstanceId,
	} {
		found := cloudtest.Must[*awsec2.DescribeImagesOutput](t)(l.DescribeImages(ctx, &awsec2.DescribeImagesInput{Owners: []string{"self"}, Filters: []types.Filter{cloudtest.Filter(name, value)}})).Images
		if len(found) != 1 || *found[0].ImageId != id {
			t.Errorf("filter %s=%s finds %d", name, value, len(found))
		}
	}
	for want, owners := range map[int][]string{1: {"self"}, 3: nil} { // those of Debian's two images are public
		if got := cloudtest.Must[*awsec2.DescribeSnapshotsOutput](t)(l.DescribeSnapshots(ctx, &awsec2.DescribeSnapshotsInput{OwnerIds: owners})).Snapshots; len(got) != want {
			t.Errorf("%d snapshots of %v", len(got), owners)
		}
	}

	// A launch has the snapshot, its size and its key, whatever it asks for.
	from := cloudtest.Must[*awsec2.RunInstancesOutput](t)(launch(l, t, s, id)).Instances[0]
	l.Await(t, *from.InstanceId, types.InstanceStateNameRunning)
	if spec := l.Machines.Spec(*from.InstanceId); spec.Snapshot != snap || spec.Root.SizeGiB != 12 {
		t.Errorf("its machine: %+v", spec)
	}
	if spec := l.Machines.Spec(*builder.InstanceId); spec.Snapshot != "" {
		t.Errorf("the machine of Debian's image has the snapshot %s", spec.Snapshot)
	}
	v := cloudtest.Must[*awsec2.DescribeVolumesOutput](t)(l.DescribeVolumes(ctx, &awsec2.DescribeVolumesInput{Filters: []types.Filter{cloudtest.Filter("attachment.instance-id", *from.InstanceId)}})).Volumes[0]
	if *v.SnapshotId != snap || !*v.Encrypted || *v.KmsKeyId != "arn:aws:kms:us-east-1:123456789012:key/"+keyID {
		t.Errorf("its volume: %+v", v)
	}

	// An instance holds nothing. The snapshot stays.
	cloudtest.Must[*awsec2.DeregisterImageOutput](t)(deregister(t, l, id, false))
	for range 2 {
		_, err = deregister(t, l, id, false)
		cloudtest.Refused(t, err, "InvalidAMIID.Unavailable")
		_, err = launch(l, t, s, id)
		cloudtest.Refused(t, err, "InvalidAMIID.Unavailable")
	}
	if found := cloudtest.Must[*awsec2.DescribeImagesOutput](t)(l.DescribeImages(ctx, &awsec2.DescribeImagesInput{Owners: []string{"self"}})).Images; len(found) != 0 {
		t.Errorf("deregistered and listed: %+v", found)
	}
	if l.Clock.Advance(time.Hour + time.Second); cloudtest.Code(second(launch(l, t, s, id))) == "" {
		t.Error("launched from a deregistered image")
	}
	cloudtest.Must[*awsec2.CreateTagsOutput](t)(l.CreateTags(ctx, &awsec2.CreateTagsInput{Resources: []string{snap}, Tags: []types.Tag{{Key: aws.String("k"), Value: aws.String("v")}}}))
	_, err = launch(l, t, s, id)
	cloudtest.Refused(t, err, "InvalidAMIID.NotFound")
	if _, taken := l.Machines.Taken(snap); !taken {
		t.Error("the deregistration took the snapshot's content away")
	}
	cloudtest.Must[*awsec2.DeleteSnapshotOutput](t)(l.DeleteSnapshot(ctx, &awsec2.DeleteSnapshotInput{SnapshotId: &snap}))
	_, err = l.DeleteSnapshot(ctx, &awsec2.DeleteSnapshotInput{SnapshotId: &snap})
	cloudtest.Refused(t, err, "InvalidSnapshot.NotFound")
	cloudtest.Eventually(t, "the content is gone", func() bool { _, taken := l.Machines.Taken(snap); return !taken })
}

func second[T any](_ T, err error) error { return err }

// TestImageRefusals: what EC2 refuses, with its codes.
func TestImageRefusals(t *testing.T) {
	l := cloudtest.New(t, func(l *cloudtest.Lab) { l.Quotas.Images, l.Quotas.Snapshots = 1, 2 })
	s, ctx := l.NewSite(t), t.Context()
	builder := *l.Run(t, s.RunInput()).InstanceId
	for want, change := range map[string]func(*awsec2.CreateImageInput){
		"InvalidAMIName.Malformed":   func(in *awsec2.CreateImageInput) { in.Name = aws.String("a:b") },
		"MissingParameter":           func(in *awsec2.CreateImageInput) { in.Name = aws.String("") },
		"InvalidInstanceID.NotFound": func(in *awsec2.CreateImageInput) { in.InstanceId = aws.String("i-00000000000000000") },
		"InvalidBlockDeviceMapping": func(in *awsec2.CreateImageInput) {
			in.BlockDeviceMappings = []types.BlockDeviceMapping{{DeviceName: aws.String("/dev/xvda"), Ebs: &types.EbsBlockDevice{Encrypted: aws.Bool(true)}}}
		},
		"InvalidParameterValue": func(in *awsec2.CreateImageInput) {
			in.TagSpecifications = cloudtest.Tags(types.ResourceTypeInstance, "a", "b")
		},
	} {
		in := &awsec2.CreateImageInput{InstanceId: &builder, Name: aws.String("image")}
		change(in)
		_, err := l.CreateImage(ctx, in)
		cloudtest.Refused(t, err, want)
	}
	for id, want := range map[string]string{cloudtest.Image: "AuthFailure", "ami-00000000000000000": "InvalidAMIID.NotFound", "ami-1": "InvalidAMIID.Malformed"} {
		_, err := deregister(t, l, id, true)
		cloudtest.Refused(t, err, want)
	}
	for id, want := range map[string]string{"snap-0123456789abcdef0": "AuthFailure", "snap-00000000000000000": "InvalidSnapshot.NotFound", "snap-1": "InvalidSnapshotID.Malformed"} {
		_, err := l.DeleteSnapshot(ctx, &awsec2.DeleteSnapshotInput{SnapshotId: &id})
		cloudtest.Refused(t, err, want)
	}

	first := createImage(t, l, builder, "first")
	volume := snapshot(t, l, snapshotOf(t, l, first)).VolumeId
	take := func() error {
		_, err := l.CreateSnapshot(ctx, &awsec2.CreateSnapshotInput{VolumeId: volume})
		return err
	}
	cloudtest.Refused(t, take(), "SnapshotCreationPerVolumeRateExceeded") // since the image's is pending
	becomes(t, l, first, types.ImageStateAvailable)
	_, err := l.CreateImage(ctx, &awsec2.CreateImageInput{InstanceId: &builder, Name: aws.String("second")})
	cloudtest.Refused(t, err, "ResourceLimitExceeded")
	cloudtest.Refused(t, take(), "")
	cloudtest.Refused(t, take(), "SnapshotLimitExceeded")

	// A stopping or terminated instance becomes no image.
	cloudtest.Must[*awsec2.DeregisterImageOutput](t)(deregister(t, l, first, true))
	cloudtest.Must[*awsec2.TerminateInstancesOutput](t)(l.TerminateInstances(ctx, &awsec2.TerminateInstancesInput{InstanceIds: []string{builder}}))
	_, err = l.CreateImage(ctx, &awsec2.CreateImageInput{InstanceId: &builder, Name: aws.String("late")})
	cloudtest.Refused(t, err, "InvalidParameterValue")
}

// TestImageWithoutReboot: the machine goes on, and one that is stopped stays so. An instance that ends before the
// snapshot is taken fails the image, and its snapshot is held nevertheless.
func TestImageWithoutReboot(t *testing.T) {
	l := cloudtest.New(t)
	s, ctx := l.NewSite(t), t.Context()
	builder := *l.Run(t, s.RunInput()).InstanceId
	out := cloudtest.Must[*awsec2.CreateImageOutput](t)(l.CreateImage(ctx, &awsec2.CreateImageInput{InstanceId: &builder, Name: aws.String("running"), NoReboot: aws.Bool(true)}))
	becomes(t, l, *out.ImageId, types.ImageStateAvailable)
	if running, _ := l.Machines.Taken(snapshotOf(t, l, *out.ImageId)); !running {
		t.Error("the machine was down while its snapshot was taken")
	}
	cloudtest.Must[*awsec2.StopInstancesOutput](t)(l.StopInstances(ctx, &awsec2.StopInstancesInput{InstanceIds: []string{builder}}))
	l.Await(t, builder, types.InstanceStateNameStopped)
	becomes(t, l, createImage(t, l, builder, "stopped"), types.ImageStateAvailable)
	if l.Machines.Running(builder) {
		t.Error("an image has started a stopped instance")
	}

	l.Machines.SetHold(make(chan struct{}))
	ends := createImage(t, l, builder, "ends")
	l.Account.Close()
	l.Machines.SetHold(nil)
	l.Network.Forget()
	l.Machines.SetFail(context.DeadlineExceeded)
	l.Open(t)
	cloudtest.Eventually(t, "the image fails", func() bool { return image(t, l, ends).State == types.ImageStateFailed })
	if got := image(t, l, ends); got.StateReason == nil || *got.StateReason.Code != "Client.InternalError" {
		t.Errorf("failed: %+v", got.StateReason)
	}
	_, err := launch(l, t, s, ends)
	cloudtest.Refused(t, err, "InvalidAMIID.Unavailable")
	held := snapshotOf(t, l, ends)
	_, err = l.DeleteSnapshot(ctx, &awsec2.DeleteSnapshotInput{SnapshotId: &held})
	cloudtest.Refused(t, err, "InvalidSnapshot.InUse")
	if got := cloudtest.Must[*awsec2.DeregisterImageOutput](t)(deregister(t, l, ends, true)); len(got.DeleteSnapshotResults) != 1 || got.DeleteSnapshotResults[0].ReturnCode != types.SnapshotReturnCodesSuccess {
		t.Errorf("deregistered with its snapshot: %+v", got.DeleteSnapshotResults)
	}
}

// TestRegisterImage: two images have one snapshot, which a deregistration leaves to the other.
func TestRegisterImage(t *testing.T) {
	l := cloudtest.New(t)
	s, ctx := l.NewSite(t), t.Context()
	first := createImage(t, l, *l.Run(t, s.RunInput()).InstanceId, "first")
	snap := snapshotOf(t, l, first)
	in := func() *awsec2.RegisterImageInput {
		return &awsec2.RegisterImageInput{
			Name: aws.String("second"), Architecture: types.ArchitectureValuesX8664, VirtualizationType: aws.String("hvm"), RootDeviceName: aws.String("/dev/xvda"),
			BlockDeviceMappings: []types.BlockDeviceMapping{{DeviceName: aws.String("/dev/xvda"), Ebs: &types.EbsBlockDevice{SnapshotId: &snap, VolumeSize: aws.Int32(10)}}},
			TagSpecifications:   cloudtest.Tags(types.ResourceTypeImage, "a", "b"),
		}
	}
	_, err := l.RegisterImage(ctx, in())
	cloudtest.Refused(t, err, "IncorrectState")
	becomes(t, l, first, types.ImageStateAvailable)
	for want, change := range map[string]func(*awsec2.RegisterImageInput){
		"UnsupportedOperation":     func(in *awsec2.RegisterImageInput) { in.VirtualizationType = nil },
		"InvalidAMIName.Duplicate": func(in *awsec2.RegisterImageInput) { in.Name = aws.String("first") },
		"InvalidSnapshot.NotFound": func(in *awsec2.RegisterImageInput) {
			in.BlockDeviceMappings[0].Ebs.SnapshotId = aws.String("snap-00000000000000000")
		},
		"InvalidBlockDeviceMapping": func(in *awsec2.RegisterImageInput) { in.BlockDeviceMappings[0].Ebs.VolumeSize = aws.Int32(7) },
	} {
		i := in()
		change(i)
		_, err := l.RegisterImage(ctx, i)
		cloudtest.Refused(t, err, want)
	}
	second := *cloudtest.Must[*awsec2.RegisterImageOutput](t)(l.RegisterImage(ctx, in())).ImageId
	if i := image(t, l, second); i.State != types.ImageStateAvailable || *i.BlockDeviceMappings[0].Ebs.VolumeSize != 10 || *i.Tags[0].Key != "a" || i.ImdsSupport != "" {
		t.Errorf("registered: %+v", i)
	}
	if got := cloudtest.Must[*awsec2.DeregisterImageOutput](t)(deregister(t, l, first, true)).DeleteSnapshotResults; len(got) != 1 || got[0].ReturnCode != types.SnapshotReturnCodesWarnSkipped {
		t.Errorf("the snapshot of another image: %+v", got)
	}
	made := cloudtest.Must[*awsec2.RunInstancesOutput](t)(launch(l, t, s, second)).Instances[0]
	l.Await(t, *made.InstanceId, types.InstanceStateNameRunning)
	if got := made.MetadataOptions.HttpTokens; got != types.HttpTokensStateOptional {
		t.Errorf("tokens of an image without imds-support: %s", got)
	}
}

// TestImageOfLostKey: a key that cannot be used fails the snapshot, and the image with it.
func TestImageOfLostKey(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	cloudtest.Must[*awsec2.EnableEbsEncryptionByDefaultOutput](t)(l.EnableEbsEncryptionByDefault(t.Context(), &awsec2.EnableEbsEncryptionByDefaultInput{}))
	builder := *l.Run(t, s.RunInput()).InstanceId
	l.Fault(t, cloudtest.Fields{"kind": "slow-snapshot", "seconds": 60, "count": 1})
	id := createImage(t, l, builder, "lost")
	if i := image(t, l, id); !*i.BlockDeviceMappings[0].Ebs.Encrypted {
		t.Error("EBS encrypts by default, and the snapshot is not encrypted")
	}
	cloudtest.Eventually(t, "the snapshot waits", func() bool { return l.Clock.Waiting() > 0 })
	l.Clock.Advance(61 * time.Second)
	if got := image(t, l, id).State; got != types.ImageStatePending {
		t.Errorf("a minute later it is %s", got)
	}
	l.Fault(t, cloudtest.Fields{"kind": "key", "name": "alias/aws/ebs"})
	becomes(t, l, id, types.ImageStateFailed)
	if got := snapshot(t, l, snapshotOf(t, l, id)); got.State != types.SnapshotStateError || aws.ToString(got.StateMessage) == "" {
		t.Errorf("its snapshot: %+v", got)
	}
}

// TestImageOutlivesDaemon: after a crash of the daemon in the middle of the reboot, the image is made, and the instance
// runs again.
func TestImageOutlivesDaemon(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	builder := *l.Run(t, s.RunInput()).InstanceId
	hold := make(chan struct{})
	l.Machines.SetHold(hold)
	id := createImage(t, l, builder, "resumed")
	hold <- struct{}{} // it is down
	cloudtest.Eventually(t, "the machine is down", func() bool { return !l.Machines.Running(builder) })
	l.Account.Close()
	l.Machines.SetHold(nil)
	l.Network.Forget()
	l.Open(t)
	becomes(t, l, id, types.ImageStateAvailable)
	cloudtest.Eventually(t, "the machine runs again", func() bool { return l.Machines.Running(builder) })
	if got := l.Instance(t, builder).State.Name; got != types.InstanceStateNameRunning {
		t.Errorf("the instance is %s", got)
	}
	l.Account.Close()
	l.Network.Forget()
	l.Open(t)
	made := cloudtest.Must[*awsec2.RunInstancesOutput](t)(launch(l, t, s, id)).Instances[0]
	l.Await(t, *made.InstanceId, types.InstanceStateNameRunning)
	if o := l.Account.Overview(); len(o.Images) != 1 || len(o.Snapshots) != 1 || o.Snapshots[0].User != id {
		t.Errorf("the overview has %+v and %+v", o.Images, o.Snapshots)
	}
}

// TestImagePermissions: policies see the tags of images and snapshots, those that a request gives and those that they
// have.
func TestImagePermissions(t *testing.T) {
	l := cloudtest.New(t)
	s, ctx := l.NewSite(t), t.Context()
	builder := *l.Run(t, s.RunInput()).InstanceId
	other := createImage(t, l, builder, "other")
	becomes(t, l, other, types.ImageStateAvailable)
	user := l.User(t, `{"Effect":"Allow","Action":["ec2:CreateImage","ec2:DescribeImages"],"Resource":"*"}`,
		`{"Effect":"Allow","Action":"ec2:CreateTags","Resource":["arn:aws:ec2:*::image/*","arn:aws:ec2:*::snapshot/*"],"Condition":{"StringEquals":{"ec2:CreateAction":"CreateImage"}}}`,
		`{"Effect":"Allow","Action":["ec2:DeregisterImage","ec2:DeleteSnapshot"],"Resource":"*","Condition":{"StringEquals":{"aws:ResourceTag/team":"a"}}}`)
	made := cloudtest.Must[*awsec2.CreateImageOutput](t)(user.CreateImage(ctx, &awsec2.CreateImageInput{
		InstanceId: &builder, Name: aws.String("own"), TagSpecifications: append(cloudtest.Tags(types.ResourceTypeImage, "team", "a"), cloudtest.Tags(types.ResourceTypeSnapshot, "team", "a")...),
	}))
	own := snapshotOf(t, l, *made.ImageId)
	_, err := deregister(t, user, other, false)
	cloudtest.Refused(t, err, "UnauthorizedOperation")
	_, err = deregister(t, user, *made.ImageId, false)
	cloudtest.Refused(t, err, "")
	for id, want := range map[string]string{own: "", snapshotOf(t, l, other): "UnauthorizedOperation"} {
		_, err := user.DeleteSnapshot(ctx, &awsec2.DeleteSnapshotInput{SnapshotId: &id})
		cloudtest.Refused(t, err, want)
	}
	_, err = user.RegisterImage(ctx, &awsec2.RegisterImageInput{Name: aws.String("registered")})
	cloudtest.Refused(t, err, "UnauthorizedOperation")
	_, err = user.CreateTags(ctx, &awsec2.CreateTagsInput{Resources: []string{other}, Tags: []types.Tag{{Key: aws.String("team"), Value: aws.String("a")}}})
	cloudtest.Refused(t, err, "UnauthorizedOperation")
}
