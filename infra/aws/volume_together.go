package aws

import (
	"context"
	"fmt"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// volumeMemory is what the client keeps about volumes.
type volumeMemory struct {
	together shared[map[string]Volume] // by cluster
}

func volumeMemoryOf(c *Client) *volumeMemory {
	return Kept(c, func(*Client) *volumeMemory { return &volumeMemory{} })
}

// findVolumeTogether is FindVolume with a call that the volumes of a cluster share.
func (c *Client) findVolumeTogether(ctx context.Context, cluster, id string) (Volume, error) {
	all, err := volumeMemoryOf(c).together.get(ctx, cluster, id, c.Changes(), func(ctx context.Context) (map[string]Volume, error) {
		return c.clusterVolumes(ctx, cluster)
	})
	if err != nil {
		return Volume{}, fmt.Errorf("describe the volume %s: %w", id, err)
	}
	if v, ok := all[id]; ok {
		return v, nil
	}
	return c.FindVolume(ctx, id)
}

// clusterVolumes describes the data volumes with a cluster's tags that are not being deleted.
func (c *Client) clusterVolumes(ctx context.Context, cluster string) (map[string]Volume, error) {
	out := map[string]Volume{}
	pages := ec2.NewDescribeVolumesPaginator(c.EC2, &ec2.DescribeVolumesInput{
		Filters: []types.Filter{TagFilter(TagCluster, cluster), TagFilter(TagKind, kindVolume)},
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, v := range page.Volumes {
			if v.State != types.VolumeStateDeleting && v.State != types.VolumeStateDeleted {
				out[sdk.ToString(v.VolumeId)] = volumeOf(v)
			}
		}
	}
	return out, nil
}
