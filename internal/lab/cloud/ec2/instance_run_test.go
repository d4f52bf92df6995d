package ec2_test

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
)

func TestRunInstancesRefusals(t *testing.T) {
	l := cloudtest.New(t, func(l *cloudtest.Lab) { l.Quotas = ec2.Quotas{VCPUs: 6} })
	s := l.NewSite(t)
	foreign := l.NewSite(t).Group
	in := s.RunInput()
	in.PrivateIpAddress = aws.String("10.240.0.10")
	l.Run(t, in)
	tiny := cloudtest.Must[*awsec2.CreateSubnetOutput](t)(l.CreateSubnet(t.Context(), &awsec2.CreateSubnetInput{VpcId: &s.VPC, CidrBlock: aws.String("10.240.8.0/28"), AvailabilityZone: aws.String("us-east-1a")})).Subnet

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
		{"no subnet", "VPCIdNotSpecified", func(in *awsec2.RunInstancesInput) { in.SubnetId = nil }},
		{"subnet unknown", "InvalidSubnetID.NotFound", func(in *awsec2.RunInstancesInput) { in.SubnetId = aws.String("subnet-00000000000000000") }},
		{"group unknown", "InvalidGroup.NotFound", func(in *awsec2.RunInstancesInput) { in.SecurityGroupIds = []string{"sg-00000000000000000"} }},
		{"group of another VPC", "InvalidParameter", func(in *awsec2.RunInstancesInput) { in.SecurityGroupIds = []string{foreign} }},
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
			in.NetworkInterfaces = []types.InstanceNetworkInterfaceSpecification{{DeviceIndex: aws.Int32(0), SubnetId: &s.Subnet}}
		}},
		{"interface and instance-level groups", "InvalidParameterCombination", func(in *awsec2.RunInstancesInput) {
			in.SubnetId = nil
			in.NetworkInterfaces = []types.InstanceNetworkInterfaceSpecification{{DeviceIndex: aws.Int32(0), SubnetId: &s.Subnet}}
		}},
		{"tags for something it does not make", "InvalidParameterValue", func(in *awsec2.RunInstancesInput) {
			in.TagSpecifications = cloudtest.Tags(types.ResourceTypeVpc, "a", "b")
		}},
		{"reserved tag", "InvalidParameterValue", func(in *awsec2.RunInstancesInput) {
			in.TagSpecifications = cloudtest.Tags(types.ResourceTypeInstance, "aws:me", "b")
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
			in := s.RunInput()
			tc.change(in)
			_, err := l.RunInstances(t.Context(), in)
			cloudtest.Refused(t, err, tc.code)
		})
	}
	if o := l.Account.Overview(); len(o.Instances) != 1 || len(o.Interfaces) != 1 || len(o.Volumes) != 1 {
		t.Errorf("refused launches left something: %+v", o)
	}
	t.Run("subnet exhausted", func(t *testing.T) {
		big := cloudtest.New(t)
		s := big.NewSite(t)
		tiny = cloudtest.Must[*awsec2.CreateSubnetOutput](t)(big.CreateSubnet(t.Context(), &awsec2.CreateSubnetInput{VpcId: &s.VPC, CidrBlock: aws.String("10.240.8.0/28"), AvailabilityZone: aws.String("us-east-1a")})).Subnet
		in := s.RunInput()
		in.SubnetId, in.MinCount, in.MaxCount = tiny.SubnetId, aws.Int32(12), aws.Int32(12)
		_, err := big.RunInstances(t.Context(), in)
		cloudtest.Refused(t, err, "InsufficientFreeAddressesInSubnet")
		in.MinCount = aws.Int32(1)
		out := cloudtest.Must[*awsec2.RunInstancesOutput](t)(big.RunInstances(t.Context(), in))
		if len(out.Instances) != 11 {
			t.Errorf("a /28 took %d instances, want 11", len(out.Instances))
		}
	})
}

// TestRunInstances checks that an instance has what was requested.
func TestRunInstances(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	cloudtest.Must[*awsec2.ImportKeyPairOutput](t)(l.ImportKeyPair(ctx, &awsec2.ImportKeyPairInput{KeyName: aws.String("me"), PublicKeyMaterial: []byte(cloudtest.PublicKey)}))
	i := l.Run(t, &awsec2.RunInstancesInput{
		ImageId: aws.String(cloudtest.Image), InstanceType: types.InstanceTypeT3Medium, MinCount: aws.Int32(1), MaxCount: aws.Int32(1), KeyName: aws.String("me"),
		UserData:        aws.String(base64.StdEncoding.EncodeToString([]byte("#cloud-config\n"))),
		MetadataOptions: &types.InstanceMetadataOptionsRequest{HttpTokens: types.HttpTokensStateRequired, HttpPutResponseHopLimit: aws.Int32(1)},
		NetworkInterfaces: []types.InstanceNetworkInterfaceSpecification{{
			DeviceIndex: aws.Int32(0), SubnetId: &s.Subnet, Groups: []string{s.Group}, AssociatePublicIpAddress: aws.Bool(true), PrivateIpAddress: aws.String("10.240.0.20"),
		}},
		BlockDeviceMappings: []types.BlockDeviceMapping{{
			DeviceName: aws.String("/dev/xvda"), Ebs: &types.EbsBlockDevice{VolumeSize: aws.Int32(20), VolumeType: types.VolumeTypeGp3, Encrypted: aws.Bool(true)},
		}},
		TagSpecifications: append(cloudtest.Tags(types.ResourceTypeInstance, "Name", "worker-0", "cluster", "demo"), cloudtest.Tags(types.ResourceTypeVolume, "cluster", "demo")...),
	})
	if *i.PrivateIpAddress != "10.240.0.20" || i.PublicIpAddress == nil || *i.PrivateDnsName != "ip-10-240-0-20.ec2.internal" || *i.KeyName != "me" {
		t.Errorf("the instance is %+v", i)
	}
	if o := i.MetadataOptions; o.HttpTokens != types.HttpTokensStateRequired || *o.HttpPutResponseHopLimit != 1 {
		t.Errorf("metadata options are %+v", o)
	}
	volume := cloudtest.Must[*awsec2.DescribeVolumesOutput](t)(l.DescribeVolumes(ctx, &awsec2.DescribeVolumesInput{Filters: []types.Filter{cloudtest.Filter("attachment.instance-id", *i.InstanceId)}})).Volumes[0]
	if *volume.Size != 20 || !*volume.Encrypted || *volume.Tags[0].Value != "demo" || *volume.VolumeId != *i.BlockDeviceMappings[0].Ebs.VolumeId {
		t.Errorf("the root volume is %+v", volume)
	}
	eni := cloudtest.Must[*awsec2.DescribeNetworkInterfacesOutput](t)(l.DescribeNetworkInterfaces(ctx, &awsec2.DescribeNetworkInterfacesInput{Filters: []types.Filter{cloudtest.Filter("attachment.instance-id", *i.InstanceId)}})).NetworkInterfaces[0]
	if *eni.Association.PublicIp != *i.PublicIpAddress || *eni.Groups[0].GroupId != s.Group || !*eni.SourceDestCheck {
		t.Errorf("the interface is %+v", eni)
	}
	spec := l.Machines.Spec(*i.InstanceId)
	if spec.Netns != "/run/netns/"+*eni.NetworkInterfaceId || spec.Image != cloudtest.Image || spec.Hostname != "ip-10-240-0-20" || spec.VCPUs != 2 || spec.Cores != 1 || spec.MemoryMiB != 3888 {
		t.Errorf("the machine was started as %+v", spec)
	}
	n := l.Network.VPC(t, s.VPC).Interfaces[0]
	if n.ID != *eni.NetworkInterfaceId || n.PublicIP.String() != *i.PublicIpAddress || n.MAC != *eni.MacAddress || n.Stopped {
		t.Errorf("the network was told %+v", n)
	}
	attr := cloudtest.Must[*awsec2.DescribeInstanceAttributeOutput](t)(l.DescribeInstanceAttribute(ctx, &awsec2.DescribeInstanceAttributeInput{InstanceId: i.InstanceId, Attribute: types.InstanceAttributeNameUserData}))
	if raw, _ := base64.StdEncoding.DecodeString(*attr.UserData.Value); string(raw) != "#cloud-config\n" {
		t.Errorf("user data is %q", raw)
	}
	m, ok := l.Account.Instances().InstanceByAddress(s.VPC, n.PrivateIP)
	if !ok || m.ID != *i.InstanceId || string(m.UserData) != "#cloud-config\n" || m.PublicKey != cloudtest.PublicKey || m.HopLimit != 1 || !m.TokenRequired {
		t.Errorf("the metadata service would tell %+v", m)
	}
	console := filepath.Join(l.Dir, *i.InstanceId)
	if err := os.WriteFile(console, []byte("Debian GNU/Linux 12"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := cloudtest.Must[*awsec2.GetConsoleOutputOutput](t)(l.GetConsoleOutput(ctx, &awsec2.GetConsoleOutputInput{InstanceId: i.InstanceId}))
	if raw, _ := base64.StdEncoding.DecodeString(*out.Output); string(raw) != "Debian GNU/Linux 12" {
		t.Errorf("the console says %q", raw)
	}
	old := s.RunInput()
	old.InstanceType = "m1.small"
	_, err := l.GetConsoleOutput(ctx, &awsec2.GetConsoleOutputInput{InstanceId: l.Run(t, old).InstanceId, Latest: aws.Bool(true)})
	cloudtest.Refused(t, err, "UnsupportedOperation")
}

func TestRunInstancesIsIdempotent(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	in := s.RunInput()
	in.ClientToken = aws.String("worker-0")
	first := *l.Run(t, in).InstanceId
	again := cloudtest.Must[*awsec2.RunInstancesOutput](t)(l.RunInstances(ctx, in)).Instances
	if len(again) != 1 || *again[0].InstanceId != first {
		t.Errorf("the same token made %+v", again)
	}
	in.InstanceType = types.InstanceTypeT3Large
	_, err := l.RunInstances(ctx, in)
	cloudtest.Refused(t, err, "IdempotentParameterMismatch")
	in = s.RunInput()
	in.ClientToken = aws.String("worker-0")
	in.TagSpecifications = []types.TagSpecification{{ResourceType: types.ResourceTypeInstance, Tags: []types.Tag{{Key: aws.String("claim"), Value: aws.String("b")}}}}
	_, err = l.RunInstances(ctx, in)
	cloudtest.Refused(t, err, "IdempotentParameterMismatch") // tags are arguments, too
	in = s.RunInput()
	in.ClientToken = aws.String("worker-1")
	if second := *l.Run(t, in).InstanceId; second == first {
		t.Error("another token found the same instance")
	}

	// The token of a terminated instance is spent, also when the instance is no longer shown.
	in.ClientToken = aws.String("worker-0")
	cloudtest.Must[*awsec2.TerminateInstancesOutput](t)(l.TerminateInstances(ctx, &awsec2.TerminateInstancesInput{InstanceIds: []string{first}}))
	l.Await(t, first, types.InstanceStateNameTerminated)
	_, err = l.RunInstances(ctx, in)
	cloudtest.Refused(t, err, "IdempotentInstanceTerminated")
	l.Clock.Advance(ec2.TerminatedVisible + time.Minute)
	_, err = l.DescribeInstances(ctx, &awsec2.DescribeInstancesInput{InstanceIds: []string{first}})
	cloudtest.Refused(t, err, "InvalidInstanceID.NotFound")
	_, err = l.RunInstances(ctx, in)
	cloudtest.Refused(t, err, "IdempotentInstanceTerminated")
	l.Clock.Advance(24 * time.Hour)
	if fresh := *l.Run(t, in).InstanceId; fresh == first {
		t.Error("the token still gives the instance that is gone")
	}
}

// TestHeldAddress: a private address cannot be used at once after the termination.
func TestHeldAddress(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	in := s.RunInput()
	in.PrivateIpAddress = aws.String("10.240.0.10")
	id := *l.Run(t, in).InstanceId
	cloudtest.Must[*awsec2.TerminateInstancesOutput](t)(l.TerminateInstances(t.Context(), &awsec2.TerminateInstancesInput{InstanceIds: []string{id}}))
	l.Await(t, id, types.InstanceStateNameTerminated)
	in.ClientToken = nil // the SDK had set one
	_, err := l.RunInstances(t.Context(), in)
	cloudtest.Refused(t, err, "InvalidIPAddress.InUse")
	l.Clock.Advance(time.Second)
	l.Run(t, in)
}

// TestZonesDiffer: a type is refused in a zone that lacks it, at a launch and at a start.
func TestZonesDiffer(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	any := cloudtest.Must[*awsec2.CreateSubnetOutput](t)(l.CreateSubnet(ctx, &awsec2.CreateSubnetInput{VpcId: &s.VPC, CidrBlock: aws.String("10.240.5.0/24")})).Subnet
	offerings := cloudtest.Must[*awsec2.DescribeInstanceTypeOfferingsOutput](t)(l.DescribeInstanceTypeOfferings(ctx, &awsec2.DescribeInstanceTypeOfferingsInput{
		LocationType: types.LocationTypeAvailabilityZone, Filters: []types.Filter{cloudtest.Filter("instance-type", "t3.small", "m5.large")},
	})).InstanceTypeOfferings
	in := s.RunInput()
	in.SubnetId = any.SubnetId
	for _, o := range offerings {
		if *o.Location == *any.AvailabilityZone && o.InstanceType == types.InstanceTypeT3Small {
			t.Errorf("EC2 chose %s, which has t3.small", *any.AvailabilityZone)
		}
	}
	if len(offerings) != 11 {
		t.Errorf("offered: %+v", offerings)
	}
	_, err := l.RunInstances(ctx, in)
	cloudtest.Refused(t, err, "Unsupported")
	in.InstanceType = types.InstanceTypeM5Large
	id := l.Run(t, in).InstanceId
	cloudtest.Must[*awsec2.StopInstancesOutput](t)(l.StopInstances(ctx, &awsec2.StopInstancesInput{InstanceIds: []string{*id}}))
	l.Await(t, *id, types.InstanceStateNameStopped)
	cloudtest.Must[*awsec2.ModifyInstanceAttributeOutput](t)(l.ModifyInstanceAttribute(ctx, &awsec2.ModifyInstanceAttributeInput{InstanceId: id, InstanceType: &types.AttributeValue{Value: aws.String("t3.small")}}))
	_, err = l.StartInstances(ctx, &awsec2.StartInstancesInput{InstanceIds: []string{*id}})
	cloudtest.Refused(t, err, "Unsupported")
}
