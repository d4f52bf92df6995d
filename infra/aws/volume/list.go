package volume

import (
	"context"
	"iter"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

// List yields the volumes of a cluster, or of every cluster if that is empty, as their tags say.
func List(ctx context.Context, c *aws.Client, cluster string) iter.Seq2[Volume, error] {
	pages := ec2.NewDescribeVolumesPaginator(c.EC2, &ec2.DescribeVolumesInput{Filters: aws.KindFilters(aws.KindVolume, cluster), MaxResults: sdk.Int32(aws.PageSize)})
	return aws.Each(ctx, "list volumes", pages, func(page *ec2.DescribeVolumesOutput) (volumes []Volume, err error) {
		for _, v := range page.Volumes {
			if of := Of(v); exists(v) && of.Name != "" {
				volumes = append(volumes, of)
			}
		}
		return volumes, nil
	})
}

func exists(v types.Volume) bool {
	return v.State != types.VolumeStateDeleting && v.State != types.VolumeStateDeleted
}
