package aws

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// routeTables returns all route tables of a VPC.
func (c *Client) routeTables(ctx context.Context, vpc string) ([]types.RouteTable, error) {
	found, err := describeTables(ctx, c, []string{vpc})
	if err != nil {
		return nil, fmt.Errorf("describe the route tables of %s: %w", vpc, err)
	}
	return found[vpc], nil
}

// tableOf returns the route table that applies to a subnet: the one associated with it, else the
// VPC's main table; nil if tables has neither.
func tableOf(tables []types.RouteTable, subnet string) *types.RouteTable {
	var main *types.RouteTable
	for i, t := range tables {
		if associated(t, subnet) {
			return &tables[i]
		}
		if slices.ContainsFunc(t.Associations, func(a types.RouteTableAssociation) bool { return sdk.ToBool(a.Main) }) {
			main = &tables[i]
		}
	}
	return main
}

// unassociatedSubnets returns the network's subnets without an associated table.
func unassociatedSubnets(tables []types.RouteTable, spec podRoutes) []string {
	return slices.DeleteFunc(slices.Clone(spec.subnets), func(subnet string) bool {
		return slices.ContainsFunc(tables, func(t types.RouteTable) bool { return associated(t, subnet) })
	})
}

// existing returns the subnets with these ids that exist.
func (c *Client) existing(ctx context.Context, ids []string) (map[string]types.Subnet, error) {
	pages := ec2.NewDescribeSubnetsPaginator(c.EC2, &ec2.DescribeSubnetsInput{Filters: []types.Filter{filter("subnet-id", ids...)}})
	out := map[string]types.Subnet{}
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("describe the subnets %v: %w", ids, err)
		}
		for _, s := range page.Subnets {
			out[sdk.ToString(s.SubnetId)] = s
		}
	}
	return out, nil
}

// settledTables returns the VPC's route tables once every subnet of the network has one. It waits
// as long as EC2 may take to be consistent after a change. Tables of the last seconds are without their
// routes.
func (c *Client) settledTables(ctx context.Context, spec podRoutes) ([]types.RouteTable, error) {
	if known := routeMemoryOf(c).settled.recent(spec.vpc, time.Now()); len(known) > 0 && len(unassociatedSubnets(known, spec)) == 0 {
		return known, nil
	}
	var tables []types.RouteTable
	attempts := 0
	err := Poll(ctx, "find the route tables of the network", func(ctx context.Context) (bool, string, error) {
		var err error
		if tables, err = c.sharedTables(ctx, spec.vpc); err != nil {
			return false, "", err
		}
		missing, err := c.missingTable(ctx, spec, tables)
		if attempts++; err == nil && missing != "" && attempts >= SettleAttempts {
			err = fmt.Errorf("%s; run apply again, without -target, so that the network is brought in order first", missing)
		}
		return missing == "", missing, err
	})
	if err == nil {
		routeMemoryOf(c).settled.keep(spec.vpc, tables, time.Now())
	}
	return tables, err
}

// tableCache keeps for a while which route tables a VPC has and which subnets they are associated with, so
// that not every new machine reads the routes of all others.
type tableCache struct {
	mu    sync.Mutex
	known map[string]knownTables // by VPC
}

type knownTables struct {
	tables []types.RouteTable // without their routes
	at     time.Time
}

// tablesKept is how long route tables are kept: a network that is changed meanwhile shows as drift of its
// machines.
const tablesKept = 30 * time.Second

func (k *tableCache) keep(vpc string, tables []types.RouteTable, now time.Time) {
	tables = slices.Clone(tables)
	for n := range tables {
		tables[n].Routes = nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known == nil {
		k.known = map[string]knownTables{}
	}
	k.known[vpc] = knownTables{tables, now}
}

// recent returns the tables of a VPC, none if they are not known or too old.
func (k *tableCache) recent(vpc string, now time.Time) []types.RouteTable {
	k.mu.Lock()
	defer k.mu.Unlock()
	if found, ok := k.known[vpc]; ok && now.Sub(found.at) < tablesKept {
		return slices.Clone(found.tables)
	}
	return nil
}

// missingTable names a subnet of the network without a route table, empty if there is none. The
// main table applies only to subnets of others: the cluster's own have an association, which EC2
// may report later.
func (c *Client) missingTable(ctx context.Context, spec podRoutes, tables []types.RouteTable) (string, error) {
	loose := unassociatedSubnets(tables, spec)
	if len(loose) == 0 {
		return "", nil
	}
	if tableOf(tables, loose[0]) == nil {
		return "subnet " + loose[0] + " has no route table", nil
	}
	found, err := c.existing(ctx, loose)
	if err != nil {
		return "", err
	}
	for _, id := range loose {
		s, ok := found[id]
		if !ok {
			return "subnet " + id + ": not found", nil
		}
		if tags := TagMap(s.Tags); tags[TagCluster] == spec.cluster && tags[TagKind] == kindNetwork {
			return "subnet " + id + ": no route table is associated with it", nil
		}
	}
	return "", nil
}

func associated(t types.RouteTable, subnet string) bool {
	return slices.ContainsFunc(t.Associations, func(a types.RouteTableAssociation) bool { return sdk.ToString(a.SubnetId) == subnet })
}

// routeMemory is what the client keeps about route tables.
type routeMemory struct {
	tables   *lookup[string, []types.RouteTable] // all of a VPC, by its id
	together shared[[]types.RouteTable]          // the same for a refresh, by VPC
	settled  tableCache
}

func routeMemoryOf(c *Client) *routeMemory {
	return Kept(c, func(c *Client) *routeMemory {
		return &routeMemory{tables: newLookup(c, filterValues, describeTables)}
	})
}

func describeTables(ctx context.Context, c *Client, vpcs []string) (map[string][]types.RouteTable, error) {
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

// sharedTables returns all route tables of a VPC, as routeTables does, with a call that it shares with
// all who ask at the same time: each answer has the routes of all machines.
func (c *Client) sharedTables(ctx context.Context, vpc string) ([]types.RouteTable, error) {
	tables, _, err := routeMemoryOf(c).tables.ask(ctx, vpc)
	if err != nil {
		return nil, fmt.Errorf("describe the route tables of %s: %w", vpc, err)
	}
	return slices.Clone(tables), nil
}

// tablesTogether is routeTables with a call that all who refresh share; see shared. asker tells them apart.
func (c *Client) tablesTogether(ctx context.Context, vpc, asker string) ([]types.RouteTable, error) {
	tables, err := routeMemoryOf(c).together.get(ctx, vpc, asker, c.Changes(), func(ctx context.Context) ([]types.RouteTable, error) {
		return c.routeTables(ctx, vpc)
	})
	return slices.Clone(tables), err
}
