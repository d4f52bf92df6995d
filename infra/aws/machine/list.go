package machine

import (
	"context"
	"iter"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

// List yields the machines of a cluster, or of every cluster if that is empty, as their tags say. A machine whose
// creation has not ended is not among them.
func List(ctx context.Context, c *aws.Client, cluster string) iter.Seq2[Machine, error] {
	pages := ec2.NewDescribeInstancesPaginator(c.EC2, &ec2.DescribeInstancesInput{Filters: aws.KindFilters(aws.KindMachine, cluster), MaxResults: sdk.Int32(aws.PageSize)})
	return aws.Each(ctx, "list machines", pages, func(page *ec2.DescribeInstancesOutput) (machines []Machine, err error) {
		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				if m := machineOf(i); !aws.IsGone(i) && m.Name != "" && m.HostKey != "" {
					machines = append(machines, m)
				}
			}
		}
		return machines, nil
	})
}
