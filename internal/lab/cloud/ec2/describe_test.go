package ec2_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
)

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

func TestInstanceFilters(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	for n := range 3 {
		in := s.RunInput()
		in.PrivateIpAddress = aws.String(fmt.Sprintf("10.240.0.%d", 10+n))
		in.TagSpecifications = cloudtest.Tags(types.ResourceTypeInstance, "Name", fmt.Sprintf("controller-%d", n), "role", "controller")
		l.Run(t, in)
	}
	in := s.RunInput()
	in.PrivateIpAddress, in.InstanceType = aws.String("10.240.0.20"), types.InstanceTypeT3Large
	in.TagSpecifications = cloudtest.Tags(types.ResourceTypeInstance, "Name", "worker*0", "pool", "")
	worker := l.Run(t, in)
	cloudtest.Must[*awsec2.StopInstancesOutput](t)(l.StopInstances(ctx, &awsec2.StopInstancesInput{InstanceIds: []string{*worker.InstanceId}}))
	l.Await(t, *worker.InstanceId, types.InstanceStateNameStopped)

	for _, tc := range []struct {
		name    string
		filters []types.Filter
		want    int
	}{
		{"none", nil, 4},
		{"tag", []types.Filter{cloudtest.Filter("tag:role", "controller")}, 3},
		{"tag with two values", []types.Filter{cloudtest.Filter("tag:Name", "controller-0", "controller-2")}, 2},
		{"tag with a star", []types.Filter{cloudtest.Filter("tag:Name", "controller-*")}, 3},
		{"tag with a question mark", []types.Filter{cloudtest.Filter("tag:Name", "controller-?")}, 3},
		{"tag with an escaped star", []types.Filter{cloudtest.Filter("tag:Name", `worker\*0`)}, 1},
		{"tag key", []types.Filter{cloudtest.Filter("tag-key", "pool")}, 1},
		{"empty tag value", []types.Filter{cloudtest.Filter("tag:pool", "")}, 1},
		{"tag nobody has", []types.Filter{cloudtest.Filter("tag:nobody", "*")}, 0},
		{"state", []types.Filter{cloudtest.Filter("instance-state-name", "running", "pending")}, 3},
		{"state code", []types.Filter{cloudtest.Filter("instance-state-code", "80")}, 1},
		{"address", []types.Filter{cloudtest.Filter("private-ip-address", "10.240.0.1?")}, 3},
		{"VPC", []types.Filter{cloudtest.Filter("vpc-id", s.VPC)}, 4},
		{"other VPC", []types.Filter{cloudtest.Filter("vpc-id", "vpc-1")}, 0},
		{"subnet and type", []types.Filter{cloudtest.Filter("subnet-id", s.Subnet), cloudtest.Filter("instance-type", "t3.large")}, 1},
		{"group name", []types.Filter{cloudtest.Filter("instance.group-name", "web")}, 4},
		{"two filters that exclude each other", []types.Filter{cloudtest.Filter("tag:role", "controller"), cloudtest.Filter("instance-type", "t3.large")}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out := cloudtest.Must[*awsec2.DescribeInstancesOutput](t)(l.DescribeInstances(ctx, &awsec2.DescribeInstancesInput{Filters: tc.filters}))
			got := 0
			for _, r := range out.Reservations {
				got += len(r.Instances)
			}
			if got != tc.want {
				t.Errorf("found %d instances, want %d", got, tc.want)
			}
		})
	}
	_, err := l.DescribeInstances(ctx, &awsec2.DescribeInstancesInput{Filters: []types.Filter{cloudtest.Filter("colour", "red")}})
	cloudtest.Refused(t, err, "InvalidParameterValue")
	_, err = l.DescribeInstances(ctx, &awsec2.DescribeInstancesInput{InstanceIds: []string{"i-00000000000000000"}})
	cloudtest.Refused(t, err, "InvalidInstanceID.NotFound")
	_, err = l.DescribeInstances(ctx, &awsec2.DescribeInstancesInput{InstanceIds: []string{"i-x"}})
	cloudtest.Refused(t, err, "InvalidInstanceID.Malformed")
	status := cloudtest.Must[*awsec2.DescribeInstanceStatusOutput](t)(l.DescribeInstanceStatus(ctx, &awsec2.DescribeInstanceStatusInput{}))
	all := cloudtest.Must[*awsec2.DescribeInstanceStatusOutput](t)(l.DescribeInstanceStatus(ctx, &awsec2.DescribeInstanceStatusInput{IncludeAllInstances: aws.Bool(true)}))
	if len(status.InstanceStatuses) != 3 || len(all.InstanceStatuses) != 4 {
		t.Errorf("%d statuses of running and %d of all instances", len(status.InstanceStatuses), len(all.InstanceStatuses))
	}
}

func TestPagination(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	in := s.RunInput()
	in.MinCount, in.MaxCount = aws.Int32(12), aws.Int32(12)
	cloudtest.Must[*awsec2.RunInstancesOutput](t)(l.RunInstances(ctx, in))

	var sizes []int
	seen := map[string]bool{}
	pages := awsec2.NewDescribeInstancesPaginator(l, &awsec2.DescribeInstancesInput{MaxResults: aws.Int32(5)})
	for pages.HasMorePages() {
		page := cloudtest.Must[*awsec2.DescribeInstancesOutput](t)(pages.NextPage(ctx))
		n := 0
		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				seen[*i.InstanceId] = true
				n++
			}
		}
		sizes = append(sizes, n)
	}
	if !slices.Equal(sizes, []int{5, 5, 2}) || len(seen) != 12 {
		t.Errorf("pages of %v with %d different instances", sizes, len(seen))
	}
	_, err := l.DescribeInstances(ctx, &awsec2.DescribeInstancesInput{MaxResults: aws.Int32(4)})
	cloudtest.Refused(t, err, "InvalidParameterValue")
	_, err = l.DescribeInstances(ctx, &awsec2.DescribeInstancesInput{MaxResults: aws.Int32(1001)})
	cloudtest.Refused(t, err, "InvalidParameterValue")
	_, err = l.DescribeInstances(ctx, &awsec2.DescribeInstancesInput{NextToken: aws.String("page two")})
	cloudtest.Refused(t, err, "InvalidNextToken")
	for id := range seen {
		_, err = l.DescribeInstances(ctx, &awsec2.DescribeInstancesInput{InstanceIds: []string{id}, MaxResults: aws.Int32(5)})
		cloudtest.Refused(t, err, "InvalidParameterCombination")
		break
	}
}

func TestCatalogue(t *testing.T) {
	l := cloudtest.New(t)
	ctx := t.Context()
	images := cloudtest.Must[*awsec2.DescribeImagesOutput](t)(l.DescribeImages(ctx, &awsec2.DescribeImagesInput{
		Owners: []string{"136693071363"}, Filters: []types.Filter{cloudtest.Filter("name", "debian-12-amd64-*"), cloudtest.Filter("architecture", "x86_64")},
	})).Images
	if len(images) != 1 || *images[0].ImageId != cloudtest.OlderImage || images[0].State != types.ImageStateAvailable {
		t.Errorf("images: %+v", images)
	}
	if all := cloudtest.Must[*awsec2.DescribeImagesOutput](t)(l.DescribeImages(ctx, &awsec2.DescribeImagesInput{Owners: []string{"136693071363"}})).Images; len(all) != 2 {
		t.Errorf("Debian's images: %+v", all)
	}
	if one := cloudtest.Must[*awsec2.DescribeImagesOutput](t)(l.DescribeImages(ctx, &awsec2.DescribeImagesInput{ImageIds: []string{cloudtest.Image}})).Images; len(one) != 1 || *one[0].ImageId != cloudtest.Image {
		t.Errorf("the image asked for by id: %+v", one)
	}
	if none := cloudtest.Must[*awsec2.DescribeImagesOutput](t)(l.DescribeImages(ctx, &awsec2.DescribeImagesInput{Owners: []string{"self"}})).Images; len(none) != 0 {
		t.Errorf("own images: %+v", none)
	}
	const mine = "ami-0000000000000000f"
	l.Account.Publish(ec2.Image{ID: mine, Name: "mine", Owner: cloud.DefaultAccountID})
	for _, own := range []*awsec2.DescribeImagesInput{{Owners: []string{"self"}}, {Filters: []types.Filter{cloudtest.Filter("is-public", "false")}}} {
		found := cloudtest.Must[*awsec2.DescribeImagesOutput](t)(l.DescribeImages(ctx, own)).Images
		if len(found) != 1 || *found[0].ImageId != mine || *found[0].Public || *found[0].OwnerId != cloud.DefaultAccountID || *found[0].ImageLocation != cloud.DefaultAccountID+"/mine" {
			t.Errorf("own images: %+v", found)
		}
	}
	_, err := l.DescribeImages(ctx, &awsec2.DescribeImagesInput{Owners: []string{"debian"}})
	cloudtest.Refused(t, err, "InvalidUserID.Malformed")
	zones := cloudtest.Must[*awsec2.DescribeAvailabilityZonesOutput](t)(l.DescribeAvailabilityZones(ctx, &awsec2.DescribeAvailabilityZonesInput{})).AvailabilityZones
	if len(zones) != 6 || *zones[1].ZoneName != "us-east-1a" || *zones[1].ZoneId != "use1-az1" {
		t.Errorf("zones: %+v", zones)
	}
	if regions := cloudtest.Must[*awsec2.DescribeRegionsOutput](t)(l.DescribeRegions(ctx, &awsec2.DescribeRegionsInput{})).Regions; len(regions) != 1 {
		t.Errorf("regions: %+v", regions)
	}
	it := cloudtest.Must[*awsec2.DescribeInstanceTypesOutput](t)(l.DescribeInstanceTypes(ctx, &awsec2.DescribeInstanceTypesInput{InstanceTypes: []types.InstanceType{"t3.medium"}})).InstanceTypes
	if len(it) != 1 || *it[0].VCpuInfo.DefaultVCpus != 2 || *it[0].VCpuInfo.DefaultCores != 1 || *it[0].MemoryInfo.SizeInMiB != 4096 {
		t.Errorf("t3.medium: %+v", it)
	}
	_, err = l.DescribeInstanceTypes(ctx, &awsec2.DescribeInstanceTypesInput{InstanceTypes: []types.InstanceType{"t9.medium"}})
	cloudtest.Refused(t, err, "InvalidInstanceType")
	offered := cloudtest.Must[*awsec2.DescribeInstanceTypeOfferingsOutput](t)(l.DescribeInstanceTypeOfferings(ctx, &awsec2.DescribeInstanceTypeOfferingsInput{
		LocationType: types.LocationTypeAvailabilityZone, Filters: []types.Filter{cloudtest.Filter("instance-type", "t3.medium")},
	})).InstanceTypeOfferings
	if len(offered) != 5 {
		t.Errorf("t3.medium is offered in %d zones", len(offered))
	}
	attributes := cloudtest.Must[*awsec2.DescribeAccountAttributesOutput](t)(l.DescribeAccountAttributes(ctx, &awsec2.DescribeAccountAttributesInput{})).AccountAttributes
	if i := slices.IndexFunc(attributes, func(a types.AccountAttribute) bool { return *a.AttributeName == "supported-platforms" }); i < 0 || *attributes[i].AttributeValues[0].AttributeValue != "VPC" {
		t.Errorf("account: %+v", attributes)
	}
}

func TestUnknownAction(t *testing.T) {
	l := cloudtest.New(t)
	_, err := l.CreateVpcEndpoint(t.Context(), &awsec2.CreateVpcEndpointInput{VpcId: aws.String("vpc-1")})
	cloudtest.Refused(t, err, "InvalidAction")
}
