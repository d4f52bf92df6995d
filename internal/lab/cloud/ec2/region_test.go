package ec2_test

import (
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

// TestZoneOfSubnet checks that everything of an instance is in the zone of its subnet.
func TestZoneOfSubnet(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	for n, zone := range []string{"us-east-1a", "us-east-1b", "us-east-1c", "us-east-1e"} {
		found := cloudtest.Must[*awsec2.DescribeAvailabilityZonesOutput](t)(l.DescribeAvailabilityZones(ctx, &awsec2.DescribeAvailabilityZonesInput{Filters: []types.Filter{cloudtest.Filter("zone-name", zone), cloudtest.Filter("state", "available")}})).AvailabilityZones
		if len(found) != 1 {
			t.Fatalf("%s: %+v", zone, found)
		}
		in := s.RunInput()
		in.SubnetId = cloudtest.Must[*awsec2.CreateSubnetOutput](t)(l.CreateSubnet(ctx, &awsec2.CreateSubnetInput{
			VpcId: &s.VPC, CidrBlock: aws.String(fmt.Sprintf("10.240.1%d.0/24", n)), AvailabilityZoneId: found[0].ZoneId,
		})).Subnet.SubnetId
		in.InstanceType = types.InstanceTypeM5Large
		in.BlockDeviceMappings = []types.BlockDeviceMapping{{DeviceName: aws.String("/dev/sdf"), Ebs: &types.EbsBlockDevice{VolumeSize: aws.Int32(1)}}}
		i := l.Run(t, in)
		volumes := cloudtest.Must[*awsec2.DescribeVolumesOutput](t)(l.DescribeVolumes(ctx, &awsec2.DescribeVolumesInput{Filters: []types.Filter{cloudtest.Filter("attachment.instance-id", *i.InstanceId), cloudtest.Filter("availability-zone", zone)}})).Volumes
		interfaces := cloudtest.Must[*awsec2.DescribeNetworkInterfacesOutput](t)(l.DescribeNetworkInterfaces(ctx, &awsec2.DescribeNetworkInterfacesInput{Filters: []types.Filter{cloudtest.Filter("attachment.instance-id", *i.InstanceId), cloudtest.Filter("availability-zone", zone)}})).NetworkInterfaces
		if *i.Placement.AvailabilityZone != zone || len(volumes) != 2 || len(interfaces) != 1 {
			t.Errorf("%s: the instance is in %s, %d volumes and %d interfaces in its subnet's", zone, *i.Placement.AvailabilityZone, len(volumes), len(interfaces))
		}
		elsewhere := []string{"us-east-1b", "us-east-1c", "us-east-1e", "us-east-1a"}[n]
		volume := cloudtest.Must[*awsec2.CreateVolumeOutput](t)(l.CreateVolume(ctx, &awsec2.CreateVolumeInput{AvailabilityZone: &elsewhere, Size: aws.Int32(1)}))
		_, err := l.AttachVolume(ctx, &awsec2.AttachVolumeInput{VolumeId: volume.VolumeId, InstanceId: i.InstanceId, Device: aws.String("/dev/sdg")})
		cloudtest.Refused(t, err, "InvalidVolume.ZoneMismatch")
	}
	_, err := l.DescribeAvailabilityZones(ctx, &awsec2.DescribeAvailabilityZonesInput{ZoneIds: []string{"use1-az9"}})
	cloudtest.Refused(t, err, "InvalidParameterValue")
}

// TestOtherZones checks a Local Zone and a constrained zone. Both offer types.
func TestOtherZones(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	const local, constrained = "us-east-1-lax-1a", "us-east-1d"
	offers := cloudtest.Must[*awsec2.DescribeInstanceTypeOfferingsOutput](t)(l.DescribeInstanceTypeOfferings(ctx, &awsec2.DescribeInstanceTypeOfferingsInput{
		LocationType: types.LocationTypeAvailabilityZone, Filters: []types.Filter{cloudtest.Filter("instance-type", "t3.medium")}})).InstanceTypeOfferings
	if len(offers) != 5 || *offers[0].Location != local || *offers[3].Location != constrained {
		t.Errorf("%d zones offer it", len(offers))
	}
	states := map[string]string{}
	for _, z := range cloudtest.Must[*awsec2.DescribeAvailabilityZonesOutput](t)(l.DescribeAvailabilityZones(ctx, &awsec2.DescribeAvailabilityZonesInput{})).AvailabilityZones {
		states[*z.ZoneName] = fmt.Sprint(*z.ZoneType, " ", z.State, " ", *z.NetworkBorderGroup, " ", *z.ZoneId)
	}
	if states[local] != "local-zone available us-east-1-lax-1 use1-lax1-az1" || states[constrained] != "availability-zone constrained us-east-1 use1-az4" || len(states) != 6 {
		t.Errorf("%q", states)
	}
	subnet := func(cidr, zone string) (*awsec2.CreateSubnetOutput, error) {
		return l.CreateSubnet(ctx, &awsec2.CreateSubnetInput{VpcId: &s.VPC, CidrBlock: &cidr, AvailabilityZone: &zone})
	}
	_, err := subnet("10.240.10.0/24", constrained)
	cloudtest.Refused(t, err, "InvalidParameterValue")
	in := s.RunInput()
	in.SubnetId = cloudtest.Must[*awsec2.CreateSubnetOutput](t)(subnet("10.240.11.0/24", local)).Subnet.SubnetId
	there := l.Run(t, in)
	l.Await(t, *there.InstanceId, types.InstanceStateNameRunning)
	for _, group := range []string{"", "us-east-1-lax-1"} {
		a := cloudtest.Must[*awsec2.AllocateAddressOutput](t)(l.AllocateAddress(ctx, &awsec2.AllocateAddressInput{NetworkBorderGroup: &group}))
		_, asInstance := l.AssociateAddress(ctx, &awsec2.AssociateAddressInput{AllocationId: a.AllocationId, InstanceId: there.InstanceId})
		other := &s.Subnet
		if group == "" {
			other = in.SubnetId
			cloudtest.Refused(t, asInstance, "OperationNotPermitted")
		} else if asInstance != nil {
			t.Error(asInstance)
		}
		_, err := l.CreateNatGateway(ctx, &awsec2.CreateNatGatewayInput{AllocationId: a.AllocationId, SubnetId: other})
		cloudtest.Refused(t, err, "OperationNotPermitted")
	}
}

// TestPublicAddressAtLaunch checks that the request decides, and the subnet if the request says nothing.
func TestPublicAddressAtLaunch(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	for _, mapped := range []bool{false, true} {
		cloudtest.Must[*awsec2.ModifySubnetAttributeOutput](t)(l.ModifySubnetAttribute(ctx, &awsec2.ModifySubnetAttributeInput{SubnetId: &s.Subnet, MapPublicIpOnLaunch: &types.AttributeBooleanValue{Value: &mapped}}))
		for _, tc := range []struct {
			asked *bool
			want  bool
		}{{nil, mapped}, {aws.Bool(true), true}, {aws.Bool(false), false}} {
			in := s.RunInput()
			in.NetworkInterfaces = []types.InstanceNetworkInterfaceSpecification{{
				DeviceIndex: aws.Int32(0), SubnetId: in.SubnetId, Groups: in.SecurityGroupIds, AssociatePublicIpAddress: tc.asked,
			}}
			in.SubnetId, in.SecurityGroupIds = nil, nil
			i := l.Run(t, in)
			public := func() bool { return l.Instance(t, *i.InstanceId).PublicIpAddress != nil }
			if public() != tc.want {
				t.Errorf("the subnet says %v, the request %v: a public address is %v", mapped, aws.ToBool(tc.asked), public())
			}
			// The subnet's attribute changes nothing for an instance that exists, also when it starts again.
			other := !mapped
			cloudtest.Must[*awsec2.ModifySubnetAttributeOutput](t)(l.ModifySubnetAttribute(ctx, &awsec2.ModifySubnetAttributeInput{SubnetId: &s.Subnet, MapPublicIpOnLaunch: &types.AttributeBooleanValue{Value: &other}}))
			cloudtest.Must[*awsec2.StopInstancesOutput](t)(l.StopInstances(ctx, &awsec2.StopInstancesInput{InstanceIds: []string{*i.InstanceId}}))
			l.Await(t, *i.InstanceId, types.InstanceStateNameStopped)
			cloudtest.Must[*awsec2.StartInstancesOutput](t)(l.StartInstances(ctx, &awsec2.StartInstancesInput{InstanceIds: []string{*i.InstanceId}}))
			l.Await(t, *i.InstanceId, types.InstanceStateNameRunning)
			if public() != tc.want {
				t.Errorf("after another start: the subnet said %v, the request %v: a public address is %v", mapped, aws.ToBool(tc.asked), public())
			}
			cloudtest.Must[*awsec2.ModifySubnetAttributeOutput](t)(l.ModifySubnetAttribute(ctx, &awsec2.ModifySubnetAttributeInput{SubnetId: &s.Subnet, MapPublicIpOnLaunch: &types.AttributeBooleanValue{Value: &mapped}}))
		}
	}
}

// TestVolumeStatus asks for what the EBS CSI driver asks before it says that it is ready and that a volume is.
func TestVolumeStatus(t *testing.T) {
	l := cloudtest.New(t)
	ctx := t.Context()
	_, err := l.DescribeAvailabilityZones(ctx, &awsec2.DescribeAvailabilityZonesInput{DryRun: aws.Bool(true)})
	cloudtest.Refused(t, err, "DryRunOperation")
	i := l.Run(t, l.NewSite(t).RunInput())
	zone, root := i.Placement.AvailabilityZone, *i.BlockDeviceMappings[0].Ebs.VolumeId
	var data string
	for range 6 {
		data = *cloudtest.Must[*awsec2.CreateVolumeOutput](t)(l.CreateVolume(ctx, &awsec2.CreateVolumeInput{AvailabilityZone: zone, Size: aws.Int32(1), VolumeType: types.VolumeTypeGp3})).VolumeId
	}
	for code, in := range map[string]awsec2.DescribeVolumeStatusInput{
		"InvalidVolume.NotFound":      {VolumeIds: []string{"vol-0123456789abcdef0"}},
		"InvalidParameterValue":       {MaxResults: aws.Int32(4)},
		"InvalidParameterCombination": {MaxResults: aws.Int32(5), VolumeIds: []string{data}},
		"DryRunOperation":             {DryRun: aws.Bool(true)},
	} {
		_, err := l.DescribeVolumeStatus(ctx, &in)
		cloudtest.Refused(t, err, code)
	}
	_, err = l.DescribeVolumeStatus(ctx, &awsec2.DescribeVolumeStatusInput{Filters: []types.Filter{cloudtest.Filter("volume-id", data)}})
	cloudtest.Refused(t, err, "InvalidParameterValue")

	pages, seen := awsec2.NewDescribeVolumeStatusPaginator(l, &awsec2.DescribeVolumeStatusInput{MaxResults: aws.Int32(5)}), 0
	for pages.HasMorePages() {
		seen += len(cloudtest.Must[*awsec2.DescribeVolumeStatusOutput](t)(pages.NextPage(ctx)).VolumeStatuses)
	}
	if seen != 7 {
		t.Errorf("%d volumes on all pages, want 7", seen)
	}
	status := func(id string) (types.VolumeStatusItem, map[types.VolumeStatusName]string) {
		one := cloudtest.Must[*awsec2.DescribeVolumeStatusOutput](t)(l.DescribeVolumeStatus(ctx, &awsec2.DescribeVolumeStatusInput{VolumeIds: []string{id}})).VolumeStatuses[0]
		checks := map[types.VolumeStatusName]string{}
		for _, d := range one.VolumeStatus.Details {
			checks[d.Name] = *d.Status
		}
		return one, checks
	}
	if s, checks := status(data); s.VolumeStatus.Status != types.VolumeStatusInfoStatusOk || *s.AvailabilityZone != *zone || *s.AvailabilityZoneId != "use1-az1" || s.InitializationStatusDetails != nil ||
		len(checks) != 2 || checks["io-enabled"] != "passed" || checks["io-performance"] != "not-applicable" {
		t.Errorf("an empty volume: %+v, %v", s, checks)
	}
	if s, checks := status(root); *s.InitializationStatusDetails.Progress != 100 || checks["initialization-state"] != "completed" || checks["io-performance"] != "normal" {
		t.Errorf("a root volume: %+v, %v", s, checks)
	}
	for filter, want := range map[[2]string]int{
		{"availability-zone", "us-east-1b"}: 0, {"availability-zone", *zone}: 7, {"volume-status.status", "ok"}: 7, {"volume-status.details-status", "normal"}: 1,
		{"volume-status.details-name", "initialization-state"}: 1, {"event.event-type", "*"}: 0, {"volume-status.status", "impaired"}: 0,
	} {
		out := cloudtest.Must[*awsec2.DescribeVolumeStatusOutput](t)(l.DescribeVolumeStatus(ctx, &awsec2.DescribeVolumeStatusInput{Filters: []types.Filter{cloudtest.Filter(filter[0], filter[1])}}))
		if len(out.VolumeStatuses) != want {
			t.Errorf("%s=%s: %d volumes, want %d", filter[0], filter[1], len(out.VolumeStatuses), want)
		}
	}
}
