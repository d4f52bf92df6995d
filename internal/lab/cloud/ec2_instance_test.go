package cloud_test

import (
	"encoding/base64"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
)

func TestRunInstancesRefusals(t *testing.T) {
	l := newLab(t, func(l *lab) { l.quotas = ec2.Quotas{VCPUs: 6} })
	s := l.site(t)
	in := s.runInput()
	in.PrivateIpAddress = aws.String("10.240.0.10")
	l.run(t, in)
	tiny := must[*awsec2.CreateSubnetOutput](t)(l.CreateSubnet(t.Context(), &awsec2.CreateSubnetInput{VpcId: &s.vpc, CidrBlock: aws.String("10.240.8.0/28"), AvailabilityZone: aws.String("us-east-1a")})).Subnet

	for _, tc := range []struct {
		name, code string
		change     func(*awsec2.RunInstancesInput)
	}{
		{"dry run", "DryRunOperation", func(in *awsec2.RunInstancesInput) { in.DryRun = aws.Bool(true) }},
		{"dry run that would fail", "InvalidIPAddress.InUse", func(in *awsec2.RunInstancesInput) {
			in.DryRun, in.PrivateIpAddress = aws.Bool(true), aws.String("10.240.0.10")
		}},
		{"no image", "MissingParameter", func(in *awsec2.RunInstancesInput) { in.ImageId = nil }},
		{"image malformed", "InvalidAMIID.Malformed", func(in *awsec2.RunInstancesInput) { in.ImageId = aws.String("debian") }},
		{"image unknown", "InvalidAMIID.NotFound", func(in *awsec2.RunInstancesInput) { in.ImageId = aws.String("ami-00000000000000000") }},
		{"type unknown", "InvalidParameterValue", func(in *awsec2.RunInstancesInput) { in.InstanceType = "t3.gigantic" }},
		{"type of another architecture", "InvalidParameterValue", func(in *awsec2.RunInstancesInput) { in.InstanceType = types.InstanceTypeT4gSmall }},
		{"no subnet", "MissingInput", func(in *awsec2.RunInstancesInput) { in.SubnetId = nil }},
		{"subnet unknown", "InvalidSubnetID.NotFound", func(in *awsec2.RunInstancesInput) { in.SubnetId = aws.String("subnet-00000000000000000") }},
		{"group unknown", "InvalidGroup.NotFound", func(in *awsec2.RunInstancesInput) { in.SecurityGroupIds = []string{"sg-00000000000000000"} }},
		{"group by name", "InvalidGroup.NotFound", func(in *awsec2.RunInstancesInput) { in.SecurityGroups = []string{"web"} }},
		{"address in use", "InvalidIPAddress.InUse", func(in *awsec2.RunInstancesInput) { in.PrivateIpAddress = aws.String("10.240.0.10") }},
		{"address outside the subnet", "InvalidParameterValue", func(in *awsec2.RunInstancesInput) { in.PrivateIpAddress = aws.String("10.240.1.10") }},
		{"address reserved: router", "InvalidParameterValue", func(in *awsec2.RunInstancesInput) { in.PrivateIpAddress = aws.String("10.240.0.1") }},
		{"address reserved: broadcast", "InvalidParameterValue", func(in *awsec2.RunInstancesInput) { in.PrivateIpAddress = aws.String("10.240.0.255") }},
		{"address not one", "InvalidParameterValue", func(in *awsec2.RunInstancesInput) { in.PrivateIpAddress = aws.String("ten") }},
		{"one address for two", "InvalidParameterCombination", func(in *awsec2.RunInstancesInput) {
			in.MaxCount, in.PrivateIpAddress = aws.Int32(2), aws.String("10.240.0.11")
		}},
		{"minimum above maximum", "InvalidParameterValue", func(in *awsec2.RunInstancesInput) { in.MinCount = aws.Int32(2) }},
		{"more than the account may have", "VcpuLimitExceeded", func(in *awsec2.RunInstancesInput) { in.MinCount, in.MaxCount = aws.Int32(3), aws.Int32(3) }},
		{"key pair unknown", "InvalidKeyPair.NotFound", func(in *awsec2.RunInstancesInput) { in.KeyName = aws.String("nobody") }},
		{"user data not base64", "InvalidParameterValue", func(in *awsec2.RunInstancesInput) { in.UserData = aws.String("#!/bin/sh") }},
		{"user data too long", "InvalidParameterValue", func(in *awsec2.RunInstancesInput) {
			in.UserData = aws.String(base64.StdEncoding.EncodeToString(make([]byte, 16*1024+1)))
		}},
		{"metadata tokens nonsense", "InvalidParameterValue", func(in *awsec2.RunInstancesInput) {
			in.MetadataOptions = &types.InstanceMetadataOptionsRequest{HttpTokens: "maybe"}
		}},
		{"hop limit too high", "InvalidParameterValue", func(in *awsec2.RunInstancesInput) {
			in.MetadataOptions = &types.InstanceMetadataOptionsRequest{HttpPutResponseHopLimit: aws.Int32(65)}
		}},
		{"shutdown behavior nonsense", "InvalidParameterValue", func(in *awsec2.RunInstancesInput) { in.InstanceInitiatedShutdownBehavior = "explode" }},
		{"root volume smaller than the image", "InvalidBlockDeviceMapping", func(in *awsec2.RunInstancesInput) {
			in.BlockDeviceMappings = []types.BlockDeviceMapping{{DeviceName: aws.String("/dev/xvda"), Ebs: &types.EbsBlockDevice{VolumeSize: aws.Int32(4)}}}
		}},
		{"volume type unknown", "InvalidParameterValue", func(in *awsec2.RunInstancesInput) {
			in.BlockDeviceMappings = []types.BlockDeviceMapping{{DeviceName: aws.String("/dev/xvda"), Ebs: &types.EbsBlockDevice{VolumeType: "tape"}}}
		}},
		{"interface and instance-level subnet", "InvalidParameterCombination", func(in *awsec2.RunInstancesInput) {
			in.SecurityGroupIds = nil
			in.NetworkInterfaces = []types.InstanceNetworkInterfaceSpecification{{DeviceIndex: aws.Int32(0), SubnetId: &s.subnet}}
		}},
		{"interface and instance-level groups", "InvalidParameterCombination", func(in *awsec2.RunInstancesInput) {
			in.SubnetId = nil
			in.NetworkInterfaces = []types.InstanceNetworkInterfaceSpecification{{DeviceIndex: aws.Int32(0), SubnetId: &s.subnet}}
		}},
		{"tags for something it does not make", "InvalidParameterValue", func(in *awsec2.RunInstancesInput) {
			in.TagSpecifications = tags(types.ResourceTypeVpc, "a", "b")
		}},
		{"reserved tag", "InvalidParameterValue", func(in *awsec2.RunInstancesInput) {
			in.TagSpecifications = tags(types.ResourceTypeInstance, "aws:me", "b")
		}},
		{"client token too long", "InvalidParameterValue", func(in *awsec2.RunInstancesInput) { in.ClientToken = aws.String(strings.Repeat("x", 65)) }},
		{"instance profile", "InvalidParameterValue", func(in *awsec2.RunInstancesInput) {
			in.IamInstanceProfile = &types.IamInstanceProfileSpecification{Name: aws.String("x")}
		}},
		{"zone that is not the subnet's", "InvalidParameterValue", func(in *awsec2.RunInstancesInput) {
			in.Placement = &types.Placement{AvailabilityZone: aws.String("us-east-1b")}
		}},
		{"parameter nobody knows", "UnknownParameter", func(in *awsec2.RunInstancesInput) { in.KernelId = aws.String("aki-1") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := s.runInput()
			tc.change(in)
			_, err := l.RunInstances(t.Context(), in)
			refused(t, err, tc.code)
		})
	}
	if o := l.cloud.Overview(); len(o.Instances) != 1 || len(o.Interfaces) != 1 || len(o.Volumes) != 1 {
		t.Errorf("refused launches left something: %+v", o)
	}
	t.Run("subnet exhausted", func(t *testing.T) {
		big := newLab(t)
		s := big.site(t)
		tiny = must[*awsec2.CreateSubnetOutput](t)(big.CreateSubnet(t.Context(), &awsec2.CreateSubnetInput{VpcId: &s.vpc, CidrBlock: aws.String("10.240.8.0/28"), AvailabilityZone: aws.String("us-east-1a")})).Subnet
		in := s.runInput()
		in.SubnetId, in.MinCount, in.MaxCount = tiny.SubnetId, aws.Int32(12), aws.Int32(12)
		_, err := big.RunInstances(t.Context(), in)
		refused(t, err, "InsufficientFreeAddressesInSubnet")
		in.MinCount = aws.Int32(1)
		out := must[*awsec2.RunInstancesOutput](t)(big.RunInstances(t.Context(), in))
		if len(out.Instances) != 11 {
			t.Errorf("a /28 took %d instances, want 11", len(out.Instances))
		}
	})
}

// TestRunInstances checks that an instance has what was requested.
func TestRunInstances(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	ctx := t.Context()
	must[*awsec2.ImportKeyPairOutput](t)(l.ImportKeyPair(ctx, &awsec2.ImportKeyPairInput{KeyName: aws.String("me"), PublicKeyMaterial: []byte(testPublicKey)}))
	i := l.run(t, &awsec2.RunInstancesInput{
		ImageId: aws.String(testImage), InstanceType: types.InstanceTypeT3Medium, MinCount: aws.Int32(1), MaxCount: aws.Int32(1), KeyName: aws.String("me"),
		UserData:        aws.String(base64.StdEncoding.EncodeToString([]byte("#cloud-config\n"))),
		MetadataOptions: &types.InstanceMetadataOptionsRequest{HttpTokens: types.HttpTokensStateRequired, HttpPutResponseHopLimit: aws.Int32(1)},
		NetworkInterfaces: []types.InstanceNetworkInterfaceSpecification{{
			DeviceIndex: aws.Int32(0), SubnetId: &s.subnet, Groups: []string{s.group}, AssociatePublicIpAddress: aws.Bool(true), PrivateIpAddress: aws.String("10.240.0.20"),
		}},
		BlockDeviceMappings: []types.BlockDeviceMapping{{
			DeviceName: aws.String("/dev/xvda"), Ebs: &types.EbsBlockDevice{VolumeSize: aws.Int32(20), VolumeType: types.VolumeTypeGp3, Encrypted: aws.Bool(true)},
		}},
		TagSpecifications: append(tags(types.ResourceTypeInstance, "Name", "worker-0", "cluster", "demo"), tags(types.ResourceTypeVolume, "cluster", "demo")...),
	})
	if *i.PrivateIpAddress != "10.240.0.20" || i.PublicIpAddress == nil || *i.PrivateDnsName != "ip-10-240-0-20.ec2.internal" || *i.KeyName != "me" {
		t.Errorf("the instance is %+v", i)
	}
	if o := i.MetadataOptions; o.HttpTokens != types.HttpTokensStateRequired || *o.HttpPutResponseHopLimit != 1 {
		t.Errorf("metadata options are %+v", o)
	}
	volume := must[*awsec2.DescribeVolumesOutput](t)(l.DescribeVolumes(ctx, &awsec2.DescribeVolumesInput{Filters: []types.Filter{filter("attachment.instance-id", *i.InstanceId)}})).Volumes[0]
	if *volume.Size != 20 || !*volume.Encrypted || *volume.Tags[0].Value != "demo" || *volume.VolumeId != *i.BlockDeviceMappings[0].Ebs.VolumeId {
		t.Errorf("the root volume is %+v", volume)
	}
	eni := must[*awsec2.DescribeNetworkInterfacesOutput](t)(l.DescribeNetworkInterfaces(ctx, &awsec2.DescribeNetworkInterfacesInput{Filters: []types.Filter{filter("attachment.instance-id", *i.InstanceId)}})).NetworkInterfaces[0]
	if *eni.Association.PublicIp != *i.PublicIpAddress || *eni.Groups[0].GroupId != s.group || !*eni.SourceDestCheck {
		t.Errorf("the interface is %+v", eni)
	}
	spec := l.machines.spec(*i.InstanceId)
	if spec.Netns != "/run/netns/"+*eni.NetworkInterfaceId || spec.Image != testImage || spec.Hostname != "ip-10-240-0-20" || spec.VCPUs != 2 || spec.Cores != 1 || spec.MemoryMiB != 3888 {
		t.Errorf("the machine was started as %+v", spec)
	}
	n := l.network.vpc(t, s.vpc).Interfaces[0]
	if n.ID != *eni.NetworkInterfaceId || n.PublicIP.String() != *i.PublicIpAddress || n.MAC != *eni.MacAddress || n.Stopped {
		t.Errorf("the network was told %+v", n)
	}
	attr := must[*awsec2.DescribeInstanceAttributeOutput](t)(l.DescribeInstanceAttribute(ctx, &awsec2.DescribeInstanceAttributeInput{InstanceId: i.InstanceId, Attribute: types.InstanceAttributeNameUserData}))
	if raw, _ := base64.StdEncoding.DecodeString(*attr.UserData.Value); string(raw) != "#cloud-config\n" {
		t.Errorf("user data is %q", raw)
	}
	m, ok := l.cloud.Instances().InstanceByAddress(s.vpc, n.PrivateIP)
	if !ok || m.ID != *i.InstanceId || string(m.UserData) != "#cloud-config\n" || m.PublicKey != testPublicKey || m.HopLimit != 1 || !m.TokenRequired {
		t.Errorf("the metadata service would tell %+v", m)
	}
	console := filepath.Join(l.dir, *i.InstanceId)
	if err := os.WriteFile(console, []byte("Debian GNU/Linux 12"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := must[*awsec2.GetConsoleOutputOutput](t)(l.GetConsoleOutput(ctx, &awsec2.GetConsoleOutputInput{InstanceId: i.InstanceId}))
	if raw, _ := base64.StdEncoding.DecodeString(*out.Output); string(raw) != "Debian GNU/Linux 12" {
		t.Errorf("the console says %q", raw)
	}
}

func TestRunInstancesIsIdempotent(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	ctx := t.Context()
	in := s.runInput()
	in.ClientToken = aws.String("worker-0")
	first := *l.run(t, in).InstanceId
	again := must[*awsec2.RunInstancesOutput](t)(l.RunInstances(ctx, in)).Instances
	if len(again) != 1 || *again[0].InstanceId != first {
		t.Errorf("the same token made %+v", again)
	}
	in.InstanceType = types.InstanceTypeT3Large
	_, err := l.RunInstances(ctx, in)
	refused(t, err, "IdempotentParameterMismatch")
	in = s.runInput()
	in.ClientToken = aws.String("worker-0")
	in.TagSpecifications = []types.TagSpecification{{ResourceType: types.ResourceTypeInstance, Tags: []types.Tag{{Key: aws.String("claim"), Value: aws.String("b")}}}}
	_, err = l.RunInstances(ctx, in)
	refused(t, err, "IdempotentParameterMismatch") // tags are arguments, too
	in = s.runInput()
	in.ClientToken = aws.String("worker-1")
	if second := *l.run(t, in).InstanceId; second == first {
		t.Error("another token found the same instance")
	}

	// The token of a terminated instance is spent, also when the instance is no longer shown.
	in.ClientToken = aws.String("worker-0")
	must[*awsec2.TerminateInstancesOutput](t)(l.TerminateInstances(ctx, &awsec2.TerminateInstancesInput{InstanceIds: []string{first}}))
	l.await(t, first, types.InstanceStateNameTerminated)
	_, err = l.RunInstances(ctx, in)
	refused(t, err, "IdempotentInstanceTerminated")
	l.clock.advance(ec2.TerminatedVisible + time.Minute)
	_, err = l.DescribeInstances(ctx, &awsec2.DescribeInstancesInput{InstanceIds: []string{first}})
	refused(t, err, "InvalidInstanceID.NotFound")
	_, err = l.RunInstances(ctx, in)
	refused(t, err, "IdempotentInstanceTerminated")
	l.clock.advance(24 * time.Hour)
	if fresh := *l.run(t, in).InstanceId; fresh == first {
		t.Error("the token still gives the instance that is gone")
	}
}

// TestHeldAddress: a private address cannot be used at once after the termination.
func TestHeldAddress(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	in := s.runInput()
	in.PrivateIpAddress = aws.String("10.240.0.10")
	id := *l.run(t, in).InstanceId
	must[*awsec2.TerminateInstancesOutput](t)(l.TerminateInstances(t.Context(), &awsec2.TerminateInstancesInput{InstanceIds: []string{id}}))
	l.await(t, id, types.InstanceStateNameTerminated)
	in.ClientToken = nil // the SDK had set one
	_, err := l.RunInstances(t.Context(), in)
	refused(t, err, "InvalidIPAddress.InUse")
	l.clock.advance(time.Second)
	l.run(t, in)
}

// TestZonesDiffer: a type is refused in a zone that lacks it, at a launch and at a start.
func TestZonesDiffer(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	ctx := t.Context()
	any := must[*awsec2.CreateSubnetOutput](t)(l.CreateSubnet(ctx, &awsec2.CreateSubnetInput{VpcId: &s.vpc, CidrBlock: aws.String("10.240.5.0/24")})).Subnet
	offerings := must[*awsec2.DescribeInstanceTypeOfferingsOutput](t)(l.DescribeInstanceTypeOfferings(ctx, &awsec2.DescribeInstanceTypeOfferingsInput{
		LocationType: types.LocationTypeAvailabilityZone, Filters: []types.Filter{filter("instance-type", "t3.small", "m5.large")},
	})).InstanceTypeOfferings
	in := s.runInput()
	in.SubnetId = any.SubnetId
	for _, o := range offerings {
		if *o.Location == *any.AvailabilityZone && o.InstanceType == types.InstanceTypeT3Small {
			t.Errorf("EC2 chose %s, which has t3.small", *any.AvailabilityZone)
		}
	}
	if len(offerings) != 7 {
		t.Errorf("offered: %+v", offerings)
	}
	_, err := l.RunInstances(ctx, in)
	refused(t, err, "Unsupported")
	in.InstanceType = types.InstanceTypeM5Large
	id := l.run(t, in).InstanceId
	must[*awsec2.StopInstancesOutput](t)(l.StopInstances(ctx, &awsec2.StopInstancesInput{InstanceIds: []string{*id}}))
	l.await(t, *id, types.InstanceStateNameStopped)
	must[*awsec2.ModifyInstanceAttributeOutput](t)(l.ModifyInstanceAttribute(ctx, &awsec2.ModifyInstanceAttributeInput{InstanceId: id, InstanceType: &types.AttributeValue{Value: aws.String("t3.small")}}))
	_, err = l.StartInstances(ctx, &awsec2.StartInstancesInput{InstanceIds: []string{*id}})
	refused(t, err, "Unsupported")
}

func TestLifeCycle(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	ctx := t.Context()
	hold := make(chan struct{})
	l.machines.hold = hold
	release := func() { hold <- struct{}{} } // lets one start or stop proceed
	in := s.runInput()
	in.NetworkInterfaces = []types.InstanceNetworkInterfaceSpecification{{DeviceIndex: aws.Int32(0), SubnetId: &s.subnet, Groups: []string{s.group}, AssociatePublicIpAddress: aws.Bool(true)}}
	in.SubnetId, in.SecurityGroupIds = nil, nil
	run := must[*awsec2.RunInstancesOutput](t)(l.RunInstances(ctx, in)).Instances[0]
	id := *run.InstanceId
	ids := []string{id}
	if run.State.Name != types.InstanceStateNamePending {
		t.Errorf("just launched it is %s", run.State.Name)
	}
	stop := func() error {
		_, err := l.StopInstances(ctx, &awsec2.StopInstancesInput{InstanceIds: ids})
		return err
	}
	start := func() error {
		_, err := l.StartInstances(ctx, &awsec2.StartInstancesInput{InstanceIds: ids})
		return err
	}
	reboot := func() error {
		_, err := l.RebootInstances(ctx, &awsec2.RebootInstancesInput{InstanceIds: ids})
		return err
	}
	retype := func() error {
		_, err := l.ModifyInstanceAttribute(ctx, &awsec2.ModifyInstanceAttributeInput{InstanceId: &id, InstanceType: &types.AttributeValue{Value: aws.String("t3.large")}})
		return err
	}
	refused(t, stop(), "IncorrectInstanceState")
	release()
	running := l.await(t, id, types.InstanceStateNameRunning)
	refused(t, start(), "")
	refused(t, retype(), "IncorrectInstanceState")
	checks := func(want types.SummaryStatus) {
		t.Helper()
		status := must[*awsec2.DescribeInstanceStatusOutput](t)(l.DescribeInstanceStatus(ctx, &awsec2.DescribeInstanceStatusInput{InstanceIds: ids})).InstanceStatuses
		if len(status) != 1 || status[0].InstanceStatus.Status != want || status[0].SystemStatus.Status != want {
			t.Errorf("status is %+v, want %s", status, want)
		}
	}
	mac := must[net.HardwareAddr](t)(net.ParseMAC(*running.NetworkInterfaces[0].MacAddress))
	checks(types.SummaryStatusInitializing)
	l.cloud.Instances().AddressLeased(s.vpc, mac)
	checks(types.SummaryStatusInitializing) // the first checks come a minute after the start
	l.clock.advance(time.Minute)
	checks(types.SummaryStatusOk)

	refused(t, stop(), "")
	if i := l.instance(t, id); i.State.Name != types.InstanceStateNameStopping || i.PublicIpAddress == nil {
		t.Errorf("while stopping it is %s with public address %v", i.State.Name, i.PublicIpAddress)
	}
	refused(t, start(), "IncorrectInstanceState")
	refused(t, reboot(), "IncorrectInstanceState")
	release()
	stopped := l.await(t, id, types.InstanceStateNameStopped)
	if stopped.PublicIpAddress != nil || *stopped.PrivateIpAddress != *running.PrivateIpAddress || *stopped.StateReason.Code != "Client.UserInitiatedShutdown" {
		t.Errorf("stopped: %+v", stopped)
	}
	eventually(t, "the network knows that the instance is stopped", func() bool { return l.network.vpc(t, s.vpc).Interfaces[0].Stopped })
	if n := l.network.resetCount(); n != 1 {
		t.Errorf("the interface was reset %d times by a stop", n)
	}
	refused(t, retype(), "")
	refused(t, stop(), "")

	refused(t, start(), "")
	release()
	again := l.await(t, id, types.InstanceStateNameRunning)
	if *again.PublicIpAddress == *running.PublicIpAddress || *again.PrivateIpAddress != *running.PrivateIpAddress || again.InstanceType != types.InstanceTypeT3Large {
		t.Errorf("started again: %+v, before %+v", again, running)
	}
	if spec := l.machines.spec(id); spec.VCPUs != 2 || spec.MemoryMiB != 7813 {
		t.Errorf("the machine of a t3.large was started as %+v", spec)
	}
	checks(types.SummaryStatusInitializing)
	l.cloud.Instances().AddressLeased(s.vpc, mac)
	l.clock.advance(time.Minute)
	checks(types.SummaryStatusOk)
	refused(t, reboot(), "")
	checks(types.SummaryStatusInitializing)
	release()
	eventually(t, "the reboot", func() bool { return !l.machines.Running(id) })
	release()
	eventually(t, "the reboot", func() bool { return l.machines.Running(id) })
	if i := l.instance(t, id); i.State.Name != types.InstanceStateNameRunning || *i.PublicIpAddress != *again.PublicIpAddress {
		t.Errorf("after a reboot: %+v", i)
	}

	must[*awsec2.ModifyInstanceAttributeOutput](t)(l.ModifyInstanceAttribute(ctx, &awsec2.ModifyInstanceAttributeInput{InstanceId: &id, DisableApiTermination: &types.AttributeBooleanValue{Value: aws.Bool(true)}}))
	_, err := l.TerminateInstances(ctx, &awsec2.TerminateInstancesInput{InstanceIds: ids})
	refused(t, err, "OperationNotPermitted")
	must[*awsec2.ModifyInstanceAttributeOutput](t)(l.ModifyInstanceAttribute(ctx, &awsec2.ModifyInstanceAttributeInput{InstanceId: &id, DisableApiTermination: &types.AttributeBooleanValue{Value: aws.Bool(false)}}))
	term := must[*awsec2.TerminateInstancesOutput](t)(l.TerminateInstances(ctx, &awsec2.TerminateInstancesInput{InstanceIds: ids})).TerminatingInstances[0]
	if term.PreviousState.Name != types.InstanceStateNameRunning || term.CurrentState.Name != types.InstanceStateNameShuttingDown {
		t.Errorf("terminating: %+v", term)
	}
	_, err = l.DeleteSubnet(ctx, &awsec2.DeleteSubnetInput{SubnetId: &s.subnet})
	refused(t, err, "DependencyViolation") // not before the instance is terminated
	release()
	gone := l.await(t, id, types.InstanceStateNameTerminated)
	if gone.PrivateIpAddress != nil || gone.VpcId != nil || len(gone.NetworkInterfaces) != 0 {
		t.Errorf("terminated: %+v", gone)
	}
	refused(t, start(), "IncorrectInstanceState")
	refused(t, stop(), "IncorrectInstanceState")
	if o := l.cloud.Overview(); len(o.Instances)+len(o.Interfaces)+len(o.Volumes) != 0 {
		t.Errorf("left after termination: %+v", o)
	}
	must[*awsec2.DeleteSubnetOutput](t)(l.DeleteSubnet(ctx, &awsec2.DeleteSubnetInput{SubnetId: &s.subnet}))
}

// TestTerminateCancelsALaunch terminates an instance whose machine hangs while booting.
func TestTerminateCancelsALaunch(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	l.machines.hold = make(chan struct{})
	id := *must[*awsec2.RunInstancesOutput](t)(l.RunInstances(t.Context(), s.runInput())).Instances[0].InstanceId
	time.Sleep(20 * time.Millisecond) // let the launch begin; the test passes without it, too
	must[*awsec2.TerminateInstancesOutput](t)(l.TerminateInstances(t.Context(), &awsec2.TerminateInstancesInput{InstanceIds: []string{id}}))
	close(l.machines.hold)
	l.await(t, id, types.InstanceStateNameTerminated)
	if l.machines.Running(id) {
		t.Error("the machine runs")
	}
}

func TestShutdownFromInside(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	stops := l.run(t, s.runInput())
	in := s.runInput()
	in.InstanceInitiatedShutdownBehavior = types.ShutdownBehaviorTerminate
	terminates := l.run(t, in)
	l.machines.powerOff(*stops.InstanceId)
	l.machines.powerOff(*terminates.InstanceId)
	if i := l.await(t, *stops.InstanceId, types.InstanceStateNameStopped); *i.StateReason.Code != "Client.InstanceInitiatedShutdown" {
		t.Errorf("the reason is %s", *i.StateReason.Code)
	}
	l.await(t, *terminates.InstanceId, types.InstanceStateNameTerminated)
}

// TestRebootFromInside: the instance stays running, whatever its shutdown behavior, and its machine boots
// again with the same network interface and volumes.
func TestRebootFromInside(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	in := s.runInput()
	in.InstanceInitiatedShutdownBehavior = types.ShutdownBehaviorTerminate
	id := *l.run(t, in).InstanceId
	before, was := l.machines.spec(id), l.instance(t, id)
	l.machines.reboot(id)
	eventually(t, "the reboot", func() bool { return l.machines.Running(id) })
	if after := l.machines.spec(id); after.Netns != before.Netns || after.Hostname != before.Hostname {
		t.Errorf("booted again as %+v, before %+v", after, before)
	}
	if i := l.instance(t, id); i.State.Name != types.InstanceStateNameRunning || aws.ToString(i.PublicIpAddress) != aws.ToString(was.PublicIpAddress) || *i.PrivateIpAddress != *was.PrivateIpAddress {
		t.Errorf("after a reboot from inside: %+v", i)
	}
	l.machines.fail = errors.New("no such file")
	l.machines.reboot(id)
	l.await(t, id, types.InstanceStateNameStopped) // one that does not boot any more
}

func TestFailedLaunch(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	l.machines.fail = errors.New("no such file")
	id := *must[*awsec2.RunInstancesOutput](t)(l.RunInstances(t.Context(), s.runInput())).Instances[0].InstanceId
	if i := l.await(t, id, types.InstanceStateNameTerminated); !strings.HasPrefix(*i.StateReason.Message, "Server.InternalError: booting instance "+id) {
		t.Errorf("the reason is %s", *i.StateReason.Message)
	}
	l.machines.fail = nil
	id = *l.run(t, s.runInput()).InstanceId
	must[*awsec2.StopInstancesOutput](t)(l.StopInstances(t.Context(), &awsec2.StopInstancesInput{InstanceIds: []string{id}}))
	l.await(t, id, types.InstanceStateNameStopped)
	l.machines.fail = errors.New("no such file")
	must[*awsec2.StartInstancesOutput](t)(l.StartInstances(t.Context(), &awsec2.StartInstancesInput{InstanceIds: []string{id}}))
	l.await(t, id, types.InstanceStateNameStopped) // an instance that has run before is not terminated
}

func TestModifyInstance(t *testing.T) {
	l := newLab(t)
	s := l.site(t)
	ctx := t.Context()
	id := l.run(t, s.runInput()).InstanceId
	modify := func(change func(*awsec2.ModifyInstanceAttributeInput)) error {
		in := &awsec2.ModifyInstanceAttributeInput{InstanceId: id}
		change(in)
		_, err := l.ModifyInstanceAttribute(ctx, in)
		return err
	}
	off := &types.AttributeBooleanValue{Value: aws.Bool(false)}
	refused(t, modify(func(in *awsec2.ModifyInstanceAttributeInput) { in.SourceDestCheck = off }), "")
	if l.network.vpc(t, s.vpc).Interfaces[0].SourceDestCheck {
		t.Error("the network still checks source and destination")
	}
	other := l.group(t, s.vpc, "other")
	refused(t, modify(func(in *awsec2.ModifyInstanceAttributeInput) { in.Groups = []string{other} }), "")
	if got := l.network.vpc(t, s.vpc).Interfaces[0].Groups; len(got) != 1 || got[0] != other {
		t.Errorf("the network was told the groups %v", got)
	}
	refused(t, modify(func(in *awsec2.ModifyInstanceAttributeInput) { in.Groups, in.SourceDestCheck = []string{other}, off }), "InvalidParameterCombination")
	refused(t, modify(func(*awsec2.ModifyInstanceAttributeInput) {}), "InvalidParameterCombination")
	refused(t, modify(func(in *awsec2.ModifyInstanceAttributeInput) {
		in.UserData = &types.SecureBlobAttributeValue{Value: []byte("new")}
	}), "IncorrectInstanceState")
	must[*awsec2.ModifyInstanceMetadataOptionsOutput](t)(l.ModifyInstanceMetadataOptions(ctx, &awsec2.ModifyInstanceMetadataOptionsInput{InstanceId: id, HttpPutResponseHopLimit: aws.Int32(3)}))
	if o := l.instance(t, *id).MetadataOptions; *o.HttpPutResponseHopLimit != 3 || o.HttpTokens != types.HttpTokensStateRequired {
		t.Errorf("metadata options are %+v", o)
	}
	v := l.instance(t, *id).BlockDeviceMappings[0].Ebs.VolumeId
	size := func() int32 {
		return *must[*awsec2.DescribeVolumesOutput](t)(l.DescribeVolumes(ctx, &awsec2.DescribeVolumesInput{VolumeIds: []string{*v}})).Volumes[0].Size
	}
	grow := func(gib int32) error {
		_, err := l.ModifyVolume(ctx, &awsec2.ModifyVolumeInput{VolumeId: v, Size: &gib})
		return err
	}
	was := size()
	refused(t, grow(30), "")
	for _, stage := range []struct {
		state types.VolumeModificationState
		size  int32
		next  time.Duration
		again string
	}{
		{types.VolumeModificationStateModifying, was, 500 * time.Millisecond, "IncorrectModificationState"},
		{types.VolumeModificationStateOptimizing, 30, time.Second, "IncorrectModificationState"},
		{types.VolumeModificationStateCompleted, 30, 0, ""},
	} {
		m := must[*awsec2.DescribeVolumesModificationsOutput](t)(l.DescribeVolumesModifications(ctx, &awsec2.DescribeVolumesModificationsInput{VolumeIds: []string{*v}})).VolumesModifications[0]
		if m.ModificationState != stage.state || *m.TargetSize != 30 || size() != stage.size {
			t.Errorf("size %d, modification %+v; wanted it %s", size(), m, stage.state)
		}
		if stage.again != "" {
			refused(t, grow(40), stage.again)
		}
		l.clock.advance(stage.next)
	}
	refused(t, grow(10), "InvalidParameterValue")
	// Four modifications fit in 24 hours. The first was 1.5 s ago.
	for gib := int32(31); gib < 34; gib++ {
		refused(t, grow(gib), "")
		l.clock.advance(2 * time.Second)
	}
	refused(t, grow(34), "VolumeModificationRateExceeded")
	l.clock.advance(24*time.Hour - 10*time.Second)
	refused(t, grow(34), "VolumeModificationRateExceeded")
	l.clock.advance(5 * time.Second)
	refused(t, grow(34), "") // the first two are out of the period
	l.clock.advance(time.Second)
	refused(t, grow(35), "IncorrectModificationState")
	l.clock.advance(500 * time.Millisecond)
	refused(t, grow(35), "")
	_, err := l.DeleteVolume(ctx, &awsec2.DeleteVolumeInput{VolumeId: v})
	refused(t, err, "VolumeInUse")
}
