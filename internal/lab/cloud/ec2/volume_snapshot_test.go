package ec2_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

func (v ebs) described(t *testing.T) types.Volume {
	t.Helper()
	return cloudtest.Must[*awsec2.DescribeVolumesOutput](t)(v.DescribeVolumes(t.Context(), &awsec2.DescribeVolumesInput{VolumeIds: []string{v.id}})).Volumes[0]
}

func (v ebs) snapshot(t *testing.T) (*awsec2.CreateSnapshotOutput, error) {
	t.Helper()
	return v.CreateSnapshot(t.Context(), &awsec2.CreateSnapshotInput{VolumeId: &v.id, TagSpecifications: cloudtest.Tags(types.ResourceTypeSnapshot, "CSIVolumeSnapshotName", "one")})
}

// completed waits until a snapshot is completed, some seconds after its content was taken.
func completed(t *testing.T, l *cloudtest.Lab, id string) {
	t.Helper()
	cloudtest.Eventually(t, id+" is completed", func() bool {
		l.Clock.Advance(time.Second)
		return snapshot(t, l, id).State == types.SnapshotStateCompleted
	})
}

// TestVolumeSnapshots follows a snapshot of a volume from its making to its end, and the volumes that are made of it.
func TestVolumeSnapshots(t *testing.T) {
	l := cloudtest.New(t)
	s, ctx := l.NewSite(t), t.Context()
	i := l.Run(t, s.RunInput())
	v := newVolume(t, l, 10)
	made := cloudtest.Must[*awsec2.CreateSnapshotOutput](t)(v.snapshot(t))
	id := *made.SnapshotId
	if made.State != types.SnapshotStatePending || *made.VolumeSize != 10 || *made.VolumeId != v.id || *made.OwnerId != "123456789012" || len(made.Tags) != 1 {
		t.Errorf("made: %+v", made)
	}
	if _, taken := l.Machines.Taken(id); !taken {
		t.Error("EC2 has answered, and what is written from now on may be in the snapshot")
	}
	from := func(change func(*awsec2.CreateVolumeInput)) (*awsec2.CreateVolumeOutput, error) {
		in := &awsec2.CreateVolumeInput{AvailabilityZone: aws.String("us-east-1a"), SnapshotId: &id, VolumeType: types.VolumeTypeGp3}
		change(in)
		return l.CreateVolume(ctx, in)
	}
	same := func(*awsec2.CreateVolumeInput) {}
	_, err := from(same)
	cloudtest.Refused(t, err, "IncorrectState")
	_, err = v.snapshot(t)
	cloudtest.Refused(t, err, "SnapshotCreationPerVolumeRateExceeded")
	completed(t, l, id)
	for name, value := range map[string]string{"snapshot-id": id, "volume-id": v.id, "volume-size": "10", "status": "completed", "owner-id": "123456789012", "encrypted": "false", "tag:CSIVolumeSnapshotName": "one", "tag-key": "CSIVolumeSnapshotName"} {
		found := cloudtest.Must[*awsec2.DescribeSnapshotsOutput](t)(l.DescribeSnapshots(ctx, &awsec2.DescribeSnapshotsInput{Filters: []types.Filter{cloudtest.Filter(name, value)}, OwnerIds: []string{"self"}})).Snapshots
		if len(found) != 1 || *found[0].SnapshotId != id || *found[0].Progress != "100%" {
			t.Errorf("filter %s=%s finds %d", name, value, len(found))
		}
	}
	for want, change := range map[string]func(*awsec2.CreateVolumeInput){
		"InvalidParameterValue":      func(in *awsec2.CreateVolumeInput) { in.Size = aws.Int32(9) },
		"InvalidSnapshot.NotFound":   func(in *awsec2.CreateVolumeInput) { in.SnapshotId = aws.String("snap-00000000000000000") },
		"MissingParameter":           func(in *awsec2.CreateVolumeInput) { in.AvailabilityZone = nil },
		"InvalidParameterDependency": func(in *awsec2.CreateVolumeInput) { in.KmsKeyId = aws.String("alias/mine") },
		"DryRunOperation":            func(in *awsec2.CreateVolumeInput) { in.DryRun = aws.Bool(true) },
	} {
		_, err := from(change)
		cloudtest.Refused(t, err, want)
	}

	// In another zone, with its size, and with a larger one.
	second := cloudtest.Must[*awsec2.CreateVolumeOutput](t)(from(func(in *awsec2.CreateVolumeInput) { in.AvailabilityZone = aws.String("us-east-1c") }))
	if *second.Size != 10 || *second.SnapshotId != id || second.State != types.VolumeStateCreating {
		t.Errorf("made: %+v", second)
	}
	l.Machines.SetHold(make(chan struct{}))
	took := make(chan *awsec2.CreateVolumeOutput)
	go func() {
		out, _ := from(func(in *awsec2.CreateVolumeInput) { in.Size = aws.Int32(12) })
		took <- out
	}()
	var third ebs
	cloudtest.Eventually(t, "a volume is being created", func() bool {
		for _, v := range cloudtest.Must[*awsec2.DescribeVolumesOutput](t)(l.DescribeVolumes(ctx, &awsec2.DescribeVolumesInput{Filters: []types.Filter{cloudtest.Filter("size", "12")}})).Volumes {
			third = ebs{l, *v.VolumeId}
		}
		return third.id != ""
	})
	if now := third.described(t); now.State != types.VolumeStateCreating {
		t.Errorf("without its content: %s", now.State)
	}
	attach := func(v ebs) error {
		_, err := l.AttachVolume(ctx, &awsec2.AttachVolumeInput{VolumeId: &v.id, InstanceId: i.InstanceId, Device: aws.String("/dev/xvdaa")})
		return err
	}
	cloudtest.Refused(t, attach(third), "IncorrectState")
	_, err = third.snapshot(t)
	cloudtest.Refused(t, err, "IncorrectState")
	_, err = l.DeleteVolume(ctx, &awsec2.DeleteVolumeInput{VolumeId: &third.id})
	cloudtest.Refused(t, err, "IncorrectState")

	// The snapshot may go before the volume has its content, and an account that restarts continues.
	cloudtest.Must[*awsec2.DeleteSnapshotOutput](t)(l.DeleteSnapshot(ctx, &awsec2.DeleteSnapshotInput{SnapshotId: &id}))
	if _, taken := l.Machines.Taken(id); !taken {
		t.Error("the content of a snapshot went before the volume had it")
	}
	l.Account.Close()
	<-took
	l.Machines.SetHold(nil)
	l.Network.Forget()
	l.Open(t)
	cloudtest.Eventually(t, "the volume is available", func() bool { return third.described(t).State == types.VolumeStateAvailable })
	cloudtest.Eventually(t, "the content is gone", func() bool { _, taken := l.Machines.Taken(id); return !taken })
	cloudtest.Refused(t, attach(third), "")
}

// TestSnapshotOfRoot: what a root volume has are files of a machine, of which no other volume is made.
func TestSnapshotOfRoot(t *testing.T) {
	l := cloudtest.New(t)
	s, ctx := l.NewSite(t), t.Context()
	i := l.Run(t, s.RunInput())
	root := ebs{l, *i.BlockDeviceMappings[0].Ebs.VolumeId}
	id := cloudtest.Must[*awsec2.CreateSnapshotOutput](t)(root.snapshot(t)).SnapshotId
	cloudtest.Eventually(t, "it is completed", func() bool {
		l.Clock.Advance(time.Second)
		return snapshot(t, l, *id).State == types.SnapshotStateCompleted
	})
	_, err := l.CreateVolume(ctx, &awsec2.CreateVolumeInput{AvailabilityZone: aws.String("us-east-1a"), SnapshotId: id})
	cloudtest.Refused(t, err, "UnsupportedOperation")
	_, err = l.CopyVolumes(ctx, &awsec2.CopyVolumesInput{SourceVolumeId: &root.id})
	cloudtest.Refused(t, err, "UnsupportedOperation")

	data := newVolume(t, l, 10)
	of := *cloudtest.Must[*awsec2.CreateSnapshotOutput](t)(data.snapshot(t)).SnapshotId
	completed(t, l, of)
	_, err = l.RegisterImage(ctx, &awsec2.RegisterImageInput{
		Name: aws.String("data"), Architecture: types.ArchitectureValuesX8664, VirtualizationType: aws.String("hvm"), RootDeviceName: aws.String("/dev/xvda"),
		BlockDeviceMappings: []types.BlockDeviceMapping{{DeviceName: aws.String("/dev/xvda"), Ebs: &types.EbsBlockDevice{SnapshotId: &of}}},
	})
	cloudtest.Refused(t, err, "UnsupportedOperation")
	_, err = l.EnableFastSnapshotRestores(ctx, &awsec2.EnableFastSnapshotRestoresInput{SourceSnapshotIds: []string{of}, AvailabilityZones: []string{"us-east-1a"}})
	cloudtest.Refused(t, err, "UnsupportedOperation")
	_, err = l.EnableFastSnapshotRestores(ctx, &awsec2.EnableFastSnapshotRestoresInput{SourceSnapshotIds: []string{of}, AvailabilityZones: []string{"mars-1a"}})
	cloudtest.Refused(t, err, "InvalidParameterValue")
	if got := cloudtest.Must[*awsec2.DescribeFastSnapshotRestoresOutput](t)(l.DescribeFastSnapshotRestores(ctx, &awsec2.DescribeFastSnapshotRestoresInput{Filters: []types.Filter{cloudtest.Filter("snapshot-id", of)}})).FastSnapshotRestores; len(got) > 0 {
		t.Errorf("fast restores: %+v", got)
	}

	// A launch has a volume of the snapshot, before its machine boots.
	in := s.RunInput()
	mapping := func(gib *int32, snapshot *string) []types.BlockDeviceMapping {
		return []types.BlockDeviceMapping{{DeviceName: aws.String("/dev/sdf"), Ebs: &types.EbsBlockDevice{SnapshotId: snapshot, VolumeSize: gib}}}
	}
	for want, m := range map[string][]types.BlockDeviceMapping{
		"UnsupportedOperation": mapping(nil, id), "InvalidSnapshot.NotFound": mapping(nil, aws.String("snap-00000000000000000")), "InvalidBlockDeviceMapping": mapping(aws.Int32(9), &of),
	} {
		in.BlockDeviceMappings = m
		_, err := l.RunInstances(ctx, in)
		cloudtest.Refused(t, err, want)
	}
	in.BlockDeviceMappings = mapping(nil, &of)
	with := l.Run(t, in)
	if volumes := l.Machines.Spec(*with.InstanceId).Volumes; len(volumes) != 1 || volumes[0].SizeGiB != 10 {
		t.Errorf("the machine has %+v", volumes)
	}
	if now := (ebs{l, *with.BlockDeviceMappings[1].Ebs.VolumeId}).described(t); *now.SnapshotId != of || now.State != types.VolumeStateInUse {
		t.Errorf("its volume: %+v", now)
	}
}

// TestCopyVolumes: a copy has the zone, the size and the key of its source.
func TestCopyVolumes(t *testing.T) {
	l := cloudtest.New(t)
	ctx := t.Context()
	source := cloudtest.Must[*awsec2.CreateVolumeOutput](t)(l.CreateVolume(ctx, &awsec2.CreateVolumeInput{AvailabilityZone: aws.String("us-east-1c"), Size: aws.Int32(4), Encrypted: aws.Bool(true), KmsKeyId: aws.String(keyID)}))
	in := func(change func(*awsec2.CopyVolumesInput)) *awsec2.CopyVolumesInput {
		out := &awsec2.CopyVolumesInput{SourceVolumeId: source.VolumeId, VolumeType: types.VolumeTypeGp3, ClientToken: aws.String("once"), TagSpecifications: cloudtest.Tags(types.ResourceTypeVolume, "CSIVolumeName", "copy")}
		change(out)
		return out
	}
	for want, change := range map[string]func(*awsec2.CopyVolumesInput){
		"InvalidVolume.NotFound": func(in *awsec2.CopyVolumesInput) { in.SourceVolumeId = aws.String("vol-0123456789abcdef0") },
		"InvalidParameterValue":  func(in *awsec2.CopyVolumesInput) { in.Size = aws.Int32(3) },
		"UnsupportedOperation":   func(in *awsec2.CopyVolumesInput) { in.MultiAttachEnabled = aws.Bool(true) },
		"DryRunOperation":        func(in *awsec2.CopyVolumesInput) { in.DryRun = aws.Bool(true) },
	} {
		_, err := l.CopyVolumes(ctx, in(change))
		cloudtest.Refused(t, err, want)
	}
	same := in(func(*awsec2.CopyVolumesInput) {})
	out := cloudtest.Must[*awsec2.CopyVolumesOutput](t)(l.CopyVolumes(ctx, same)).Volumes[0]
	if again := cloudtest.Must[*awsec2.CopyVolumesOutput](t)(l.CopyVolumes(ctx, same)).Volumes[0]; *again.VolumeId != *out.VolumeId {
		t.Errorf("the same request has made another volume")
	}
	v := ebs{l, *out.VolumeId}
	cloudtest.Eventually(t, "the copy is available", func() bool { return v.described(t).State == types.VolumeStateAvailable })
	now := v.described(t)
	if *now.SourceVolumeId != *source.VolumeId || *now.AvailabilityZone != "us-east-1c" || *now.Size != 4 || !*now.Encrypted || *now.KmsKeyId != *source.KmsKeyId || aws.ToString(now.SnapshotId) != "" || len(now.Tags) != 1 {
		t.Errorf("the copy: %+v", now)
	}
	status := cloudtest.Must[*awsec2.DescribeVolumeStatusOutput](t)(l.DescribeVolumeStatus(ctx, &awsec2.DescribeVolumeStatusInput{VolumeIds: []string{v.id}})).VolumeStatuses[0]
	if i := status.InitializationStatusDetails; i == nil || i.InitializationType != types.InitializationTypeVolumeCopy {
		t.Errorf("its status: %+v", i)
	}
	if left := cloudtest.Must[*awsec2.DescribeSnapshotsOutput](t)(l.DescribeSnapshots(ctx, &awsec2.DescribeSnapshotsInput{OwnerIds: []string{"self"}})).Snapshots; len(left) > 0 {
		t.Errorf("the copy has left snapshots: %+v", left)
	}
}
