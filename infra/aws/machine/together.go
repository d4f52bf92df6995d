package machine

import (
	"context"
	"fmt"
	"maps"
	"slices"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/route"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
)

// machinesTogether is what EC2 says of a cluster's instances, by their ids.
type machinesTogether struct {
	instances map[string]types.Instance
	volumes   map[string][]types.Volume // that are attached
}

// observeTogether is lookAt with calls that the machines of a cluster share. It makes calls of its
// own for a machine that is not among the cluster's: its tags may be gone, or not known yet.
func observeTogether(ctx context.Context, c *aws.Client, spec Spec, id string) (observation, error) {
	cluster, vpc := spec.Cluster, routedVPC(spec)
	var o observation
	g, gctx := parallel.WithContext(ctx)
	g.Go(func() error {
		all, err := machinesFor(gctx, c, cluster, id)
		if err != nil {
			return fmt.Errorf("describe instance %s: %w", id, err)
		}
		i, known := all.instances[id]
		if !known || aws.IsGone(i) || !lists(all.volumes[id], i) {
			alone, err := lookAt(gctx, c, id, "")
			o.instance, o.volumes = alone.instance, alone.volumes
			if err != nil {
				return err
			}
			return observeCredits(gctx, c, spec, &o)
		}
		o.instance, o.volumes = i, slices.Clone(all.volumes[id])
		return creditsTogether(gctx, c, spec, all, &o)
	})
	var tables []types.RouteTable
	g.Go(func() (err error) {
		if vpc != "" {
			tables, err = route.TablesTogether(gctx, c, vpc, id)
		}
		return err
	})
	err := g.Wait()
	o.tables = tables
	o.findRoot()
	return o, err
}

// machinesFor is clusterMachines with a call that all refreshing resources share; see [aws.Shared]. asker
// identifies the resource.
func machinesFor(ctx context.Context, c *aws.Client, cluster, asker string) (machinesTogether, error) {
	return memoryOf(c).together.Get(ctx, cluster, asker, c.Changes(), func(ctx context.Context) (machinesTogether, error) {
		return clusterMachines(ctx, c, cluster)
	})
}

// creditsTogether is observeCredits with a call that the machines of a cluster share. all are those.
func creditsTogether(ctx context.Context, c *aws.Client, spec Spec, all machinesTogether, o *observation) error {
	if spec.CPUCredits == "" || !burstable(string(o.instance.InstanceType)) {
		return nil
	}
	id := sdk.ToString(o.instance.InstanceId)
	listed, err := memoryOf(c).credits.Get(ctx, spec.Cluster, id, c.Changes(), func(ctx context.Context) (map[string]string, error) {
		return describeCredits(ctx, c, slices.Sorted(maps.Keys(all.volumes)))
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
func clusterMachines(ctx context.Context, c *aws.Client, cluster string) (machinesTogether, error) {
	out := machinesTogether{map[string]types.Instance{}, map[string][]types.Volume{}}
	var ids []string
	err := c.EachInstance(ctx, func(i types.Instance) {
		id := sdk.ToString(i.InstanceId)
		out.instances[id] = i
		if !aws.IsGone(i) {
			ids = append(ids, id)
		}
	}, aws.TagFilter(aws.TagCluster, cluster), aws.TagFilter(aws.TagKind, aws.KindMachine))
	if err != nil {
		return out, err
	}
	for some := range slices.Chunk(ids, aws.FilterValues) {
		attached, err := describeAttached(ctx, c, some)
		if err != nil {
			return out, fmt.Errorf("describe its volumes: %w", err)
		}
		for _, id := range some {
			out.volumes[id] = attached[id]
		}
	}
	return out, nil
}
