package ec2_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

func TestVolumes(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	i := l.Run(t, s.RunInput())
	zone := i.Placement.AvailabilityZone
	create := func(change func(*awsec2.CreateVolumeInput)) (*awsec2.CreateVolumeOutput, error) {
		in := &awsec2.CreateVolumeInput{AvailabilityZone: zone, Size: aws.Int32(10), VolumeType: types.VolumeTypeGp3}
		change(in)
		return l.CreateVolume(ctx, in)
	}
	for _, tc := range []struct {
		name, code string
		change     func(*awsec2.CreateVolumeInput)
	}{
		{"no zone", "MissingParameter", func(in *awsec2.CreateVolumeInput) { in.AvailabilityZone = nil }},
		{"unknown zone", "InvalidParameterValue", func(in *awsec2.CreateVolumeInput) { in.AvailabilityZone = aws.String("mars-1a") }},
		{"no size", "MissingParameter", func(in *awsec2.CreateVolumeInput) { in.Size = nil }},
		{"unknown type", "InvalidParameterValue", func(in *awsec2.CreateVolumeInput) { in.VolumeType = "tape" }},
		{"too small", "InvalidParameterValue", func(in *awsec2.CreateVolumeInput) { in.VolumeType = types.VolumeTypeSt1 }},
		{"too large", "InvalidParameterValue", func(in *awsec2.CreateVolumeInput) { in.Size = aws.Int32(70000) }},
		{"io1 without IOPS", "MissingParameter", func(in *awsec2.CreateVolumeInput) { in.VolumeType = types.VolumeTypeIo1 }},
		{"IOPS for gp2", "InvalidParameterCombination", func(in *awsec2.CreateVolumeInput) { in.VolumeType, in.Iops = types.VolumeTypeGp2, aws.Int32(300) }},
		{"throughput for io1", "InvalidParameterCombination", func(in *awsec2.CreateVolumeInput) {
			in.VolumeType, in.Iops, in.Throughput = types.VolumeTypeIo1, aws.Int32(300), aws.Int32(200)
		}},
		{"too few IOPS", "InvalidParameterValue", func(in *awsec2.CreateVolumeInput) { in.Iops = aws.Int32(100) }},
		{"too many IOPS for the size", "InvalidParameterValue", func(in *awsec2.CreateVolumeInput) { in.Iops = aws.Int32(6000) }},
		{"too much throughput for the IOPS", "InvalidParameterValue", func(in *awsec2.CreateVolumeInput) { in.Throughput = aws.Int32(1000) }},
		{"key without encryption", "InvalidParameterDependency", func(in *awsec2.CreateVolumeInput) { in.KmsKeyId = aws.String("alias/mine") }},
		{"unknown snapshot", "InvalidSnapshot.NotFound", func(in *awsec2.CreateVolumeInput) { in.SnapshotId = aws.String("snap-00000000000000000") }},
		{"tags of another kind", "InvalidParameterValue", func(in *awsec2.CreateVolumeInput) {
			in.TagSpecifications = cloudtest.Tags(types.ResourceTypeVpc, "Name", "data")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := create(tc.change)
			cloudtest.Refused(t, err, tc.code)
		})
	}
	data := func(in *awsec2.CreateVolumeInput) {
		in.Iops, in.Throughput, in.ClientToken, in.TagSpecifications = aws.Int32(4000), aws.Int32(500), aws.String("once"), cloudtest.Tags(types.ResourceTypeVolume, "Name", "data")
	}
	v := cloudtest.Must[*awsec2.CreateVolumeOutput](t)(create(data))
	if again := cloudtest.Must[*awsec2.CreateVolumeOutput](t)(create(data)); *again.VolumeId != *v.VolumeId || v.State != types.VolumeStateCreating || again.State != types.VolumeStateAvailable || *v.Iops != 4000 || *v.Throughput != 500 {
		t.Errorf("made %+v, then %+v", v, again)
	}
	elsewhere := cloudtest.Must[*awsec2.CreateVolumeOutput](t)(create(func(in *awsec2.CreateVolumeInput) { in.AvailabilityZone = aws.String("us-east-1c") }))

	attach := func(id *string, device string) error {
		_, err := l.AttachVolume(ctx, &awsec2.AttachVolumeInput{VolumeId: id, InstanceId: i.InstanceId, Device: &device})
		return err
	}
	detach := func(id *string) error {
		_, err := l.DetachVolume(ctx, &awsec2.DetachVolumeInput{VolumeId: id})
		return err
	}
	volume := func() types.Volume {
		return cloudtest.Must[*awsec2.DescribeVolumesOutput](t)(l.DescribeVolumes(ctx, &awsec2.DescribeVolumesInput{VolumeIds: []string{*v.VolumeId}})).Volumes[0]
	}
	remove := func() error {
		_, err := l.DeleteVolume(ctx, &awsec2.DeleteVolumeInput{VolumeId: v.VolumeId})
		return err
	}
	root := i.BlockDeviceMappings[0].Ebs.VolumeId
	cloudtest.Refused(t, attach(elsewhere.VolumeId, "/dev/sdf"), "InvalidVolume.ZoneMismatch")
	cloudtest.Refused(t, attach(v.VolumeId, "/dev/xvda"), "InvalidParameterValue")
	cloudtest.Refused(t, attach(root, "/dev/sdf"), "VolumeInUse")
	cloudtest.Refused(t, detach(v.VolumeId), "IncorrectState")
	cloudtest.Refused(t, detach(root), "OperationNotPermitted")
	cloudtest.Refused(t, attach(v.VolumeId, "/dev/sdf"), "")
	if now := volume(); now.State != types.VolumeStateInUse || now.Attachments[0].State != types.VolumeAttachmentStateAttaching {
		t.Errorf("just attached: %+v", now)
	}
	l.Clock.Advance(time.Second)
	cloudtest.Eventually(t, "attached", func() bool { return volume().Attachments[0].State == types.VolumeAttachmentStateAttached })
	if now := volume(); *now.Attachments[0].InstanceId != *i.InstanceId {
		t.Errorf("attached: %+v", now)
	}
	if devices := l.Instance(t, *i.InstanceId).BlockDeviceMappings; len(devices) != 2 || *devices[1].DeviceName != "/dev/sdf" || *devices[0].Ebs.VolumeId != *root {
		t.Errorf("devices: %+v", devices)
	}
	cloudtest.Refused(t, remove(), "VolumeInUse")
	cloudtest.Refused(t, detach(v.VolumeId), "")
	if now := volume(); now.State != types.VolumeStateInUse || now.Attachments[0].State != types.VolumeAttachmentStateDetaching {
		t.Errorf("being detached: %+v", now)
	}
	cloudtest.Refused(t, remove(), "VolumeInUse")
	l.Clock.Advance(time.Second)
	cloudtest.Eventually(t, "detached", func() bool {
		now := volume()
		return now.State == types.VolumeStateAvailable && len(now.Attachments) == 0
	})

	// A volume outlives the instance unless it is to be deleted with it.
	cloudtest.Refused(t, attach(v.VolumeId, "/dev/sdf"), "")
	cloudtest.Must[*awsec2.TerminateInstancesOutput](t)(l.TerminateInstances(ctx, &awsec2.TerminateInstancesInput{InstanceIds: []string{*i.InstanceId}}))
	l.Await(t, *i.InstanceId, types.InstanceStateNameTerminated)
	if now := volume(); now.State != types.VolumeStateAvailable {
		t.Errorf("after the termination: %+v", now)
	}
	cloudtest.Refused(t, remove(), "")
	_, err := l.DescribeVolumes(ctx, &awsec2.DescribeVolumesInput{VolumeIds: []string{*root}})
	cloudtest.Refused(t, err, "InvalidVolume.NotFound")
}

// ebs is one volume of a lab.
type ebs struct {
	*cloudtest.Lab
	id string
}

func newVolume(t *testing.T, l *cloudtest.Lab, gib int32) ebs {
	t.Helper()
	v := cloudtest.Must[*awsec2.CreateVolumeOutput](t)(l.CreateVolume(t.Context(), &awsec2.CreateVolumeInput{
		AvailabilityZone: aws.String("us-east-1a"), Size: &gib, VolumeType: types.VolumeTypeGp3,
	}))
	return ebs{l, *v.VolumeId}
}

func (v ebs) attach(t *testing.T, instance, device string) {
	t.Helper()
	cloudtest.Must[*awsec2.AttachVolumeOutput](t)(v.AttachVolume(t.Context(), &awsec2.AttachVolumeInput{VolumeId: &v.id, InstanceId: &instance, Device: &device}))
}

func (v ebs) detach(t *testing.T, force bool) {
	t.Helper()
	cloudtest.Must[*awsec2.DetachVolumeOutput](t)(v.DetachVolume(t.Context(), &awsec2.DetachVolumeInput{VolumeId: &v.id, Force: &force}))
}

// state is the state of the attachment, or of the volume if there is none.
func (v ebs) state(t *testing.T) string {
	t.Helper()
	out, err := v.DescribeVolumes(t.Context(), &awsec2.DescribeVolumesInput{VolumeIds: []string{v.id}})
	if err != nil {
		return cloudtest.Code(err)
	}
	if a := out.Volumes[0].Attachments; len(a) > 0 {
		return string(a[0].State)
	}
	return string(out.Volumes[0].State)
}

// await lets time pass until the volume is in a state.
func (v ebs) await(t *testing.T, want string) {
	t.Helper()
	cloudtest.Eventually(t, v.id+" "+want, func() bool {
		v.Clock.Advance(100 * time.Millisecond)
		return v.state(t) == want
	})
}

// has lists the volumes of an instance's machine and their sizes, in the order of their devices.
func has(l *cloudtest.Lab, instance string) string {
	var out []string
	for _, v := range l.Machines.Spec(instance).Volumes {
		out = append(out, fmt.Sprintf("%s:%d", v.ID, v.SizeGiB))
	}
	return strings.Join(out, " ")
}

func TestVolumesOfMachines(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	i := *l.Run(t, s.RunInput()).InstanceId
	first, second := newVolume(t, l, 10), newVolume(t, l, 20)

	// The order of the attachments counts, and not that of the devices or the ids.
	second.attach(t, i, "/dev/sdg")
	if got := has(l, i); got != "" || second.state(t) != "attaching" {
		t.Errorf("at once the machine has %q, and the volume is %s", got, second.state(t))
	}
	second.await(t, "attached")
	first.attach(t, i, "/dev/sdf")
	first.await(t, "attached")
	if got, want := has(l, i), second.id+":20 "+first.id+":10"; got != want {
		t.Errorf("the machine has %q, want %q", got, want)
	}

	// A bigger size reaches the machine when the modification does.
	cloudtest.Must[*awsec2.ModifyVolumeOutput](t)(l.ModifyVolume(ctx, &awsec2.ModifyVolumeInput{VolumeId: &first.id, Size: aws.Int32(30)}))
	if got, want := has(l, i), second.id+":20 "+first.id+":10"; got != want {
		t.Errorf("during the modification the machine has %q, want %q", got, want)
	}
	l.Clock.Advance(500 * time.Millisecond)
	cloudtest.Eventually(t, "the bigger size", func() bool { return has(l, i) == second.id+":20 "+first.id+":30" })

	// A stop and a start, and a crash of the daemon, keep volumes and their order.
	cloudtest.Must[*awsec2.StopInstancesOutput](t)(l.StopInstances(ctx, &awsec2.StopInstancesInput{InstanceIds: []string{i}}))
	l.Await(t, i, types.InstanceStateNameStopped)
	third := newVolume(t, l, 5)
	third.attach(t, i, "/dev/sdb")
	third.await(t, "attached")
	l.Account.Close()
	l.Open(t)
	cloudtest.Must[*awsec2.StartInstancesOutput](t)(l.StartInstances(ctx, &awsec2.StartInstancesInput{InstanceIds: []string{i}}))
	l.Await(t, i, types.InstanceStateNameRunning)
	if got, want := has(l, i), second.id+":20 "+first.id+":30 "+third.id+":5"; got != want {
		t.Errorf("after a start the machine has %q, want %q", got, want)
	}

	// What is mounted stays, until it is unmounted, by force, or until the machine stops.
	mounted := []ebs{first, second, third}
	for _, v := range mounted {
		l.Machines.SetMounted(v.id, true)
		v.detach(t, false)
	}
	for range 20 {
		l.Clock.Advance(time.Second)
		time.Sleep(2 * time.Millisecond)
	}
	for _, v := range mounted {
		if got := v.state(t); got != "detaching" {
			t.Errorf("a mounted volume is %s", got)
		}
		_, err := l.DeleteVolume(ctx, &awsec2.DeleteVolumeInput{VolumeId: &v.id})
		cloudtest.Refused(t, err, "VolumeInUse")
	}
	l.Machines.SetMounted(first.id, false)
	first.await(t, "available")
	second.detach(t, true)
	second.await(t, "available")
	if got, want := has(l, i), third.id+":5"; got != want {
		t.Errorf("the machine has %q, want %q", got, want)
	}
	cloudtest.Must[*awsec2.StopInstancesOutput](t)(l.StopInstances(ctx, &awsec2.StopInstancesInput{InstanceIds: []string{i}, Force: aws.Bool(true)}))
	l.Await(t, i, types.InstanceStateNameStopped)
	if got := third.state(t); got != "available" {
		t.Errorf("after the stop the volume is %s", got)
	}

	// The content ends with the volume, after a crash too.
	for _, v := range mounted {
		cloudtest.Must[*awsec2.DeleteVolumeOutput](t)(l.DeleteVolume(ctx, &awsec2.DeleteVolumeInput{VolumeId: &v.id}))
	}
	if left := cloudtest.Must[[]string](t)(l.Machines.Volumes()); len(left) > 0 {
		t.Errorf("the contents of %v are left", left)
	}
	kept := newVolume(t, l, 1)
	cloudtest.Must[*awsec2.StartInstancesOutput](t)(l.StartInstances(ctx, &awsec2.StartInstancesInput{InstanceIds: []string{i}}))
	l.Await(t, i, types.InstanceStateNameRunning)
	kept.attach(t, i, "/dev/sdf")
	l.Account.Close() // while the volume is being attached
	l.Machines.Leave("vol-0123456789abcdef0")
	l.Open(t)
	kept.await(t, "attached")
	if left := cloudtest.Must[[]string](t)(l.Machines.Volumes()); !slices.Equal(left, []string{kept.id}) || has(l, i) != kept.id+":1" {
		t.Errorf("after a crash there are the contents of %v, and the machine has %q", left, has(l, i))
	}
}

func TestLaunchWithVolumes(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	mapping := func(device string, gib int32) types.BlockDeviceMapping {
		return types.BlockDeviceMapping{DeviceName: &device, Ebs: &types.EbsBlockDevice{VolumeSize: &gib}}
	}
	many := make([]types.BlockDeviceMapping, 27) // and the root volume
	for n := range many {
		many[n] = mapping(fmt.Sprintf("/dev/xvdb%c", 'a'+n%26), 1)
	}
	many[26] = mapping("/dev/sdb", 1)
	for _, tc := range []struct {
		name, code string
		mappings   []types.BlockDeviceMapping
	}{
		{"no size", "MissingParameter", []types.BlockDeviceMapping{{DeviceName: aws.String("/dev/sdf"), Ebs: &types.EbsBlockDevice{Encrypted: aws.Bool(true)}}}},
		{"too big", "InvalidParameterValue", []types.BlockDeviceMapping{mapping("/dev/sdf", 70000)}},
		{"the same device twice", "InvalidBlockDeviceMapping", []types.BlockDeviceMapping{mapping("/dev/sdf", 1), mapping("/dev/sdf", 2)}},
		{"no device name", "InvalidParameterValue", []types.BlockDeviceMapping{mapping("/dev/nvme1n1", 1)}},
		{"no root device", "InvalidBlockDeviceMapping", []types.BlockDeviceMapping{{DeviceName: aws.String("/dev/xvda"), NoDevice: aws.String("")}}},
		{"unknown snapshot", "InvalidSnapshot.NotFound", []types.BlockDeviceMapping{{DeviceName: aws.String("/dev/sdf"), Ebs: &types.EbsBlockDevice{SnapshotId: aws.String("snap-00000000000000000")}}}},
		{"key without encryption", "InvalidParameterDependency", []types.BlockDeviceMapping{{DeviceName: aws.String("/dev/sdf"), Ebs: &types.EbsBlockDevice{VolumeSize: aws.Int32(1), KmsKeyId: aws.String("alias/mine")}}}},
		{"too many", "AttachmentLimitExceeded", many},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := s.RunInput()
			in.BlockDeviceMappings = tc.mappings
			_, err := l.RunInstances(ctx, in)
			cloudtest.Refused(t, err, tc.code)
		})
	}

	in := s.RunInput()
	keep := mapping("/dev/sdb", 4)
	keep.Ebs.DeleteOnTermination = aws.Bool(false)
	in.BlockDeviceMappings = []types.BlockDeviceMapping{mapping("/dev/sdz", 3), keep, {DeviceName: aws.String("/dev/sdc"), NoDevice: aws.String("")}}
	in.TagSpecifications = cloudtest.Tags(types.ResourceTypeVolume, "cluster", "demo")
	i := l.Run(t, in)
	devices := i.BlockDeviceMappings
	if len(devices) != 3 || *devices[1].DeviceName != "/dev/sdz" || *devices[2].DeviceName != "/dev/sdb" || !*devices[1].Ebs.DeleteOnTermination || *devices[2].Ebs.DeleteOnTermination {
		t.Fatalf("devices: %+v", devices)
	}
	ends, stays := ebs{l, *devices[1].Ebs.VolumeId}, ebs{l, *devices[2].Ebs.VolumeId}
	if got, want := has(l, *i.InstanceId), ends.id+":3 "+stays.id+":4"; got != want {
		t.Errorf("the machine has %q, want %q", got, want)
	}
	tagged := cloudtest.Must[*awsec2.DescribeVolumesOutput](t)(l.DescribeVolumes(ctx, &awsec2.DescribeVolumesInput{Filters: []types.Filter{cloudtest.Filter("tag:cluster", "demo")}})).Volumes
	if len(tagged) != 3 {
		t.Errorf("%d volumes have the tag, want 3", len(tagged))
	}
	for device, want := range map[string]string{"/dev/nvme1n1": "InvalidParameterValue", "sdf": "InvalidParameterValue", "/dev/sdb": "InvalidParameterValue"} {
		v := newVolume(t, l, 1)
		_, err := l.AttachVolume(ctx, &awsec2.AttachVolumeInput{VolumeId: &v.id, InstanceId: i.InstanceId, Device: &device})
		cloudtest.Refused(t, err, want)
	}
	xen := s.RunInput()
	xen.InstanceType, xen.BlockDeviceMappings = types.InstanceTypeM4Large, []types.BlockDeviceMapping{mapping("/dev/sdd", 3)}
	old := l.Run(t, xen)
	if v := l.Machines.Spec(*old.InstanceId).Volumes; len(v) != 1 || v[0].Device != "xvdd" {
		t.Errorf("Xen names the device after the request: %+v", v)
	}
	cloudtest.Must[*awsec2.TerminateInstancesOutput](t)(l.TerminateInstances(ctx, &awsec2.TerminateInstancesInput{InstanceIds: []string{*i.InstanceId, *old.InstanceId}}))
	l.Await(t, *i.InstanceId, types.InstanceStateNameTerminated)
	l.Await(t, *old.InstanceId, types.InstanceStateNameTerminated)
	if got := ends.state(t) + " " + stays.state(t); got != "InvalidVolume.NotFound available" {
		t.Errorf("after the termination: %s", got)
	}
	cloudtest.Eventually(t, "the contents of "+stays.id+" alone are left", func() bool {
		return slices.Equal(cloudtest.Must[[]string](t)(l.Machines.Volumes()), []string{stays.id})
	})
}
