package balancer

import (
	"context"
	"iter"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

// tagsAtOnce is of how many load balancers DescribeTags tells the tags.
// https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/API_DescribeTags.html
const tagsAtOnce = 20

// List yields the clusters that have an internal load balancer, as the tags of load balancers say: only the given one,
// or all if that is empty. ELB does not filter by tags.
func List(ctx context.Context, c *aws.Client, cluster string) iter.Seq2[string, error] {
	pages := elb.NewDescribeLoadBalancersPaginator(c.ELB, &elb.DescribeLoadBalancersInput{PageSize: sdk.Int32(tagsAtOnce)})
	return aws.Each(ctx, "list load balancers", pages, func(page *elb.DescribeLoadBalancersOutput) (clusters []string, err error) {
		var arns []string
		for _, b := range page.LoadBalancers {
			arns = append(arns, sdk.ToString(b.LoadBalancerArn))
		}
		if len(arns) == 0 {
			return nil, nil
		}
		tagged, err := c.ELB.DescribeTags(ctx, &elb.DescribeTagsInput{ResourceArns: arns})
		if err != nil {
			return nil, err
		}
		for _, d := range tagged.TagDescriptions {
			tags := aws.ELBTagMap(d.Tags)
			of := tags[aws.TagCluster]
			if tags[aws.TagKind] == kind && tags[aws.TagResource] == Internal && of != "" && (cluster == "" || cluster == of) {
				clusters = append(clusters, of)
			}
		}
		return clusters, nil
	})
}
