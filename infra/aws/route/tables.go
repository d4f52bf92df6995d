// Package route reads the route tables of a VPC, and makes the routes to the pods of machines in them. Which tables a
// network has, and how machines are made, may not enter: packages network and machine say that.
package route

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

// Tables returns all route tables of a VPC.
func Tables(ctx context.Context, c *aws.Client, vpc string) ([]types.RouteTable, error) {
	found, err := describeTables(ctx, c, []string{vpc})
	if err != nil {
		return nil, fmt.Errorf("describe the route tables of %s: %w", vpc, err)
	}
	return found[vpc], nil
}

// TableOf returns the route table that applies to a subnet: the one associated with it, else the
// VPC's main table; nil if tables has neither.
func TableOf(tables []types.RouteTable, subnet string) *types.RouteTable {
	var main *types.RouteTable
	for i, t := range tables {
		if Associated(t, subnet) {
			return &tables[i]
		}
		if slices.ContainsFunc(t.Associations, func(a types.RouteTableAssociation) bool { return sdk.ToBool(a.Main) }) {
			main = &tables[i]
		}
	}
	return main
}

// unassociatedSubnets returns the network's subnets without an associated table.
func unassociatedSubnets(tables []types.RouteTable, spec ToPods) []string {
	return slices.DeleteFunc(slices.Clone(spec.SubnetIDs), func(subnet string) bool {
		return slices.ContainsFunc(tables, func(t types.RouteTable) bool { return Associated(t, subnet) })
	})
}

// existingSubnets returns the subnets with these ids that exist.
func existingSubnets(ctx context.Context, c *aws.Client, ids []string) (map[string]types.Subnet, error) {
	found, err := aws.All(ctx, ec2.NewDescribeSubnetsPaginator(c.EC2, &ec2.DescribeSubnetsInput{Filters: []types.Filter{aws.Filter("subnet-id", ids...)}}),
		func(p *ec2.DescribeSubnetsOutput) []types.Subnet { return p.Subnets })
	if err != nil {
		return nil, fmt.Errorf("describe the subnets %v: %w", ids, err)
	}
	out := map[string]types.Subnet{}
	for _, s := range found {
		out[sdk.ToString(s.SubnetId)] = s
	}
	return out, nil
}

// ConsistentTables returns the VPC's route tables once every subnet of the network has one. It waits
// as long as EC2 may take to be consistent after a change. Tables of the last seconds are without their
// routes.
func ConsistentTables(ctx context.Context, c *aws.Client, spec ToPods) ([]types.RouteTable, error) {
	if known := memoryOf(c).consistent.recent(spec.VPCID, time.Now()); len(known) > 0 && len(unassociatedSubnets(known, spec)) == 0 {
		return known, nil
	}
	var tables []types.RouteTable
	attempts := 0
	err := aws.Poll(ctx, "find the route tables of the network", func(ctx context.Context) (bool, string, error) {
		var err error
		if tables, err = SharedTables(ctx, c, spec.VPCID); err != nil {
			return false, "", err
		}
		missing, err := missingTable(ctx, c, spec, tables)
		if attempts++; err == nil && missing != "" && attempts >= aws.ConsistencyAttempts {
			err = fmt.Errorf("%s; run apply again, without -target, so that the network is brought in order first", missing)
		}
		return missing == "", missing, err
	})
	if err == nil {
		memoryOf(c).consistent.keep(spec.VPCID, tables, time.Now())
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
func missingTable(ctx context.Context, c *aws.Client, spec ToPods, tables []types.RouteTable) (string, error) {
	loose := unassociatedSubnets(tables, spec)
	if len(loose) == 0 {
		return "", nil
	}
	if TableOf(tables, loose[0]) == nil {
		return "subnet " + loose[0] + " has no route table", nil
	}
	found, err := existingSubnets(ctx, c, loose)
	if err != nil {
		return "", err
	}
	for _, id := range loose {
		s, ok := found[id]
		if !ok {
			return "subnet " + id + ": not found", nil
		}
		if tags := aws.TagMap(s.Tags); tags[aws.TagCluster] == spec.Cluster && tags[aws.TagKind] == aws.KindNetwork {
			return "subnet " + id + ": no route table is associated with it", nil
		}
	}
	return "", nil
}

// Associated reports whether a table is associated with a subnet, and not only the main one of its VPC.
func Associated(t types.RouteTable, subnet string) bool {
	return slices.ContainsFunc(t.Associations, func(a types.RouteTableAssociation) bool { return sdk.ToString(a.SubnetId) == subnet })
}

// memory is what the client keeps about route tables.
type memory struct {
	tables     *aws.Lookup[string, []types.RouteTable] // all of a VPC, by its id
	together   aws.Shared[[]types.RouteTable]          // the same for a refresh, by VPC
	consistent tableCache
}

func memoryOf(c *aws.Client) *memory {
	return aws.Kept(c, func(c *aws.Client) *memory {
		return &memory{tables: aws.NewLookup(c, aws.FilterValues, describeTables)}
	})
}

func describeTables(ctx context.Context, c *aws.Client, vpcs []string) (map[string][]types.RouteTable, error) {
	found, err := aws.All(ctx, ec2.NewDescribeRouteTablesPaginator(c.EC2, &ec2.DescribeRouteTablesInput{Filters: []types.Filter{aws.Filter("vpc-id", vpcs...)}}),
		func(p *ec2.DescribeRouteTablesOutput) []types.RouteTable { return p.RouteTables })
	if err != nil {
		return nil, err
	}
	out := map[string][]types.RouteTable{}
	for _, t := range found {
		vpc := sdk.ToString(t.VpcId)
		out[vpc] = append(out[vpc], t)
	}
	for _, tables := range out {
		slices.SortFunc(tables, func(a, b types.RouteTable) int { return aws.CompareIDs(a.RouteTableId, b.RouteTableId) })
	}
	return out, nil
}

// SharedTables returns all route tables of a VPC, as Tables does, with a call that it shares with
// all callers at the same time: each answer has the routes of all machines.
func SharedTables(ctx context.Context, c *aws.Client, vpc string) ([]types.RouteTable, error) {
	tables, _, err := memoryOf(c).tables.Ask(ctx, vpc)
	if err != nil {
		return nil, fmt.Errorf("describe the route tables of %s: %w", vpc, err)
	}
	return slices.Clone(tables), nil
}

// TablesTogether is Tables with a call that all refreshing resources share; see [aws.Shared]. asker
// identifies the resource.
func TablesTogether(ctx context.Context, c *aws.Client, vpc, asker string) ([]types.RouteTable, error) {
	tables, err := memoryOf(c).together.Get(ctx, vpc, asker, c.Changes(), func(ctx context.Context) ([]types.RouteTable, error) {
		return Tables(ctx, c, vpc)
	})
	return slices.Clone(tables), err
}
