package providertest

import (
	"context"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// DefaultVPC is the region's default VPC, with a security group that lets in SSH, for machines that become images.
type DefaultVPC struct {
	ID, Group string
	Subnets   map[string]string // the ids of its subnets by the letters of their zones
	api       *ec2.Client
}

// NewDefaultVPC makes the default VPC.
func NewDefaultVPC(t *testing.T, api *ec2.Client) *DefaultVPC {
	t.Helper()
	ctx := t.Context()
	v := &DefaultVPC{Subnets: map[string]string{}, api: api}
	v.ID = *Answer[*ec2.CreateDefaultVpcOutput](t)(v.api.CreateDefaultVpc(ctx, &ec2.CreateDefaultVpcInput{})).Vpc.VpcId
	v.Group = *Answer[*ec2.CreateSecurityGroupOutput](t)(v.api.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{GroupName: sdk.String("builders"), Description: sdk.String("builders")})).GroupId
	Answer[*ec2.AuthorizeSecurityGroupIngressOutput](t)(v.api.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{
		GroupId: &v.Group, IpProtocol: sdk.String("tcp"), FromPort: sdk.Int32(22), ToPort: sdk.Int32(22), CidrIp: sdk.String("0.0.0.0/0")}))
	of := []types.Filter{{Name: sdk.String("vpc-id"), Values: []string{v.ID}}}
	for _, s := range Answer[*ec2.DescribeSubnetsOutput](t)(v.api.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{Filters: of})).Subnets {
		zone := *s.AvailabilityZone
		v.Subnets[zone[len(zone)-1:]] = *s.SubnetId
	}
	return v
}

// Image is an image that is made in the default VPC.
func (v *DefaultVPC) Image() Values {
	return Values{"name": "node", "roles": []any{"lb"}, "security_group_ids": []any{v.Group}}
}

// Without deletes the subnets of zones.
func (v *DefaultVPC) Without(t *testing.T, zones ...string) {
	t.Helper()
	for _, zone := range zones {
		Answer[*ec2.DeleteSubnetOutput](t)(v.api.DeleteSubnet(context.WithoutCancel(t.Context()), &ec2.DeleteSubnetInput{SubnetId: sdk.String(v.Subnets[zone])}))
		delete(v.Subnets, zone)
	}
}

// Delete deletes the VPC with everything in it, also when the test has ended. Nothing may run there.
func (v *DefaultVPC) Delete(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	for zone := range v.Subnets {
		v.Without(t, zone)
	}
	attached := []types.Filter{{Name: sdk.String("attachment.vpc-id"), Values: []string{v.ID}}}
	for _, g := range Answer[*ec2.DescribeInternetGatewaysOutput](t)(v.api.DescribeInternetGateways(ctx, &ec2.DescribeInternetGatewaysInput{Filters: attached})).InternetGateways {
		Answer[*ec2.DetachInternetGatewayOutput](t)(v.api.DetachInternetGateway(ctx, &ec2.DetachInternetGatewayInput{InternetGatewayId: g.InternetGatewayId, VpcId: &v.ID}))
		Answer[*ec2.DeleteInternetGatewayOutput](t)(v.api.DeleteInternetGateway(ctx, &ec2.DeleteInternetGatewayInput{InternetGatewayId: g.InternetGatewayId}))
	}
	Answer[*ec2.DeleteSecurityGroupOutput](t)(v.api.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: &v.Group}))
	Answer[*ec2.DeleteVpcOutput](t)(v.api.DeleteVpc(ctx, &ec2.DeleteVpcInput{VpcId: &v.ID}))
}
