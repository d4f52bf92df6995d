package aws

import (
	"context"
	"slices"
	"sync/atomic"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// machineMemory is what the client keeps about machines.
type machineMemory struct {
	lookups machineLookups
	images  imageCache
	booting atomic.Int32 // machines that are waited for on SSH

	// What a refresh asks once for all machines of a cluster, by cluster.
	together shared[machinesTogether]
	credits  shared[map[string]string] // see describeCredits
}

// machineLookups are the questions that many machines have while they are made and terminated. They are asked
// with filters, for which EC2 has a larger token bucket than for ids.
// https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html
type machineLookups struct {
	machines *lookup[machineName, []types.Instance] // also terminated ones that EC2 still lists
	attached *lookup[string, []types.Volume]        // all volumes of an instance, by its id
	credits  *lookup[string, string]                // credit options of instances by id, of those that EC2 lists
	healthy  *lookup[string, bool]                  // whether EC2's reachability checks have passed, by instance id
}

// machineName is the name of a machine in its cluster.
type machineName struct{ cluster, name string }

// statusIDs is how many ids DescribeInstanceStatus takes.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstanceStatus.html
const statusIDs = 100

func machineMemoryOf(c *Client) *machineMemory {
	return Kept(c, func(c *Client) *machineMemory {
		return &machineMemory{lookups: machineLookups{
			machines: newLookup(c, filterValues, describeMachines),
			attached: newLookup(c, filterValues, describeAttached),
			credits:  newLookup(c, filterValues, describeCredits),
			healthy:  newLookup(c, statusIDs, describeHealth),
		}}
	})
}

func describeMachines(ctx context.Context, c *Client, wanted []machineName) (map[machineName][]types.Instance, error) {
	var clusters, names []string
	for _, w := range wanted {
		clusters, names = append(clusters, w.cluster), append(names, w.name)
	}
	slices.Sort(clusters)
	out := map[machineName][]types.Instance{}
	err := c.eachInstance(ctx, func(i types.Instance) {
		tags := TagMap(i.Tags)
		of := machineName{tags[TagCluster], tags[TagResource]}
		out[of] = append(out[of], i)
	}, TagFilter(TagCluster, slices.Compact(clusters)...), TagFilter(TagKind, kindMachine), TagFilter(TagResource, names...))
	for _, found := range out {
		slices.SortFunc(found, func(a, b types.Instance) int { return compareStrings(a.InstanceId, b.InstanceId) })
	}
	return out, err
}

func describeAttached(ctx context.Context, c *Client, instances []string) (map[string][]types.Volume, error) {
	pages := ec2.NewDescribeVolumesPaginator(c.EC2, &ec2.DescribeVolumesInput{Filters: []types.Filter{filter("attachment.instance-id", instances...)}})
	out := map[string][]types.Volume{}
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, v := range page.Volumes {
			for _, a := range v.Attachments {
				id := sdk.ToString(a.InstanceId)
				out[id] = append(out[id], v)
			}
		}
	}
	return out, nil
}

func describeHealth(ctx context.Context, c *Client, ids []string) (map[string]bool, error) {
	out, err := c.EC2.DescribeInstanceStatus(ctx, &ec2.DescribeInstanceStatusInput{InstanceIds: ids})
	if IsCode(err, "InvalidInstanceID.NotFound") {
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
