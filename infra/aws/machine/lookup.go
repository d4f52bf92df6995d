package machine

import (
	"context"
	"slices"
	"sync/atomic"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

// memory is what the client keeps about machines.
type memory struct {
	lookups lookups
	images  aws.Memo[string, image] // by imageQuestion
	booting atomic.Int32            // machines that are waited for on SSH

	// Questions that a refresh asks once for all machines of a cluster, by cluster.
	together aws.Shared[machinesTogether]
	credits  aws.Shared[map[string]string]  // see describeCredits
	events   aws.Shared[map[string][]Event] // of the region: see describeEvents
}

// lookups are the questions that many machines have while they are made and terminated. They are asked
// with filters, for which EC2 has a larger token bucket than for ids.
// https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html
type lookups struct {
	machines *aws.Lookup[machineName, []types.Instance] // also terminated ones that EC2 still lists
	attached *aws.Lookup[string, []types.Volume]        // all volumes of an instance, by its id
	credits  *aws.Lookup[string, string]                // credit options of instances by id, of those that EC2 lists
	healthy  *aws.Lookup[string, bool]                  // whether EC2's reachability checks have passed, by instance id
}

// machineName is the name of a machine in its cluster, among those of its kind.
type machineName struct{ kind, cluster, name string }

// statusIDs is how many ids DescribeInstanceStatus takes.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstanceStatus.html
const statusIDs = 100

func memoryOf(c *aws.Client) *memory {
	return aws.Kept(c, func(c *aws.Client) *memory {
		return &memory{lookups: lookups{
			machines: aws.NewLookup(c, aws.FilterValues, describeMachines),
			attached: aws.NewLookup(c, aws.FilterValues, describeAttached),
			credits:  aws.NewLookup(c, aws.FilterValues, describeCredits),
			healthy:  aws.NewLookup(c, statusIDs, describeHealth),
		}}
	})
}

func describeMachines(ctx context.Context, c *aws.Client, wanted []machineName) (map[machineName][]types.Instance, error) {
	var kinds, clusters, names []string
	for _, w := range wanted {
		kinds, clusters, names = append(kinds, w.kind), append(clusters, w.cluster), append(names, w.name)
	}
	slices.Sort(kinds)
	slices.Sort(clusters)
	out := map[machineName][]types.Instance{}
	err := c.EachInstance(ctx, func(i types.Instance) {
		tags := aws.TagMap(i.Tags)
		of := machineName{tags[aws.TagKind], tags[aws.TagCluster], tags[aws.TagResource]}
		out[of] = append(out[of], i)
	}, aws.TagFilter(aws.TagCluster, slices.Compact(clusters)...), aws.TagFilter(aws.TagKind, slices.Compact(kinds)...), aws.TagFilter(aws.TagResource, names...))
	for _, found := range out {
		slices.SortFunc(found, func(a, b types.Instance) int { return aws.CompareIDs(a.InstanceId, b.InstanceId) })
	}
	return out, err
}

func describeAttached(ctx context.Context, c *aws.Client, instances []string) (map[string][]types.Volume, error) {
	found, err := aws.All(ctx, ec2.NewDescribeVolumesPaginator(c.EC2, &ec2.DescribeVolumesInput{Filters: []types.Filter{aws.Filter("attachment.instance-id", instances...)}}),
		func(p *ec2.DescribeVolumesOutput) []types.Volume { return p.Volumes })
	if err != nil {
		return nil, err
	}
	out := map[string][]types.Volume{}
	for _, v := range found {
		for _, a := range v.Attachments {
			id := sdk.ToString(a.InstanceId)
			out[id] = append(out[id], v)
		}
	}
	return out, nil
}

func describeHealth(ctx context.Context, c *aws.Client, ids []string) (map[string]bool, error) {
	out, err := c.EC2.DescribeInstanceStatus(ctx, &ec2.DescribeInstanceStatusInput{InstanceIds: ids})
	if aws.IsCode(err, "InvalidInstanceID.NotFound") {
		return nil, nil // one has disappeared: its waiter will not ask again
	}
	if err != nil {
		return nil, err
	}
	healthy := map[string]bool{}
	for _, s := range out.InstanceStatuses {
		healthy[sdk.ToString(s.InstanceId)] = s.InstanceStatus != nil && s.InstanceStatus.Status == types.SummaryStatusOk
	}
	return healthy, nil
}
