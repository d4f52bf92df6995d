package ec2_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
)

// somewhere is a launch that names no subnet.
func somewhere(zone *string) *awsec2.RunInstancesInput {
	return &awsec2.RunInstancesInput{
		ImageId: aws.String(cloudtest.Image), InstanceType: types.InstanceTypeT3Small, MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
		Placement: &types.Placement{AvailabilityZone: zone},
	}
}

// TestDefaultVPC: an account begins without a default VPC, can make one, launch into it, and delete it.
func TestDefaultVPC(t *testing.T) {
	l := cloudtest.New(t)
	ctx := t.Context()
	s := l.NewSite(t)
	create := func(dry bool) (*awsec2.CreateDefaultVpcOutput, error) {
		return l.CreateDefaultVpc(ctx, &awsec2.CreateDefaultVpcInput{DryRun: &dry})
	}
	group := func() (*awsec2.CreateSecurityGroupOutput, error) {
		return l.CreateSecurityGroup(ctx, &awsec2.CreateSecurityGroupInput{GroupName: aws.String("builders"), Description: aws.String("builders")})
	}
	vpcs := func(isDefault string) []types.Vpc {
		return cloudtest.Must[*awsec2.DescribeVpcsOutput](t)(l.DescribeVpcs(ctx, &awsec2.DescribeVpcsInput{Filters: []types.Filter{cloudtest.Filter("is-default", isDefault)}})).Vpcs
	}
	attribute := func() string {
		out := cloudtest.Must[*awsec2.DescribeAccountAttributesOutput](t)(l.DescribeAccountAttributes(ctx, &awsec2.DescribeAccountAttributesInput{AttributeNames: []types.AccountAttributeName{types.AccountAttributeNameDefaultVpc}}))
		return *out.AccountAttributes[0].AttributeValues[0].AttributeValue
	}
	_, err := l.RunInstances(ctx, somewhere(nil))
	cloudtest.Refused(t, err, "VPCIdNotSpecified")
	_, err = group()
	cloudtest.Refused(t, err, "VPCIdNotSpecified")
	_, err = create(true)
	cloudtest.Refused(t, err, "DryRunOperation")
	if len(vpcs("true")) != 0 || attribute() != "none" {
		t.Errorf("a new account has a default VPC: %v, %s", vpcs("true"), attribute())
	}

	made := *cloudtest.Must[*awsec2.CreateDefaultVpcOutput](t)(create(false)).Vpc
	_, err = create(false)
	cloudtest.Refused(t, err, "DefaultVpcAlreadyExists")
	if *made.CidrBlock != "172.31.0.0/16" || !*made.IsDefault || attribute() != *made.VpcId {
		t.Errorf("made %+v", made)
	}
	if found, others := vpcs("true"), vpcs("false"); len(found) != 1 || *found[0].VpcId != *made.VpcId || len(others) != 1 || *others[0].VpcId != s.VPC {
		t.Errorf("default %v, others %v", found, others)
	}
	subnets := cloudtest.Must[*awsec2.DescribeSubnetsOutput](t)(l.DescribeSubnets(ctx, &awsec2.DescribeSubnetsInput{Filters: []types.Filter{cloudtest.Filter("default-for-az", "true")}})).Subnets
	var got []string
	for _, sub := range subnets {
		got = append(got, fmt.Sprintf("%s %s %t %t", *sub.AvailabilityZone, *sub.CidrBlock, *sub.DefaultForAz, *sub.MapPublicIpOnLaunch))
	}
	slices.Sort(got)
	if want := []string{"us-east-1a 172.31.0.0/20 true true", "us-east-1b 172.31.16.0/20 true true", "us-east-1c 172.31.32.0/20 true true", "us-east-1e 172.31.48.0/20 true true"}; !slices.Equal(got, want) {
		t.Errorf("subnets %q", got)
	}

	refusesEmpty(t, l)
	builders := *cloudtest.Must[*awsec2.CreateSecurityGroupOutput](t)(group()).GroupId
	unknown := cloudtest.Must[*awsec2.RevokeSecurityGroupIngressOutput](t)(l.RevokeSecurityGroupIngress(ctx, &awsec2.RevokeSecurityGroupIngressInput{
		GroupId: &builders, IpProtocol: aws.String("tcp"), FromPort: aws.Int32(22), ToPort: aws.Int32(22), CidrIp: aws.String("10.0.0.0/8"),
	})).UnknownIpPermissions
	if len(unknown) != 1 || *unknown[0].FromPort != 22 || *unknown[0].IpRanges[0].CidrIp != "10.0.0.0/8" {
		t.Errorf("unknown %+v", unknown)
	}
	in := somewhere(aws.String("us-east-1b"))
	in.SecurityGroupIds = []string{builders}
	i := l.Run(t, in)
	if *i.VpcId != *made.VpcId || *i.Placement.AvailabilityZone != "us-east-1b" || i.PublicIpAddress == nil || i.PublicDnsName == nil || *i.SecurityGroups[0].GroupId != builders {
		t.Errorf("launched %+v", i)
	}
	with := func(group string) *awsec2.RunInstancesInput {
		in := somewhere(nil)
		in.NetworkInterfaces = []types.InstanceNetworkInterfaceSpecification{{DeviceIndex: aws.Int32(0), Groups: []string{group}, AssociatePublicIpAddress: aws.Bool(false)}}
		return in
	}
	if hidden := l.Run(t, with(builders)); *hidden.VpcId != *made.VpcId || hidden.PublicIpAddress != nil {
		t.Errorf("launched %+v", hidden)
	}
	_, err = l.RunInstances(ctx, with(s.Group))
	cloudtest.Refused(t, err, "InvalidParameter")
	_, err = l.RunInstances(ctx, somewhere(aws.String("us-east-1d")))
	cloudtest.Refused(t, err, "InvalidInput")

	removeDefaultVPC(t, l, made)
	if len(vpcs("true")) != 0 || attribute() != "none" {
		t.Errorf("it is still there: %v, %s", vpcs("true"), attribute())
	}
	cloudtest.Must[*awsec2.CreateDefaultVpcOutput](t)(create(false))
}

// refusesEmpty: an empty value does not stand for the default VPC.
func refusesEmpty(t *testing.T, l *cloudtest.Lab) {
	t.Helper()
	at, by := somewhere(nil), somewhere(nil)
	at.SubnetId = aws.String("")
	by.NetworkInterfaces = []types.InstanceNetworkInterfaceSpecification{{DeviceIndex: aws.Int32(0), SubnetId: aws.String("")}}
	for _, in := range []*awsec2.RunInstancesInput{at, by} {
		_, err := l.RunInstances(t.Context(), in)
		cloudtest.Refused(t, err, "InvalidParameterValue")
	}
	_, err := l.CreateSecurityGroup(t.Context(), &awsec2.CreateSecurityGroupInput{GroupName: aws.String("web"), Description: aws.String("web"), VpcId: aws.String("")})
	cloudtest.Refused(t, err, "InvalidParameterValue")
}

// TestDefaultVPCAppears: while a new default VPC is hidden, nothing can be made in it, and there cannot be a second one.
func TestDefaultVPCAppears(t *testing.T) {
	l := cloudtest.New(t)
	ctx := t.Context()
	l.Fault(t, cloudtest.Fields{"kind": "eventual", "action": "CreateDefaultVpc", "milliseconds": 2000})
	create := func() error {
		_, err := l.CreateDefaultVpc(ctx, &awsec2.CreateDefaultVpcInput{})
		return err
	}
	cloudtest.Refused(t, create(), "")
	cloudtest.Refused(t, create(), "DefaultVpcAlreadyExists")
	_, err := l.RunInstances(ctx, somewhere(nil))
	cloudtest.Refused(t, err, "VPCIdNotSpecified")
	_, err = l.CreateSecurityGroup(ctx, &awsec2.CreateSecurityGroupInput{GroupName: aws.String("web"), Description: aws.String("web")})
	cloudtest.Refused(t, err, "VPCIdNotSpecified")
	l.Clock.Advance(3 * time.Second)
	l.Run(t, somewhere(nil))
}

// removeDefaultVPC deletes a default VPC with everything in it. On the way it finds each dependency refused, and a launch without a
// default subnet.
func removeDefaultVPC(t *testing.T, l *cloudtest.Lab, v types.Vpc) {
	t.Helper()
	ctx := t.Context()
	of := []types.Filter{cloudtest.Filter("vpc-id", *v.VpcId)}
	tables := cloudtest.Must[*awsec2.DescribeRouteTablesOutput](t)(l.DescribeRouteTables(ctx, &awsec2.DescribeRouteTablesInput{Filters: of})).RouteTables
	gateway := cloudtest.Must[*awsec2.DescribeInternetGatewaysOutput](t)(l.DescribeInternetGateways(ctx, &awsec2.DescribeInternetGatewaysInput{Filters: []types.Filter{cloudtest.Filter("attachment.vpc-id", *v.VpcId)}})).InternetGateways[0].InternetGatewayId
	if len(tables) != 1 || !slices.ContainsFunc(tables[0].Routes, func(r types.Route) bool {
		return *r.DestinationCidrBlock == "0.0.0.0/0" && aws.ToString(r.GatewayId) == *gateway
	}) {
		t.Errorf("route tables %+v", tables)
	}
	inUse := func() {
		t.Helper()
		_, err := l.DeleteVpc(ctx, &awsec2.DeleteVpcInput{VpcId: v.VpcId})
		cloudtest.Refused(t, err, "DependencyViolation")
	}
	for _, r := range cloudtest.Must[*awsec2.DescribeInstancesOutput](t)(l.DescribeInstances(ctx, &awsec2.DescribeInstancesInput{Filters: of})).Reservations {
		for _, i := range r.Instances {
			cloudtest.Must[*awsec2.TerminateInstancesOutput](t)(l.TerminateInstances(ctx, &awsec2.TerminateInstancesInput{InstanceIds: []string{*i.InstanceId}}))
			l.Await(t, *i.InstanceId, types.InstanceStateNameTerminated)
		}
	}
	inUse()
	for _, sub := range cloudtest.Must[*awsec2.DescribeSubnetsOutput](t)(l.DescribeSubnets(ctx, &awsec2.DescribeSubnetsInput{Filters: of})).Subnets {
		cloudtest.Must[*awsec2.DeleteSubnetOutput](t)(l.DeleteSubnet(ctx, &awsec2.DeleteSubnetInput{SubnetId: sub.SubnetId}))
	}
	_, err := l.RunInstances(ctx, somewhere(nil))
	cloudtest.Refused(t, err, "MissingInput")
	inUse()
	cloudtest.Must[*awsec2.DetachInternetGatewayOutput](t)(l.DetachInternetGateway(ctx, &awsec2.DetachInternetGatewayInput{InternetGatewayId: gateway, VpcId: v.VpcId}))
	cloudtest.Must[*awsec2.DeleteInternetGatewayOutput](t)(l.DeleteInternetGateway(ctx, &awsec2.DeleteInternetGatewayInput{InternetGatewayId: gateway}))
	inUse()
	for _, g := range cloudtest.Must[*awsec2.DescribeSecurityGroupsOutput](t)(l.DescribeSecurityGroups(ctx, &awsec2.DescribeSecurityGroupsInput{Filters: of})).SecurityGroups {
		if *g.GroupName != "default" {
			cloudtest.Must[*awsec2.DeleteSecurityGroupOutput](t)(l.DeleteSecurityGroup(ctx, &awsec2.DeleteSecurityGroupInput{GroupId: g.GroupId}))
		}
	}
	cloudtest.Must[*awsec2.DeleteVpcOutput](t)(l.DeleteVpc(ctx, &awsec2.DeleteVpcInput{VpcId: v.VpcId}))
}

// TestDefaultVPCQuota: a default VPC and its gateway count as any other.
func TestDefaultVPCQuota(t *testing.T) {
	l := cloudtest.New(t, func(l *cloudtest.Lab) { l.Quotas = ec2.Quotas{VPCs: 1} })
	ctx := t.Context()
	gateway := cloudtest.Must[*awsec2.CreateInternetGatewayOutput](t)(l.CreateInternetGateway(ctx, &awsec2.CreateInternetGatewayInput{})).InternetGateway
	_, err := l.CreateDefaultVpc(ctx, &awsec2.CreateDefaultVpcInput{})
	cloudtest.Refused(t, err, "InternetGatewayLimitExceeded")
	cloudtest.Must[*awsec2.DeleteInternetGatewayOutput](t)(l.DeleteInternetGateway(ctx, &awsec2.DeleteInternetGatewayInput{InternetGatewayId: gateway.InternetGatewayId}))
	cloudtest.Must[*awsec2.CreateVpcOutput](t)(l.CreateVpc(ctx, &awsec2.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")}))
	_, err = l.CreateDefaultVpc(ctx, &awsec2.CreateDefaultVpcInput{})
	cloudtest.Refused(t, err, "VpcLimitExceeded")
}

// TestDefaultVPCPermissions: whoever may launch in one VPC only cannot launch in the default one by naming no subnet.
func TestDefaultVPCPermissions(t *testing.T) {
	l := cloudtest.New(t)
	ctx := t.Context()
	s := l.NewSite(t)
	v := *cloudtest.Must[*awsec2.CreateDefaultVpcOutput](t)(l.CreateDefaultVpc(ctx, &awsec2.CreateDefaultVpcInput{})).Vpc
	vpc := *v.VpcId
	in := func(id string) *cloudtest.Lab {
		return l.User(t,
			`{"Effect":"Allow","Action":["ec2:RunInstances","ec2:CreateSecurityGroup"],"Resource":["arn:aws:ec2:*::image/*","arn:aws:ec2:*:*:instance/*","arn:aws:ec2:*:*:network-interface/*","arn:aws:ec2:*:*:volume/*","arn:aws:ec2:*:*:security-group/*","arn:aws:ec2:*:*:vpc/`+id+`"]}`,
			`{"Effect":"Allow","Action":"ec2:RunInstances","Resource":"arn:aws:ec2:*:*:subnet/*","Condition":{"ArnEquals":{"ec2:Vpc":"arn:aws:ec2:us-east-1:123456789012:vpc/`+id+`"}}}`)
	}
	for id, want := range map[string]string{s.VPC: "UnauthorizedOperation", vpc: ""} {
		user := in(id)
		_, err := user.RunInstances(ctx, somewhere(nil))
		cloudtest.Refused(t, err, want)
		_, err = user.CreateSecurityGroup(ctx, &awsec2.CreateSecurityGroupInput{GroupName: aws.String("web"), Description: aws.String("web")})
		cloudtest.Refused(t, err, want)
	}
	removeDefaultVPC(t, l, v)
	create := func(resource string) error {
		_, err := l.User(t, `{"Effect":"Allow","Action":"ec2:CreateDefaultVpc","Resource":"`+resource+`"}`).CreateDefaultVpc(ctx, &awsec2.CreateDefaultVpcInput{})
		return err
	}
	cloudtest.Refused(t, create("arn:aws:ec2:*:*:vpc/*"), "UnauthorizedOperation")
	cloudtest.Refused(t, create("*"), "")
}

// TestDefaultVPCDenials: what is denied in one default subnet is denied where EC2 may choose that subnet. A launch without a group uses
// the default group of the VPC.
func TestDefaultVPCDenials(t *testing.T) {
	l := cloudtest.New(t)
	ctx := t.Context()
	s := l.NewSite(t)
	v := *cloudtest.Must[*awsec2.CreateDefaultVpcOutput](t)(l.CreateDefaultVpc(ctx, &awsec2.CreateDefaultVpcInput{})).Vpc
	first := *cloudtest.Must[*awsec2.DescribeSubnetsOutput](t)(l.DescribeSubnets(ctx, &awsec2.DescribeSubnetsInput{Filters: []types.Filter{
		cloudtest.Filter("vpc-id", *v.VpcId), cloudtest.Filter("availability-zone", "us-east-1a")}})).Subnets[0].SubnetId
	group := func(vpc string) string {
		return *cloudtest.Must[*awsec2.DescribeSecurityGroupsOutput](t)(l.DescribeSecurityGroups(ctx, &awsec2.DescribeSecurityGroupsInput{Filters: []types.Filter{
			cloudtest.Filter("vpc-id", vpc), cloudtest.Filter("group-name", "default")}})).SecurityGroups[0].GroupId
	}
	cloudtest.Must[*awsec2.CreateTagsOutput](t)(l.CreateTags(ctx, &awsec2.CreateTagsInput{Resources: []string{first}, Tags: []types.Tag{{Key: aws.String("stage"), Value: aws.String("prod")}}}))
	elsewhere, a, b := somewhere(nil), aws.String("us-east-1a"), aws.String("us-east-1b")
	elsewhere.SubnetId = &s.Subnet
	for name, tt := range map[string]struct {
		resource, condition string
		denied, allowed     []*awsec2.RunInstancesInput
	}{
		"a subnet":           {"subnet/" + first, `{}`, []*awsec2.RunInstancesInput{somewhere(nil), somewhere(a)}, []*awsec2.RunInstancesInput{somewhere(b), elsewhere}},
		"a tag":              {"subnet/*", `{"StringEquals":{"aws:ResourceTag/stage":"prod"}}`, []*awsec2.RunInstancesInput{somewhere(nil), somewhere(a)}, []*awsec2.RunInstancesInput{somewhere(b), elsewhere}},
		"interfaces in one":  {"network-interface/*", `{"ArnEquals":{"ec2:Subnet":"arn:aws:ec2:us-east-1:123456789012:subnet/` + first + `"}}`, []*awsec2.RunInstancesInput{somewhere(nil), somewhere(a)}, []*awsec2.RunInstancesInput{somewhere(b), elsewhere}},
		"interfaces in all":  {"network-interface/*", `{"ArnEquals":{"ec2:Vpc":"arn:aws:ec2:us-east-1:123456789012:vpc/` + *v.VpcId + `"}}`, []*awsec2.RunInstancesInput{somewhere(nil), somewhere(b)}, []*awsec2.RunInstancesInput{elsewhere}},
		"its group":          {"security-group/" + group(*v.VpcId), `{}`, []*awsec2.RunInstancesInput{somewhere(nil), somewhere(b)}, []*awsec2.RunInstancesInput{elsewhere}},
		"the group of a VPC": {"security-group/" + group(s.VPC), `{}`, []*awsec2.RunInstancesInput{elsewhere}, []*awsec2.RunInstancesInput{somewhere(nil)}},
	} {
		user := l.User(t, `{"Effect":"Allow","Action":"ec2:RunInstances","Resource":"*"}`,
			`{"Effect":"Deny","Action":"ec2:RunInstances","Resource":"arn:aws:ec2:*:*:`+tt.resource+`","Condition":`+tt.condition+`}`)
		for code, all := range map[string][]*awsec2.RunInstancesInput{"UnauthorizedOperation": tt.denied, "DryRunOperation": tt.allowed} {
			for n, in := range all {
				in.DryRun = aws.Bool(true)
				if _, err := user.RunInstances(ctx, in); cloudtest.Code(err) != code {
					t.Errorf("%s denied, launch %d: wanted %s, got %v", name, n, code, err)
				}
			}
		}
	}
}
