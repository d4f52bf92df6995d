package aws

import (
	"context"
	"fmt"
	"slices"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// lookups are the questions that many machines have while they are made and terminated. They are asked
// with filters, for which EC2 has a larger token bucket than for ids.
// https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html
type lookups struct {
	instances lookup[string, types.Instance]        // by id
	machines  lookup[machineName, []types.Instance] // also terminated ones that EC2 still lists
	attached  lookup[string, []types.Volume]        // all volumes of an instance, by its id
	credits   lookup[string, string]                // credit options of instances by id, of those that EC2 lists
	healthy   lookup[string, bool]                  // whether EC2's reachability checks have passed, by instance id
	tables    lookup[string, []types.RouteTable]    // all of a VPC, by its id
}

// machineName is the name of a machine in its cluster.
type machineName struct{ cluster, name string }

// statusIDs is how many ids DescribeInstanceStatus takes.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstanceStatus.html
const statusIDs = 100

func newLookups(c *Client) *lookups {
	return &lookups{
		instances: lookup[string, types.Instance]{limit: filterValues, describe: c.describeInstances},
		machines:  lookup[machineName, []types.Instance]{limit: filterValues, describe: c.describeMachines},
		attached:  lookup[string, []types.Volume]{limit: filterValues, describe: c.describeAttached},
		credits:   lookup[string, string]{limit: filterValues, describe: c.describeCredits},
		healthy:   lookup[string, bool]{limit: statusIDs, describe: c.describeHealth},
		tables:    lookup[string, []types.RouteTable]{limit: filterValues, describe: c.describeTables},
	}
}

func (c *Client) describeInstances(ctx context.Context, ids []string) (map[string]types.Instance, error) {
	out := map[string]types.Instance{}
	err := c.eachInstance(ctx, func(i types.Instance) { out[sdk.ToString(i.InstanceId)] = i }, filter("instance-id", ids...))
	return out, err
}

func (c *Client) describeMachines(ctx context.Context, wanted []machineName) (map[machineName][]types.Instance, error) {
	var clusters, names []string
	for _, w := range wanted {
		clusters, names = append(clusters, w.cluster), append(names, w.name)
	}
	slices.Sort(clusters)
	out := map[machineName][]types.Instance{}
	err := c.eachInstance(ctx, func(i types.Instance) {
		tags := tagMap(i.Tags)
		of := machineName{tags[TagCluster], tags[TagResource]}
		out[of] = append(out[of], i)
	}, tagFilter(TagCluster, slices.Compact(clusters)...), tagFilter(TagKind, kindMachine), tagFilter(TagResource, names...))
	for _, found := range out {
		slices.SortFunc(found, func(a, b types.Instance) int { return compareStrings(a.InstanceId, b.InstanceId) })
	}
	return out, err
}

// eachInstance calls take for each instance that the filters match, in pages of the largest size.
func (c *Client) eachInstance(ctx context.Context, take func(types.Instance), filters ...types.Filter) error {
	pages := ec2.NewDescribeInstancesPaginator(c.EC2, &ec2.DescribeInstancesInput{Filters: filters, MaxResults: sdk.Int32(1000)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				take(i)
			}
		}
	}
	return nil
}

func (c *Client) describeAttached(ctx context.Context, instances []string) (map[string][]types.Volume, error) {
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

func (c *Client) describeHealth(ctx context.Context, ids []string) (map[string]bool, error) {
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

func (c *Client) describeTables(ctx context.Context, vpcs []string) (map[string][]types.RouteTable, error) {
	pages := ec2.NewDescribeRouteTablesPaginator(c.EC2, &ec2.DescribeRouteTablesInput{Filters: []types.Filter{filter("vpc-id", vpcs...)}})
	out := map[string][]types.RouteTable{}
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, t := range page.RouteTables {
			vpc := sdk.ToString(t.VpcId)
			out[vpc] = append(out[vpc], t)
		}
	}
	for _, tables := range out {
		slices.SortFunc(tables, func(a, b types.RouteTable) int { return compareStrings(a.RouteTableId, b.RouteTableId) })
	}
	return out, nil
}

// watch returns an instance as instance does, with a call that it shares with all who ask at the same
// time. An instance that EC2 does not show, perhaps not yet, is asked for again, so many attempts in
// all.
func (c *Client) watch(ctx context.Context, id string, attempts int) (types.Instance, error) {
	for attempt := 1; ; attempt++ {
		i, ok, err := c.lookups.instances.ask(ctx, id)
		switch {
		case err != nil:
			return i, fmt.Errorf("describe instance %s: %w", id, err)
		case ok && slices.Contains(gone, stateOf(i)):
			return i, goneError(i)
		case ok:
			return i, nil
		case attempt >= attempts:
			return i, fmt.Errorf("instance %s %w", id, ErrNotFound)
		}
		select {
		case <-ctx.Done():
			return i, fmt.Errorf("describe instance %s, which EC2 does not show yet: %w", id, context.Cause(ctx))
		case <-time.After(backoff(attempt - 1)):
		}
	}
}

// goneError says that an instance is terminated, or about to be.
func goneError(i types.Instance) error {
	if interrupted(i) {
		return fmt.Errorf("instance %s, a Spot instance, was interrupted by EC2, which needed its capacity or whose price was higher than max_price: it is %s (%s) and %w any more", sdk.ToString(i.InstanceId), stateOf(i), reason(i), ErrNotFound)
	}
	return fmt.Errorf("instance %s is %s (%s) and %w any more", sdk.ToString(i.InstanceId), stateOf(i), reason(i), ErrNotFound)
}

// sharedTables returns all route tables of a VPC, as routeTables does, with a call that it shares with
// all who ask at the same time: each answer has the routes of all machines.
func (c *Client) sharedTables(ctx context.Context, vpc string) ([]types.RouteTable, error) {
	tables, _, err := c.lookups.tables.ask(ctx, vpc)
	if err != nil {
		return nil, fmt.Errorf("describe the route tables of %s: %w", vpc, err)
	}
	return slices.Clone(tables), nil
}
