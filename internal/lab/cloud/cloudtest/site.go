package cloudtest

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// Site is a VPC ready for instances: 10.240.0.0/16 with the subnet 10.240.0.0/24 in the first zone, a route to an internet
// gateway, and a security group without rules for what comes in. The fields are ids.
type Site struct {
	VPC, Subnet, Gateway, Table, Group string
}

// NewSite makes a site.
func (l *Lab) NewSite(t *testing.T) Site {
	t.Helper()
	ctx := t.Context()
	v := Must[*awsec2.CreateVpcOutput](t)(l.CreateVpc(ctx, &awsec2.CreateVpcInput{CidrBlock: aws.String("10.240.0.0/16")}))
	s := Site{VPC: *v.Vpc.VpcId}
	sub := Must[*awsec2.CreateSubnetOutput](t)(l.CreateSubnet(ctx, &awsec2.CreateSubnetInput{VpcId: &s.VPC, CidrBlock: aws.String("10.240.0.0/24"), AvailabilityZone: aws.String(l.AWS.Region + "a")}))
	s.Subnet = *sub.Subnet.SubnetId
	g := Must[*awsec2.CreateInternetGatewayOutput](t)(l.CreateInternetGateway(ctx, &awsec2.CreateInternetGatewayInput{}))
	s.Gateway = *g.InternetGateway.InternetGatewayId
	Must[*awsec2.AttachInternetGatewayOutput](t)(l.AttachInternetGateway(ctx, &awsec2.AttachInternetGatewayInput{InternetGatewayId: &s.Gateway, VpcId: &s.VPC}))
	r := Must[*awsec2.CreateRouteTableOutput](t)(l.CreateRouteTable(ctx, &awsec2.CreateRouteTableInput{VpcId: &s.VPC}))
	s.Table = *r.RouteTable.RouteTableId
	Must[*awsec2.CreateRouteOutput](t)(l.CreateRoute(ctx, &awsec2.CreateRouteInput{RouteTableId: &s.Table, DestinationCidrBlock: aws.String("0.0.0.0/0"), GatewayId: &s.Gateway}))
	Must[*awsec2.AssociateRouteTableOutput](t)(l.AssociateRouteTable(ctx, &awsec2.AssociateRouteTableInput{RouteTableId: &s.Table, SubnetId: &s.Subnet}))
	sg := Must[*awsec2.CreateSecurityGroupOutput](t)(l.CreateSecurityGroup(ctx, &awsec2.CreateSecurityGroupInput{
		GroupName: aws.String("web"), Description: aws.String("web"), VpcId: &s.VPC,
	}))
	s.Group = *sg.GroupId
	return s
}

// NewSecurityGroup makes a security group without rules for what comes in, and returns its id.
func (l *Lab) NewSecurityGroup(t *testing.T, vpc, name string) string {
	t.Helper()
	out := Must[*awsec2.CreateSecurityGroupOutput](t)(l.CreateSecurityGroup(t.Context(), &awsec2.CreateSecurityGroupInput{GroupName: &name, Description: &name, VpcId: &vpc}))
	return *out.GroupId
}

// RunInput returns a request to launch one instance in the site.
func (s Site) RunInput() *awsec2.RunInstancesInput {
	return &awsec2.RunInstancesInput{
		ImageId: aws.String(Image), InstanceType: types.InstanceTypeT3Small, MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
		SubnetId: aws.String(s.Subnet), SecurityGroupIds: []string{s.Group},
	}
}

// Run launches an instance and waits until it is running.
func (l *Lab) Run(t *testing.T, in *awsec2.RunInstancesInput) types.Instance {
	t.Helper()
	out := Must[*awsec2.RunInstancesOutput](t)(l.RunInstances(t.Context(), in))
	return l.Await(t, *out.Instances[0].InstanceId, types.InstanceStateNameRunning)
}

// Instance describes an instance.
func (l *Lab) Instance(t *testing.T, id string) types.Instance {
	t.Helper()
	out := Must[*awsec2.DescribeInstancesOutput](t)(l.DescribeInstances(t.Context(), &awsec2.DescribeInstancesInput{InstanceIds: []string{id}}))
	return out.Reservations[0].Instances[0]
}

// Await waits until an instance has a state.
func (l *Lab) Await(t *testing.T, id string, want types.InstanceStateName) types.Instance {
	t.Helper()
	var i types.Instance
	Eventually(t, id+" "+string(want), func() bool {
		i = l.Instance(t, id)
		return i.State.Name == want
	})
	return i
}

// Tags returns the tags, keys and values by turns, that a new resource is to have.
func Tags(resource types.ResourceType, pairs ...string) []types.TagSpecification {
	spec := types.TagSpecification{ResourceType: resource}
	for i := 0; i < len(pairs); i += 2 {
		spec.Tags = append(spec.Tags, types.Tag{Key: &pairs[i], Value: &pairs[i+1]})
	}
	return []types.TagSpecification{spec}
}

// Filter returns a filter of a listing.
func Filter(name string, values ...string) types.Filter {
	return types.Filter{Name: &name, Values: values}
}
