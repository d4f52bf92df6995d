package network

import (
	"context"
	"iter"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

// List yields the clusters that have a network with a VPC of their own, as the tags of VPCs say: only the given one, or
// all if that is empty.
func List(ctx context.Context, c *aws.Client, cluster string) iter.Seq2[string, error] {
	pages := ec2.NewDescribeVpcsPaginator(c.EC2, &ec2.DescribeVpcsInput{Filters: aws.KindFilters(aws.KindNetwork, cluster), MaxResults: sdk.Int32(aws.PageSize)})
	return aws.Each(ctx, "list networks", pages, func(page *ec2.DescribeVpcsOutput) (clusters []string, err error) {
		for _, vpc := range page.Vpcs {
			clusters = append(clusters, aws.TagMap(vpc.Tags)[aws.TagCluster])
		}
		return clusters, nil
	})
}

// The parts of networks that match filters, from all pages of EC2's answers.

func listSubnets(ctx context.Context, c *aws.Client, filters ...types.Filter) ([]types.Subnet, error) {
	return aws.All(ctx, ec2.NewDescribeSubnetsPaginator(c.EC2, &ec2.DescribeSubnetsInput{Filters: filters}),
		func(p *ec2.DescribeSubnetsOutput) []types.Subnet { return p.Subnets })
}

func listTables(ctx context.Context, c *aws.Client, filters ...types.Filter) ([]types.RouteTable, error) {
	return aws.All(ctx, ec2.NewDescribeRouteTablesPaginator(c.EC2, &ec2.DescribeRouteTablesInput{Filters: filters}),
		func(p *ec2.DescribeRouteTablesOutput) []types.RouteTable { return p.RouteTables })
}

func listGateways(ctx context.Context, c *aws.Client, filters ...types.Filter) ([]types.InternetGateway, error) {
	return aws.All(ctx, ec2.NewDescribeInternetGatewaysPaginator(c.EC2, &ec2.DescribeInternetGatewaysInput{Filters: filters}),
		func(p *ec2.DescribeInternetGatewaysOutput) []types.InternetGateway { return p.InternetGateways })
}

func listGroups(ctx context.Context, c *aws.Client, filters ...types.Filter) ([]types.SecurityGroup, error) {
	return aws.All(ctx, ec2.NewDescribeSecurityGroupsPaginator(c.EC2, &ec2.DescribeSecurityGroupsInput{Filters: filters}),
		func(p *ec2.DescribeSecurityGroupsOutput) []types.SecurityGroup { return p.SecurityGroups })
}

func listEndpoints(ctx context.Context, c *aws.Client, filters ...types.Filter) ([]types.Ec2InstanceConnectEndpoint, error) {
	return aws.All(ctx, ec2.NewDescribeInstanceConnectEndpointsPaginator(c.EC2, &ec2.DescribeInstanceConnectEndpointsInput{Filters: filters}),
		func(p *ec2.DescribeInstanceConnectEndpointsOutput) []types.Ec2InstanceConnectEndpoint {
			return p.InstanceConnectEndpoints
		})
}

func listVolumes(ctx context.Context, c *aws.Client, filters ...types.Filter) ([]types.Volume, error) {
	return aws.All(ctx, ec2.NewDescribeVolumesPaginator(c.EC2, &ec2.DescribeVolumesInput{Filters: filters}),
		func(p *ec2.DescribeVolumesOutput) []types.Volume { return p.Volumes })
}

func listInterfaces(ctx context.Context, c *aws.Client, filters ...types.Filter) ([]types.NetworkInterface, error) {
	return aws.All(ctx, ec2.NewDescribeNetworkInterfacesPaginator(c.EC2, &ec2.DescribeNetworkInterfacesInput{Filters: filters}),
		func(p *ec2.DescribeNetworkInterfacesOutput) []types.NetworkInterface { return p.NetworkInterfaces })
}
