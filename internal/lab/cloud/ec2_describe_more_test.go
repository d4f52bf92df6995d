package cloud_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

// TestPendingAddress: an address cannot be associated with a pending instance, and moves by itself
// unless that is forbidden.
func TestPendingAddress(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	first := l.Run(t, s.RunInput())
	hold := make(chan struct{})
	l.Machines.Hold = hold
	second := cloudtest.Must[*awsec2.RunInstancesOutput](t)(l.RunInstances(ctx, s.RunInput())).Instances[0]
	eip := cloudtest.Must[*awsec2.AllocateAddressOutput](t)(l.AllocateAddress(ctx, &awsec2.AllocateAddressInput{}))
	associate := func(id *string, reassociate *bool) error {
		_, err := l.AssociateAddress(ctx, &awsec2.AssociateAddressInput{AllocationId: eip.AllocationId, InstanceId: id, AllowReassociation: reassociate})
		return err
	}
	cloudtest.Refused(t, associate(first.InstanceId, nil), "")
	cloudtest.Refused(t, associate(second.InstanceId, nil), "InvalidInstanceID")
	hold <- struct{}{}
	l.Await(t, *second.InstanceId, types.InstanceStateNameRunning)
	cloudtest.Refused(t, associate(second.InstanceId, aws.Bool(false)), "Resource.AlreadyAssociated")
	cloudtest.Refused(t, associate(second.InstanceId, nil), "")
	if l.Instance(t, *first.InstanceId).PublicIpAddress != nil || *l.Instance(t, *second.InstanceId).PublicIpAddress != *eip.PublicIp {
		t.Error("the address did not move")
	}
	found := cloudtest.Must[*awsec2.DescribeAddressesAttributeOutput](t)(l.DescribeAddressesAttribute(ctx, &awsec2.DescribeAddressesAttributeInput{Attribute: types.AddressAttributeNameDomainName})).Addresses
	if len(found) != 1 || *found[0].PublicIp != *eip.PublicIp || found[0].PtrRecord != nil {
		t.Errorf("attributes: %+v", found)
	}
}

// TestVCPUQuota: stopped instances do not count, and a start is refused like a launch.
func TestVCPUQuota(t *testing.T) {
	l := cloudtest.New(t, func(l *cloudtest.Lab) { l.Quotas.VCPUs = 5 })
	s := l.NewSite(t)
	ctx := t.Context()
	in := s.RunInput()
	in.MaxCount = aws.Int32(3)
	two := cloudtest.Must[*awsec2.RunInstancesOutput](t)(l.RunInstances(ctx, in)).Instances
	if len(two) != 2 {
		t.Fatalf("%d instances of 2 vCPUs run with a quota of 5", len(two))
	}
	ids := []string{*two[0].InstanceId}
	l.Await(t, ids[0], types.InstanceStateNameRunning)
	_, err := l.RunInstances(ctx, s.RunInput())
	cloudtest.Refused(t, err, "VcpuLimitExceeded")
	cloudtest.Must[*awsec2.StopInstancesOutput](t)(l.StopInstances(ctx, &awsec2.StopInstancesInput{InstanceIds: ids}))
	l.Await(t, ids[0], types.InstanceStateNameStopped)
	l.Run(t, s.RunInput())
	_, err = l.StartInstances(ctx, &awsec2.StartInstancesInput{InstanceIds: ids})
	cloudtest.Refused(t, err, "VcpuLimitExceeded")
}

func TestIPv6Refused(t *testing.T) {
	l := cloudtest.New(t)
	ctx := t.Context()
	_, err := l.CreateVpc(ctx, &awsec2.CreateVpcInput{CidrBlock: aws.String("10.1.0.0/16"), AmazonProvidedIpv6CidrBlock: aws.Bool(true)})
	cloudtest.Refused(t, err, "InvalidParameterValue")
	vpc := cloudtest.Must[*awsec2.CreateVpcOutput](t)(l.CreateVpc(ctx, &awsec2.CreateVpcInput{CidrBlock: aws.String("10.1.0.0/16"), AmazonProvidedIpv6CidrBlock: aws.Bool(false)})).Vpc
	subnet := cloudtest.Must[*awsec2.CreateSubnetOutput](t)(l.CreateSubnet(ctx, &awsec2.CreateSubnetInput{VpcId: vpc.VpcId, CidrBlock: aws.String("10.1.0.0/24")})).Subnet
	assign := func(on bool) error {
		_, err := l.ModifySubnetAttribute(ctx, &awsec2.ModifySubnetAttributeInput{SubnetId: subnet.SubnetId, AssignIpv6AddressOnCreation: &types.AttributeBooleanValue{Value: &on}})
		return err
	}
	cloudtest.Refused(t, assign(false), "")
	cloudtest.Refused(t, assign(true), "InvalidParameterValue")
	found := cloudtest.Must[*awsec2.DescribeSubnetsOutput](t)(l.DescribeSubnets(ctx, &awsec2.DescribeSubnetsInput{SubnetIds: []string{*subnet.SubnetId}})).Subnets
	if found[0].AssignIpv6AddressOnCreation == nil || *found[0].AssignIpv6AddressOnCreation {
		t.Errorf("subnet: %+v", found[0])
	}
}

// TestSurroundings: what clients ask about a VPC although nobody makes it.
func TestSurroundings(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	acls := cloudtest.Must[*awsec2.DescribeNetworkAclsOutput](t)(l.DescribeNetworkAcls(ctx, &awsec2.DescribeNetworkAclsInput{Filters: []types.Filter{cloudtest.Filter("vpc-id", s.VPC), cloudtest.Filter("default", "true")}})).NetworkAcls
	if len(acls) != 1 || len(acls[0].Entries) != 4 || len(acls[0].Associations) != 1 || *acls[0].Associations[0].SubnetId != s.Subnet {
		t.Fatalf("network ACLs: %+v", acls)
	}
	cloudtest.Must[*awsec2.CreateTagsOutput](t)(l.CreateTags(ctx, &awsec2.CreateTagsInput{Resources: []string{*acls[0].NetworkAclId}, Tags: []types.Tag{{Key: aws.String("Name"), Value: aws.String("default")}}}))
	if named := cloudtest.Must[*awsec2.DescribeNetworkAclsOutput](t)(l.DescribeNetworkAcls(ctx, &awsec2.DescribeNetworkAclsInput{Filters: []types.Filter{cloudtest.Filter("tag:Name", "default")}})).NetworkAcls; len(named) != 1 {
		t.Errorf("by tag: %+v", named)
	}
	vpc := cloudtest.Must[*awsec2.DescribeVpcsOutput](t)(l.DescribeVpcs(ctx, &awsec2.DescribeVpcsInput{VpcIds: []string{s.VPC}})).Vpcs[0]
	options := cloudtest.Must[*awsec2.DescribeDhcpOptionsOutput](t)(l.DescribeDhcpOptions(ctx, &awsec2.DescribeDhcpOptionsInput{DhcpOptionsIds: []string{*vpc.DhcpOptionsId}})).DhcpOptions
	if len(options) != 1 || len(options[0].DhcpConfigurations) != 2 || *options[0].DhcpConfigurations[0].Values[0].Value != "ec2.internal" {
		t.Errorf("DHCP options: %+v", options)
	}
	if nat := cloudtest.Must[*awsec2.DescribeNatGatewaysOutput](t)(l.DescribeNatGateways(ctx, &awsec2.DescribeNatGatewaysInput{Filter: []types.Filter{cloudtest.Filter("vpc-id", s.VPC)}})).NatGateways; len(nat) != 0 {
		t.Errorf("NAT gateways: %+v", nat)
	}
	_, err := l.DescribeNatGateways(ctx, &awsec2.DescribeNatGatewaysInput{NatGatewayIds: []string{"nat-0123456789abcdef0"}})
	cloudtest.Refused(t, err, "NatGatewayNotFound")
	if e := cloudtest.Must[*awsec2.DescribeVpcEndpointsOutput](t)(l.DescribeVpcEndpoints(ctx, &awsec2.DescribeVpcEndpointsInput{Filters: []types.Filter{cloudtest.Filter("vpc-id", s.VPC)}})).VpcEndpoints; len(e) != 0 {
		t.Errorf("VPC endpoints: %+v", e)
	}
	_, err = l.DescribeVpcEndpoints(ctx, &awsec2.DescribeVpcEndpointsInput{Filters: []types.Filter{cloudtest.Filter("colour", "red")}})
	cloudtest.Refused(t, err, "InvalidParameterValue")
	_, err = l.DescribeVpcClassicLink(ctx, &awsec2.DescribeVpcClassicLinkInput{VpcIds: []string{s.VPC}})
	cloudtest.Refused(t, err, "UnsupportedOperation")
	_, err = l.DescribeVpcClassicLinkDnsSupport(ctx, &awsec2.DescribeVpcClassicLinkDnsSupportInput{VpcIds: []string{s.VPC}})
	cloudtest.Refused(t, err, "UnsupportedOperation")

	i := l.Run(t, s.RunInput())
	ids := []string{*i.InstanceId}
	if p := cloudtest.Must[*awsec2.DescribeIamInstanceProfileAssociationsOutput](t)(l.DescribeIamInstanceProfileAssociations(ctx, &awsec2.DescribeIamInstanceProfileAssociationsInput{Filters: []types.Filter{cloudtest.Filter("instance-id", ids[0])}})).IamInstanceProfileAssociations; len(p) != 0 {
		t.Errorf("instance profiles: %+v", p)
	}
	credits := cloudtest.Must[*awsec2.DescribeInstanceCreditSpecificationsOutput](t)(l.DescribeInstanceCreditSpecifications(ctx, &awsec2.DescribeInstanceCreditSpecificationsInput{InstanceIds: ids})).InstanceCreditSpecifications
	if len(credits) != 1 || *credits[0].CpuCredits != "unlimited" {
		t.Errorf("credits: %+v", credits)
	}
	for on, answer := range map[bool]types.MonitoringState{true: types.MonitoringStatePending, false: types.MonitoringStateDisabling} {
		var got []types.InstanceMonitoring
		if on {
			got = cloudtest.Must[*awsec2.MonitorInstancesOutput](t)(l.MonitorInstances(ctx, &awsec2.MonitorInstancesInput{InstanceIds: ids})).InstanceMonitorings
		} else {
			got = cloudtest.Must[*awsec2.UnmonitorInstancesOutput](t)(l.UnmonitorInstances(ctx, &awsec2.UnmonitorInstancesInput{InstanceIds: ids})).InstanceMonitorings
		}
		if len(got) != 1 || got[0].Monitoring.State != answer {
			t.Errorf("monitoring %t: %+v", on, got)
		}
		if now := l.Instance(t, ids[0]).Monitoring.State == types.MonitoringStateEnabled; now != on {
			t.Errorf("monitoring is %t, want %t", now, on)
		}
	}
}

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
		{"unknown snapshot", "InvalidSnapshot.NotFound", func(in *awsec2.CreateVolumeInput) { in.SnapshotId = aws.String("snap-0123456789abcdef0") }},
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
