package balancer

import (
	"context"
	"iter"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

// List yields the clusters that have an internal load balancer, as the tags of load balancers say: only the given one,
// or all if that is empty. ELB does not filter by tags.
func List(ctx context.Context, c *aws.Client, cluster string) iter.Seq2[string, error] {
	pages := elb.NewDescribeLoadBalancersPaginator(c.ELB, &elb.DescribeLoadBalancersInput{PageSize: sdk.Int32(aws.PageSize)})
	return aws.Each(ctx, "list load balancers", pages, func(page *elb.DescribeLoadBalancersOutput) (clusters []string, err error) {
		var arns []string
		for _, b := range page.LoadBalancers {
			arns = append(arns, sdk.ToString(b.LoadBalancerArn))
		}
		tagged, err := c.TagsOfELB(ctx, arns)
		for _, arn := range arns {
			of := tagged[arn][aws.TagCluster]
			if tagged[arn][aws.TagKind] == kind && tagged[arn][aws.TagResource] == Internal && of != "" && (cluster == "" || cluster == of) {
				clusters = append(clusters, of)
			}
		}
		return clusters, err
	})
}
