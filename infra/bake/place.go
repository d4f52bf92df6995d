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

// place chooses the machine's subnet if the specification names none. It is left, the subnet of a machine that an interrupted run has
// launched, if that is a default subnet. Otherwise it is the best default subnet of the region. EC2 would choose one as well, but nobody
// knows which one, and so could not tell what an interrupted run has launched.
func (b *builder) place(ctx context.Context, left string) error {
	m := &b.spec.Machine
	if m.SubnetID != "" {
		return nil
	}
	subnets, err := aws.All(ctx, ec2.NewDescribeSubnetsPaginator(b.EC2, &ec2.DescribeSubnetsInput{Filters: []types.Filter{aws.Filter("default-for-az", "true")}}),
		func(p *ec2.DescribeSubnetsOutput) []types.Subnet { return p.Subnets })
	if err != nil {
		return fmt.Errorf("look for the region's default subnets: %w", err)
	}
	var at types.Subnet
	if n := slices.IndexFunc(subnets, func(s types.Subnet) bool { return sdk.ToString(s.SubnetId) == left }); n >= 0 {
		at = subnets[n]
	} else {
		offers, err := b.OfferingZones(ctx, m.InstanceType)
		if err != nil {
			return err
		}
		var ok bool
		if at, ok = best(subnets, offers[m.InstanceType]); !ok {
			return b.nowhere(ctx)
		}
	}
	m.SubnetID, b.placed = sdk.ToString(at.SubnetId), true
	return nil
}

// best returns the first subnet, by its zone, that has free addresses and whose zone offers the instance type. If no zone offers the type,
// EC2 says so at the launch.
func best(subnets []types.Subnet, offers []string) (at types.Subnet, ok bool) {
	zone := func(s types.Subnet) string { return sdk.ToString(s.AvailabilityZone) }
	free := slices.DeleteFunc(slices.Clone(subnets), func(s types.Subnet) bool { return sdk.ToInt32(s.AvailableIpAddressCount) == 0 })
	if len(free) == 0 {
		return at, false
	}
	slices.SortFunc(free, func(a, b types.Subnet) int { return cmp.Compare(zone(a), zone(b)) })
	return free[max(0, slices.IndexFunc(free, func(s types.Subnet) bool { return slices.Contains(offers, zone(s)) }))], true
}

// nowhere says why no default subnet can be used.
func (b *builder) nowhere(ctx context.Context) error {
	vpcs, err := aws.All(ctx, ec2.NewDescribeVpcsPaginator(b.EC2, &ec2.DescribeVpcsInput{Filters: []types.Filter{aws.Filter("is-default", "true")}}),
		func(p *ec2.DescribeVpcsOutput) []types.Vpc { return p.Vpcs })
	if err != nil {
		return fmt.Errorf("look for the region's default VPC: %w", err)
	}
	if len(vpcs) == 0 {
		return refuse("subnet_id", "No default VPC", "no subnet is given, and the region has no default VPC: make one with `aws ec2 create-default-vpc`, or give a subnet or a network; nothing was made")
	}
	return refuse("subnet_id", "No default subnet", "no subnet is given, and the default VPC %s has no default subnet with free addresses: "+
		"make one with `aws ec2 create-default-subnet --availability-zone ZONE`, or set subnet_id; nothing was made", sdk.ToString(vpcs[0].VpcId))
}

func refuse(field, problem, format string, args ...any) error {
	return &invalid.Field{Field: field, Problem: problem, Err: fmt.Errorf(format, args...)}
}
