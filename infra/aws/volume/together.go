package volume

import (
	"context"
	"fmt"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

// memory is what the client keeps about volumes.
type memory struct {
	together aws.Shared[map[string]Volume] // by cluster
}

func memoryOf(c *aws.Client) *memory {
	return aws.Kept(c, func(*aws.Client) *memory { return &memory{} })
}

// findTogether is Find with a call that the volumes of a cluster share.
func findTogether(ctx context.Context, c *aws.Client, cluster, id string) (Volume, error) {
	all, err := memoryOf(c).together.Get(ctx, cluster, id, c.Changes(), func(ctx context.Context) (map[string]Volume, error) {
		return clusterVolumes(ctx, c, cluster)
	})
	if err != nil {
		return Volume{}, fmt.Errorf("describe the volume %s: %w", id, err)
	}
	if v, ok := all[id]; ok {
		return v, nil
	}
	return Find(ctx, c, id)
}

// clusterVolumes describes the data volumes with a cluster's tags that are not being deleted.
func clusterVolumes(ctx context.Context, c *aws.Client, cluster string) (map[string]Volume, error) {
	found, err := aws.All(ctx, ec2.NewDescribeVolumesPaginator(c.EC2, &ec2.DescribeVolumesInput{
		Filters: []types.Filter{aws.TagFilter(aws.TagCluster, cluster), aws.TagFilter(aws.TagKind, aws.KindVolume)},
	}), func(p *ec2.DescribeVolumesOutput) []types.Volume { return p.Volumes })
	if err != nil {
		return nil, err
	}
	out := map[string]Volume{}
	for _, v := range found {
		if exists(v) {
			out[sdk.ToString(v.VolumeId)] = Of(v)
		}
	}
	return out, nil
}
