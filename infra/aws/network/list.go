package network

import (
	"context"
	"iter"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

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
