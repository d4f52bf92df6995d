package cloud_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// ebs is one volume of a lab.
type ebs struct {
	*lab
	id string
}

func (l *lab) newVolume(t *testing.T, gib int32) ebs {
	t.Helper()
	v := must[*awsec2.CreateVolumeOutput](t)(l.CreateVolume(t.Context(), &awsec2.CreateVolumeInput{
		AvailabilityZone: aws.String("us-east-1a"), Size: &gib, VolumeType: types.VolumeTypeGp3,
	}))
	return ebs{l, *v.VolumeId}
}

func (v ebs) attach(t *testing.T, instance, device string) {
	t.Helper()
	must[*awsec2.AttachVolumeOutput](t)(v.AttachVolume(t.Context(), &awsec2.AttachVolumeInput{VolumeId: &v.id, InstanceId: &instance, Device: &device}))
}

func (v ebs) detach(t *testing.T, force bool) {
	t.Helper()
	must[*awsec2.DetachVolumeOutput](t)(v.DetachVolume(t.Context(), &awsec2.DetachVolumeInput{VolumeId: &v.id, Force: &force}))
}

// state is the state of the attachment, or of the volume if there is none.
func (v ebs) state(t *testing.T) string {
	t.Helper()
	out, err := v.DescribeVolumes(t.Context(), &awsec2.DescribeVolumesInput{VolumeIds: []string{v.id}})
	if err != nil {
		return code(err)
	}
	if a := out.Volumes[0].Attachments; len(a) > 0 {
		return string(a[0].State)
	}
	return string(out.Volumes[0].State)
}

// await lets time pass until the volume is in a state.
func (v ebs) await(t *testing.T, want string) {
	t.Helper()
	eventually(t, v.id+" "+want, func() bool {
		v.clock.advance(100 * time.Millisecond)
		return v.state(t) == want
	})
}

// has lists the volumes of an instance's machine and their sizes, in the order of their devices.
func (l *lab) has(instance string) string {
	var out []string
	for _, v := range l.machines.spec(instance).Volumes {
		out = append(out, fmt.Sprintf("%s:%d", v.ID, v.SizeGiB))
	}
	return strings.Join(out, " ")
}

func TestVolumesOfMachines(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	ctx := t.Context()
	i := *l.run(t, s.runInput()).InstanceId
	first, second := l.newVolume(t, 10), l.newVolume(t, 20)

	// The order of the attachments counts, and not that of the devices or the ids.
	second.attach(t, i, "/dev/sdg")
	if got := l.has(i); got != "" || second.state(t) != "attaching" {
		t.Errorf("at once the machine has %q, and the volume is %s", got, second.state(t))
	}
	second.await(t, "attached")
	first.attach(t, i, "/dev/sdf")
	first.await(t, "attached")
	if got, want := l.has(i), second.id+":20 "+first.id+":10"; got != want {
		t.Errorf("the machine has %q, want %q", got, want)
	}

	// A bigger size reaches the machine when the modification does.
	must[*awsec2.ModifyVolumeOutput](t)(l.ModifyVolume(ctx, &awsec2.ModifyVolumeInput{VolumeId: &first.id, Size: aws.Int32(30)}))
	if got, want := l.has(i), second.id+":20 "+first.id+":10"; got != want {
		t.Errorf("during the modification the machine has %q, want %q", got, want)
	}
	l.clock.advance(500 * time.Millisecond)
	eventually(t, "the bigger size", func() bool { return l.has(i) == second.id+":20 "+first.id+":30" })

	// A stop and a start, and a crash of the daemon, keep volumes and their order.
	must[*awsec2.StopInstancesOutput](t)(l.StopInstances(ctx, &awsec2.StopInstancesInput{InstanceIds: []string{i}}))
	l.await(t, i, types.InstanceStateNameStopped)
	third := l.newVolume(t, 5)
	third.attach(t, i, "/dev/sdb")
	third.await(t, "attached")
	l.cloud.Close()
	l.open(t)
	must[*awsec2.StartInstancesOutput](t)(l.StartInstances(ctx, &awsec2.StartInstancesInput{InstanceIds: []string{i}}))
	l.await(t, i, types.InstanceStateNameRunning)
	if got, want := l.has(i), second.id+":20 "+first.id+":30 "+third.id+":5"; got != want {
		t.Errorf("after a start the machine has %q, want %q", got, want)
	}

	// What is mounted stays, until it is unmounted, by force, or until the machine stops.
	mounted := []ebs{first, second, third}
	for _, v := range mounted {
		l.machines.setMounted(v.id, true)
		v.detach(t, false)
	}
	for range 20 {
		l.clock.advance(time.Second)
		time.Sleep(2 * time.Millisecond)
	}
	for _, v := range mounted {
		if got := v.state(t); got != "detaching" {
			t.Errorf("a mounted volume is %s", got)
		}
		_, err := l.DeleteVolume(ctx, &awsec2.DeleteVolumeInput{VolumeId: &v.id})
		refused(t, err, "VolumeInUse")
	}
	l.machines.setMounted(first.id, false)
	first.await(t, "available")
	second.detach(t, true)
	second.await(t, "available")
	if got, want := l.has(i), third.id+":5"; got != want {
		t.Errorf("the machine has %q, want %q", got, want)
	}
	must[*awsec2.StopInstancesOutput](t)(l.StopInstances(ctx, &awsec2.StopInstancesInput{InstanceIds: []string{i}, Force: aws.Bool(true)}))
	l.await(t, i, types.InstanceStateNameStopped)
	if got := third.state(t); got != "available" {
		t.Errorf("after the stop the volume is %s", got)
	}

	// The content ends with the volume, after a crash too.
	for _, v := range mounted {
		must[*awsec2.DeleteVolumeOutput](t)(l.DeleteVolume(ctx, &awsec2.DeleteVolumeInput{VolumeId: &v.id}))
	}
	if left := must[[]string](t)(l.machines.Volumes()); len(left) > 0 {
		t.Errorf("the contents of %v are left", left)
	}
	kept := l.newVolume(t, 1)
	must[*awsec2.StartInstancesOutput](t)(l.StartInstances(ctx, &awsec2.StartInstancesInput{InstanceIds: []string{i}}))
	l.await(t, i, types.InstanceStateNameRunning)
	kept.attach(t, i, "/dev/sdf")
	l.cloud.Close() // while the volume is being attached
	l.machines.leave("vol-0123456789abcdef0")
	l.open(t)
	kept.await(t, "attached")
	if left := must[[]string](t)(l.machines.Volumes()); !slices.Equal(left, []string{kept.id}) || l.has(i) != kept.id+":1" {
		t.Errorf("after a crash there are the contents of %v, and the machine has %q", left, l.has(i))
	}
}

func TestLaunchWithVolumes(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
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
		{"unknown snapshot", "InvalidSnapshot.NotFound", []types.BlockDeviceMapping{{DeviceName: aws.String("/dev/sdf"), Ebs: &types.EbsBlockDevice{SnapshotId: aws.String("snap-0123456789abcdef0")}}}},
		{"key without encryption", "InvalidParameterDependency", []types.BlockDeviceMapping{{DeviceName: aws.String("/dev/sdf"), Ebs: &types.EbsBlockDevice{VolumeSize: aws.Int32(1), KmsKeyId: aws.String("alias/mine")}}}},
		{"too many", "AttachmentLimitExceeded", many},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := s.runInput()
			in.BlockDeviceMappings = tc.mappings
			_, err := l.RunInstances(ctx, in)
			refused(t, err, tc.code)
		})
	}

	in := s.runInput()
	keep := mapping("/dev/sdb", 4)
	keep.Ebs.DeleteOnTermination = aws.Bool(false)
	in.BlockDeviceMappings = []types.BlockDeviceMapping{mapping("/dev/sdz", 3), keep, {DeviceName: aws.String("/dev/sdc"), NoDevice: aws.String("")}}
	in.TagSpecifications = tags(types.ResourceTypeVolume, "cluster", "demo")
	i := l.run(t, in)
	devices := i.BlockDeviceMappings
	if len(devices) != 3 || *devices[1].DeviceName != "/dev/sdz" || *devices[2].DeviceName != "/dev/sdb" || !*devices[1].Ebs.DeleteOnTermination || *devices[2].Ebs.DeleteOnTermination {
		t.Fatalf("devices: %+v", devices)
	}
	ends, stays := ebs{l, *devices[1].Ebs.VolumeId}, ebs{l, *devices[2].Ebs.VolumeId}
	if got, want := l.has(*i.InstanceId), ends.id+":3 "+stays.id+":4"; got != want {
		t.Errorf("the machine has %q, want %q", got, want)
	}
	tagged := must[*awsec2.DescribeVolumesOutput](t)(l.DescribeVolumes(ctx, &awsec2.DescribeVolumesInput{Filters: []types.Filter{filter("tag:cluster", "demo")}})).Volumes
	if len(tagged) != 3 {
		t.Errorf("%d volumes have the tag, want 3", len(tagged))
	}
	for device, want := range map[string]string{"/dev/nvme1n1": "InvalidParameterValue", "sdf": "InvalidParameterValue", "/dev/sdb": "InvalidParameterValue"} {
		v := l.newVolume(t, 1)
		_, err := l.AttachVolume(ctx, &awsec2.AttachVolumeInput{VolumeId: &v.id, InstanceId: i.InstanceId, Device: &device})
		refused(t, err, want)
	}
	must[*awsec2.TerminateInstancesOutput](t)(l.TerminateInstances(ctx, &awsec2.TerminateInstancesInput{InstanceIds: []string{*i.InstanceId}}))
	l.await(t, *i.InstanceId, types.InstanceStateNameTerminated)
	if got := ends.state(t) + " " + stays.state(t); got != "InvalidVolume.NotFound available" {
		t.Errorf("after the termination: %s", got)
	}
	eventually(t, "the contents of "+stays.id+" alone are left", func() bool {
		return slices.Equal(must[[]string](t)(l.machines.Volumes()), []string{stays.id})
	})
}
