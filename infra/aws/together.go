package aws

import (
	"context"
	"fmt"
	"maps"
	"slices"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"golang.org/x/sync/errgroup"
)

// together holds what a refresh asks once for all resources of a cluster.
type together struct {
	machines shared[machinesTogether]   // by cluster
	tables   shared[[]types.RouteTable] // by VPC
	volumes  shared[map[string]Volume]  // by cluster
	credits  shared[map[string]string]  // by cluster; see describeCredits
}

// machinesTogether is what EC2 says of a cluster's instances, by their ids.
type machinesTogether struct {
	instances map[string]types.Instance
	volumes   map[string][]types.Volume // that are attached
}

// observeTogether is observe with calls that the machines of a cluster share. It makes calls of its
// own for a machine that is not among the cluster's: its tags may be gone, or not known yet.
func (c *Client) observeTogether(ctx context.Context, spec MachineSpec, id string) (observation, error) {
	cluster, vpc := spec.Cluster, routedVPC(spec)
	var o observation
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		all, err := c.together.machines.get(gctx, cluster, id, c.changes.Load(), func(ctx context.Context) (machinesTogether, error) {
			return c.clusterMachines(ctx, cluster)
		})
		if err != nil {
			return fmt.Errorf("describe instance %s: %w", id, err)
		}
		i, known := all.instances[id]
		if !known || slices.Contains(gone, stateOf(i)) || !lists(all.volumes[id], i) {
			alone, err := c.observe(gctx, id, "")
			o.instance, o.volumes = alone.instance, alone.volumes
			if err != nil {
				return err
			}
			return c.observeCredits(gctx, spec, &o)
		}
		o.instance, o.volumes = i, slices.Clone(all.volumes[id])
		return c.creditsTogether(gctx, spec, all, &o)
	})
	var tables []types.RouteTable
	g.Go(func() (err error) {
		if vpc != "" {
			tables, err = c.together.tables.get(gctx, vpc, id, c.changes.Load(), func(ctx context.Context) ([]types.RouteTable, error) {
				return c.routeTables(ctx, vpc)
			})
		}
		return err
	})
	err := g.Wait()
	o.tables = slices.Clone(tables)
	o.findRoot()
	return o, err
}

// creditsTogether is observeCredits with a call that the machines of a cluster share. all are those.
func (c *Client) creditsTogether(ctx context.Context, spec MachineSpec, all machinesTogether, o *observation) error {
	if spec.CPUCredits == "" || !burstable(string(o.instance.InstanceType)) {
		return nil
	}
	id := sdk.ToString(o.instance.InstanceId)
	listed, err := c.together.credits.get(ctx, spec.Cluster, id, c.changes.Load(), func(ctx context.Context) (map[string]string, error) {
		return c.describeCredits(ctx, slices.Sorted(maps.Keys(all.volumes)))
	})
	o.setCredits(listed[id])
	return err
}

// lists reports whether all volumes that the instance has are among those of EC2's answer.
func lists(volumes []types.Volume, i types.Instance) bool {
	return !slices.ContainsFunc(i.BlockDeviceMappings, func(d types.InstanceBlockDeviceMapping) bool {
		return d.Ebs != nil && !slices.ContainsFunc(volumes, func(v types.Volume) bool {
			return sdk.ToString(v.VolumeId) == sdk.ToString(d.Ebs.VolumeId)
		})
	})
}

// clusterMachines describes all instances with a cluster's tags, and the volumes attached to them.
func (c *Client) clusterMachines(ctx context.Context, cluster string) (machinesTogether, error) {
	out := machinesTogether{map[string]types.Instance{}, map[string][]types.Volume{}}
	var ids []string
	err := c.eachInstance(ctx, func(i types.Instance) {
		id := sdk.ToString(i.InstanceId)
		out.instances[id] = i
		if !slices.Contains(gone, stateOf(i)) {
			ids = append(ids, id)
		}
	}, tagFilter(TagCluster, cluster), tagFilter(TagKind, kindMachine))
	if err != nil {
		return out, err
	}
	for some := range slices.Chunk(ids, filterValues) {
		attached, err := c.describeAttached(ctx, some)
		if err != nil {
			return out, fmt.Errorf("describe its volumes: %w", err)
		}
		for _, id := range some {
			out.volumes[id] = attached[id]
		}
	}
	return out, nil
}

// findVolumeTogether is FindVolume with a call that the volumes of a cluster share.
func (c *Client) findVolumeTogether(ctx context.Context, cluster, id string) (Volume, error) {
	all, err := c.together.volumes.get(ctx, cluster, id, c.changes.Load(), func(ctx context.Context) (map[string]Volume, error) {
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
		Filters: []types.Filter{tagFilter(TagCluster, cluster), tagFilter(TagKind, kindVolume)},
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
