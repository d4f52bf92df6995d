package bake

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// place chooses the machine's subnet if the specification names none: the first default subnet of the region, by its zone, whose zone
// offers the instance type. EC2 would choose one as well, but nobody knows which one, and so could not tell what an interrupted run has launched.
func (b *builder) place(ctx context.Context) error {
	m := &b.spec.Machine
	if m.SubnetID != "" {
		return nil
	}
	subnets, err := aws.All(ctx, ec2.NewDescribeSubnetsPaginator(b.EC2, &ec2.DescribeSubnetsInput{Filters: []types.Filter{aws.Filter("default-for-az", "true")}}),
		func(p *ec2.DescribeSubnetsOutput) []types.Subnet { return p.Subnets })
	if err != nil {
		return fmt.Errorf("look for the region's default subnets: %w", err)
	}
	if len(subnets) == 0 {
		return refuse("subnet_id", "No default VPC", "no subnet is given, and the region has no default VPC, or one without default subnets: "+
			"give a subnet or a network, or make a default VPC with `aws ec2 create-default-vpc`; nothing was made")
	}
	offers, err := b.OfferingZones(ctx, m.InstanceType)
	if err != nil {
		return err
	}
	slices.SortFunc(subnets, func(a, b types.Subnet) int { return cmp.Compare(zoneOf(a), zoneOf(b)) })
	// If no zone offers the type, EC2 says so at the launch.
	at := subnets[max(0, slices.IndexFunc(subnets, func(s types.Subnet) bool { return slices.Contains(offers[m.InstanceType], zoneOf(s)) }))]
	groups, err := aws.All(ctx, ec2.NewDescribeSecurityGroupsPaginator(b.EC2, &ec2.DescribeSecurityGroupsInput{Filters: []types.Filter{aws.Filter("group-id", m.SecurityGroupIDs...)}}),
		func(p *ec2.DescribeSecurityGroupsOutput) []types.SecurityGroup { return p.SecurityGroups })
	if err != nil {
		return fmt.Errorf("look for the machine's security groups: %w", err)
	}
	for _, g := range groups {
		if vpc := sdk.ToString(g.VpcId); vpc != sdk.ToString(at.VpcId) {
			return refuse("security_group_ids", "Group of another VPC", "%s is in %s, and without a subnet the machine is made in the default VPC %s; nothing was made",
				sdk.ToString(g.GroupId), vpc, sdk.ToString(at.VpcId))
		}
	}
	m.SubnetID = sdk.ToString(at.SubnetId)
	return nil
}

func zoneOf(s types.Subnet) string { return sdk.ToString(s.AvailabilityZone) }

func refuse(field, problem, format string, args ...any) error {
	return &invalid.Field{Field: field, Problem: problem, Err: fmt.Errorf(format, args...)}
}
