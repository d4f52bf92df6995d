package network

import (
	"context"
	"fmt"
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
	return func(yield func(string, error) bool) {
		for vpc, err := range aws.Each(ctx, pages, func(page *ec2.DescribeVpcsOutput) []types.Vpc { return page.Vpcs }) {
			if err != nil {
				yield("", fmt.Errorf("list networks: %w", err))
				return
			}
			if !yield(aws.TagMap(vpc.Tags)[aws.TagCluster], nil) {
				return
			}
		}
	}
}
