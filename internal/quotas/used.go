package quotas

import (
	"context"
	"errors"
	"maps"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/quotas/need"
)

// What an account uses of its quotas.

// used returns how many of a kind the account has.
func (c *check) used(ctx context.Context, kind need.Kind) (int, error) {
	switch kind {
	case need.VCPUs, need.SpotVCPUs:
		return c.usedVCPUs(ctx, kind == need.SpotVCPUs)
	case need.VPCs:
		return length(infraaws.All(ctx, ec2.NewDescribeVpcsPaginator(c.EC2, &ec2.DescribeVpcsInput{}), func(p *ec2.DescribeVpcsOutput) []types.Vpc { return p.Vpcs }))
	case need.InternetGateways:
		return length(infraaws.All(ctx, ec2.NewDescribeInternetGatewaysPaginator(c.EC2, &ec2.DescribeInternetGatewaysInput{}),
			func(p *ec2.DescribeInternetGatewaysOutput) []types.InternetGateway { return p.InternetGateways }))
	case need.Addresses: // the call has no pages
		out, err := c.EC2.DescribeAddresses(ctx, &ec2.DescribeAddressesInput{})
		if err != nil {
			return 0, err
		}
		return len(out.Addresses), nil
	case need.ConnectEndpoints:
		return length(infraaws.All(ctx, ec2.NewDescribeInstanceConnectEndpointsPaginator(c.EC2, &ec2.DescribeInstanceConnectEndpointsInput{
			Filters: []types.Filter{infraaws.Filter("state", "create-in-progress", "create-complete", "delete-in-progress")},
		}), func(p *ec2.DescribeInstanceConnectEndpointsOutput) []types.Ec2InstanceConnectEndpoint {
			return p.InstanceConnectEndpoints
		}))
	case need.SecurityGroups:
		return length(infraaws.All(ctx, ec2.NewDescribeSecurityGroupsPaginator(c.EC2, &ec2.DescribeSecurityGroupsInput{}),
			func(p *ec2.DescribeSecurityGroupsOutput) []types.SecurityGroup { return p.SecurityGroups }))
	case need.Interfaces:
		return length(infraaws.All(ctx, ec2.NewDescribeNetworkInterfacesPaginator(c.EC2, &ec2.DescribeNetworkInterfacesInput{}),
			func(p *ec2.DescribeNetworkInterfacesOutput) []types.NetworkInterface { return p.NetworkInterfaces }))
	case need.LoadBalancers:
		return length(infraaws.All(ctx, elb.NewDescribeLoadBalancersPaginator(c.ELB, &elb.DescribeLoadBalancersInput{}),
			func(p *elb.DescribeLoadBalancersOutput) (network []elbtypes.LoadBalancer) {
				for _, b := range p.LoadBalancers {
					if b.Type == elbtypes.LoadBalancerTypeEnumNetwork {
						network = append(network, b)
					}
				}
				return network
			}))
	case need.TargetGroups:
		return length(infraaws.All(ctx, elb.NewDescribeTargetGroupsPaginator(c.ELB, &elb.DescribeTargetGroupsInput{}),
			func(p *elb.DescribeTargetGroupsOutput) []elbtypes.TargetGroup { return p.TargetGroups }))
	case need.GP3:
		return c.usedGP3(ctx)
	case need.Parameters:
		return length(infraaws.All(ctx, ssm.NewDescribeParametersPaginator(c.SSM, &ssm.DescribeParametersInput{MaxResults: sdk.Int32(50)}),
			func(p *ssm.DescribeParametersOutput) (standard []ssmtypes.ParameterMetadata) {
				for _, one := range p.Parameters {
					if one.Tier != ssmtypes.ParameterTierAdvanced {
						standard = append(standard, one)
					}
				}
				return standard
			}))
	}
	return 0, nil
}

func length[T any](all []T, err error) (int, error) { return len(all), err }

// usedVCPUs returns the vCPUs of the instances that run, or are about to, or still stop.
func (c *check) usedVCPUs(ctx context.Context, spot bool) (int, error) {
	machines := need.Plan{Machines: map[need.Machine]int{}}
	err := c.EachInstance(ctx, func(i types.Instance) {
		machines.Machines[need.Machine{Type: string(i.InstanceType), Spot: i.InstanceLifecycle == types.InstanceLifecycleTypeSpot}]++
	}, infraaws.Filter("instance-state-name", "pending", "running", "stopping"))
	if err != nil {
		return 0, err
	}
	each, err := c.vcpus(ctx, machines.Types())
	return machines.VCPUs(spot, each), err
}

// vcpus returns how many vCPUs instance types have.
func (c *check) vcpus(ctx context.Context, names []string) (map[string]int, error) {
	each := map[string]int{}
	if len(names) == 0 {
		return each, nil
	}
	found, err := infraaws.All(ctx, ec2.NewDescribeInstanceTypesPaginator(c.EC2, &ec2.DescribeInstanceTypesInput{Filters: []types.Filter{infraaws.Filter("instance-type", names...)}}),
		func(p *ec2.DescribeInstanceTypesOutput) []types.InstanceTypeInfo { return p.InstanceTypes })
	for _, t := range found {
		if t.VCpuInfo != nil {
			each[string(t.InstanceType)] = int(sdk.ToInt32(t.VCpuInfo.DefaultVCpus))
		}
	}
	return each, err
}

func (c *check) usedGP3(ctx context.Context) (gib int, err error) {
	volumes, err := infraaws.All(ctx, ec2.NewDescribeVolumesPaginator(c.EC2, &ec2.DescribeVolumesInput{Filters: []types.Filter{infraaws.Filter("volume-type", string(types.VolumeTypeGp3))}}),
		func(p *ec2.DescribeVolumesOutput) []types.Volume { return p.Volumes })
	for _, v := range volumes {
		gib += int(sdk.ToInt32(v.Size))
	}
	return gib, err
}

// natGateways returns what the availability zone needs and has that comes nearest to its quota.
func (c *check) natGateways(ctx context.Context) (needed, used int, err error) {
	has, err := c.usedNAT(ctx)
	zones := maps.Clone(c.plan.NAT) // and those where the plan makes none of the known ones
	for zone := range has {
		zones[zone] += 0
	}
	anywhere := zones[""]
	delete(zones, "")
	needed = anywhere
	for zone, n := range zones {
		if n+anywhere > 0 && n+anywhere+has[zone] > needed+used {
			needed, used = n+anywhere, has[zone]
		}
	}
	return needed, used, err
}

// usedNAT returns how many NAT gateways the availability zones have.
func (c *check) usedNAT(ctx context.Context) (map[string]int, error) {
	has, zones := map[string]int{}, map[string]string{}
	gateways, err := infraaws.All(ctx, ec2.NewDescribeNatGatewaysPaginator(c.EC2, &ec2.DescribeNatGatewaysInput{Filter: []types.Filter{infraaws.Filter("state", "pending", "available", "deleting")}}),
		func(p *ec2.DescribeNatGatewaysOutput) []types.NatGateway { return p.NatGateways })
	if err != nil || len(gateways) == 0 {
		return has, err
	}
	subnets, err := infraaws.All(ctx, ec2.NewDescribeSubnetsPaginator(c.EC2, &ec2.DescribeSubnetsInput{}), func(p *ec2.DescribeSubnetsOutput) []types.Subnet { return p.Subnets })
	for _, s := range subnets {
		zones[sdk.ToString(s.SubnetId)] = sdk.ToString(s.AvailabilityZone)
	}
	for _, g := range gateways {
		has[zones[sdk.ToString(g.SubnetId)]]++
	}
	return has, err
}

// routes returns what the route table needs and has that comes nearest to its quota.
func (c *check) routes(ctx context.Context) (needed, used int, err error) {
	has := map[string]int{} // by VPC
	tables, err := infraaws.All(ctx, ec2.NewDescribeRouteTablesPaginator(c.EC2, &ec2.DescribeRouteTablesInput{}), func(p *ec2.DescribeRouteTablesOutput) []types.RouteTable { return p.RouteTables })
	for _, t := range tables {
		n := 0
		for _, r := range t.Routes {
			if sdk.ToString(r.GatewayId) != "local" {
				n++
			}
		}
		has[sdk.ToString(t.VpcId)] = max(has[sdk.ToString(t.VpcId)], n)
	}
	for vpc, n := range c.plan.Routes {
		if n > 0 && n+has[vpc] > needed+used {
			needed, used = n, has[vpc]
		}
	}
	return needed, used, err
}

// leave takes away the VPCs that a plan deletes with its networks. It leaves those that the networks have adopted.
func (c *check) leave(ctx context.Context) error {
	for _, v := range c.plan.Leaves {
		made, err := network.MadeVPC(ctx, c.Client, v.Cluster, v.ID)
		if err != nil && !errors.Is(err, infraaws.ErrNotFound) {
			return err
		}
		if made {
			for _, kind := range []need.Kind{need.VPCs, need.InternetGateways, need.SecurityGroups} { // its default group
				c.plan.Counts[kind]--
			}
		}
	}
	return nil
}
