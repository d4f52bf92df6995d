package aws

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"golang.org/x/sync/errgroup"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// podRoutes are the wanted routes to the pods of one machine.
type podRoutes struct {
	cluster, machine string
	vpc              string
	// subnets are the ids of all subnets of the network: every table that applies to one of them gets the route.
	subnets []string
	// routed are the tables that got the route earlier. A route in them that leads elsewhere is corrected.
	routed []string
	// pods is the network that is routed to the machine, and former the one that was before; zero if there is none.
	pods, former netip.Prefix
}

// withoutGone returns the routes without the subnets that do not exist, to which the main table would
// seem to apply. It asks EC2 only if that table lacks the route.
func (c *Client) withoutGone(ctx context.Context, spec podRoutes, tables []types.RouteTable, networkInterface string) (podRoutes, error) {
	loose := unassociatedSubnets(tables, spec)
	if len(loose) == 0 || !spec.pods.IsValid() {
		return spec, nil
	}
	main := tableOf(tables, loose[0])
	if main == nil || slices.Contains(leading(tables, spec, networkInterface), sdk.ToString(main.RouteTableId)) {
		return spec, nil
	}
	found, err := c.existing(ctx, loose)
	if err != nil {
		return spec, err
	}
	spec.subnets = slices.DeleteFunc(slices.Clone(spec.subnets), func(id string) bool {
		_, exists := found[id]
		return slices.Contains(loose, id) && !exists
	})
	return spec, nil
}

// leading returns the ids of the tables with a route to the machine's pods that leads to the
// machine.
func leading(tables []types.RouteTable, spec podRoutes, networkInterface string) []string {
	var out []string
	for _, t := range tables {
		for _, to := range []netip.Prefix{spec.pods, spec.former} {
			if r := findRoute(t, to); to.IsValid() && r != nil && sdk.ToString(r.NetworkInterfaceId) == networkInterface {
				out = append(out, sdk.ToString(t.RouteTableId))
			}
		}
	}
	return slices.Compact(out)
}

// podTables returns the ids of the tables that apply to the network's subnets, each once.
func podTables(tables []types.RouteTable, spec podRoutes) []string {
	var out []string
	for _, subnet := range spec.subnets {
		if t := tableOf(tables, subnet); t != nil {
			out = append(out, sdk.ToString(t.RouteTableId))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// tableRepair is the repair of a route in one table.
type tableRepair struct {
	Repair
	table string // its id
}

// routeRepairs compares the routes to a machine's pods with the spec and returns one repair per
// table with differences.
func (c *Client) routeRepairs(spec podRoutes, tables []types.RouteTable, id, networkInterface string) []tableRepair {
	var out []tableRepair
	wanted := podTables(tables, spec)
	for _, t := range tables {
		table := sdk.ToString(t.RouteTableId)
		add := func(to netip.Prefix, f finding.Finding, fix func(context.Context) error) {
			f.Subject, f.Kind, f.Target = spec.machine, finding.Route, fmt.Sprintf("%s in %s", to, table)
			out = append(out, tableRepair{RepairOf(f, fix), table})
		}
		drop := func(to netip.Prefix) {
			add(to, finding.Finding{Problem: finding.NotWanted}, func(ctx context.Context) error { return c.deleteRoute(ctx, table, to) })
		}
		held, routed := slices.Contains(wanted, table), slices.Contains(spec.routed, table)
		if old := spec.former; old.IsValid() && old != spec.pods && (held || routed) {
			if r := findRoute(t, old); r != nil && sdk.ToString(r.InstanceId) == id {
				drop(old)
			}
		}
		if !spec.pods.IsValid() {
			continue
		}
		r := findRoute(t, spec.pods)
		switch {
		case held && (r == nil || targetOf(*r) != networkInterface):
			turn := routed && (!spec.former.IsValid() || spec.former == spec.pods)
			f := finding.Finding{Problem: finding.Missing, Wanted: networkInterface}
			if r != nil {
				f.Problem, f.Found = finding.Value, targetOf(*r)
			}
			add(spec.pods, f, func(ctx context.Context) error {
				return c.putPodRoute(ctx, podRoute{cluster: spec.cluster, table: table, to: spec.pods, networkInterface: networkInterface, turn: turn}, r)
			})
		case !held && routed && r != nil && sdk.ToString(r.InstanceId) == id:
			drop(spec.pods)
		}
	}
	return out
}

// podRoute is the route to a machine's pods in one table.
type podRoute struct {
	cluster, table   string
	to               netip.Prefix
	networkInterface string
	// turn allows the replacement of a route that leads elsewhere.
	turn bool
}

// routeBudget is how long another machine may take to give up the route to its pods: it is drained
// first.
const routeBudget = 10 * time.Minute

// putPodRoute makes the route, or replaces the one found. A route that is not this machine's is
// replaced only if its target does not exist any more. If it is another machine's of the cluster,
// putPodRoute waits: Terraform deletes or changes that machine at the same time.
func (c *Client) putPodRoute(ctx context.Context, r podRoute, found *types.Route) error {
	ctx, cancel := context.WithTimeoutCause(ctx, routeBudget, fmt.Errorf("not within %s", routeBudget))
	defer cancel()
	return Poll(ctx, fmt.Sprintf("route %s in %s", r.to, r.table), func(ctx context.Context) (bool, string, error) {
		held, err := c.tryPodRoute(ctx, r, found)
		if held == "" || err != nil {
			return true, "", err
		}
		found, err = c.podRouteIn(ctx, r)
		return false, held, err
	})
}

// tryPodRoute makes one attempt. If another machine of the cluster has the route, it returns its
// name.
func (c *Client) tryPodRoute(ctx context.Context, r podRoute, found *types.Route) (held string, err error) {
	destination := sdk.String(r.to.String())
	if found == nil {
		_, err := c.EC2.CreateRoute(ctx, &ec2.CreateRouteInput{
			RouteTableId: &r.table, DestinationCidrBlock: destination, NetworkInterfaceId: &r.networkInterface,
		}, c.RetryUntilKnown())
		if !IsCode(err, "RouteAlreadyExists") {
			return "", err
		}
		// An earlier call, whose response was lost, or someone else made the route.
		looked, failed := c.podRouteIn(ctx, r)
		if failed != nil || looked == nil {
			return "", errors.Join(failed, err)
		}
		found = looked
	}
	if targetOf(*found) == r.networkInterface {
		return "", nil
	}
	if !r.turn {
		if held, err = c.holder(ctx, r, *found); err != nil || held != "" {
			return held, err
		}
	}
	_, err = c.EC2.ReplaceRoute(ctx, &ec2.ReplaceRouteInput{
		RouteTableId: &r.table, DestinationCidrBlock: destination, NetworkInterfaceId: &r.networkInterface,
	}, c.RetryUntilKnown())
	return "", err
}

// podRouteIn returns the route in its table.
func (c *Client) podRouteIn(ctx context.Context, r podRoute) (*types.Route, error) {
	out, err := c.EC2.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{RouteTableIds: []string{r.table}}, c.RetryUntilKnown())
	if err != nil {
		return nil, err
	}
	for _, t := range out.RouteTables {
		return findRoute(t, r.to), nil
	}
	return nil, nil
}

// holder returns the other machine of the cluster to which the route leads; empty if its target
// does not exist any more. A route to anything else is an error.
func (c *Client) holder(ctx context.Context, r podRoute, found types.Route) (string, error) {
	if dead, err := c.dead(ctx, found); err != nil || dead {
		return "", err
	}
	if id := sdk.ToString(found.InstanceId); id != "" {
		i, err := c.Instance(ctx, id)
		if errors.Is(err, ErrNotFound) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		if tags := TagMap(i.Tags); tags[TagCluster] == r.cluster && tags[TagKind] == kindMachine {
			return fmt.Sprintf("it leads to %s (%s) of this cluster", tags[TagResource], id), nil
		}
	}
	return "", fmt.Errorf("it leads to %s and is not this machine's: remove it, or give the machine another network for its pods", targetOf(found))
}

// dead reports whether a route's target does not exist any more, as opposed to a stopped instance.
func (c *Client) dead(ctx context.Context, r types.Route) (bool, error) {
	if r.State != types.RouteStateBlackhole {
		return false, nil
	}
	if sdk.ToString(r.InstanceId) == "" {
		return true, nil
	}
	_, err := c.Instance(ctx, *r.InstanceId)
	if errors.Is(err, ErrNotFound) {
		return true, nil
	}
	return false, err
}

// deletePodRoutes removes the routes to a machine's pods from the tables of the network and from
// those that got one earlier. It leaves routes that now lead to another machine. tables are as they
// were before the instance was terminated.
func (c *Client) deletePodRoutes(ctx context.Context, spec podRoutes, tables []types.RouteTable, id string) error {
	ours := append(podTables(tables, spec), spec.routed...)
	g, gctx := errgroup.WithContext(ctx)
	for _, t := range tables {
		r := findRoute(t, spec.pods)
		if r == nil || !slices.Contains(ours, sdk.ToString(t.RouteTableId)) {
			continue
		}
		g.Go(func() error {
			if sdk.ToString(r.InstanceId) != id {
				if dead, err := c.dead(gctx, *r); err != nil || !dead {
					return err
				}
			}
			return c.deleteRoute(gctx, sdk.ToString(t.RouteTableId), spec.pods)
		})
	}
	return g.Wait()
}

func (c *Client) deleteRoute(ctx context.Context, table string, to netip.Prefix) error {
	_, err := c.EC2.DeleteRoute(ctx, &ec2.DeleteRouteInput{RouteTableId: &table, DestinationCidrBlock: sdk.String(to.String())})
	if err = Ignore(err, "InvalidRoute.NotFound", "InvalidRouteTableID.NotFound"); err != nil {
		return fmt.Errorf("delete route %s in %s: %w", to, table, err)
	}
	return nil
}

func findRoute(t types.RouteTable, destination netip.Prefix) *types.Route {
	for k, r := range t.Routes {
		if sdk.ToString(r.DestinationCidrBlock) == destination.String() {
			return &t.Routes[k]
		}
	}
	return nil
}

// targetOf names the target of a route.
func targetOf(r types.Route) string {
	for _, t := range []*string{
		r.NetworkInterfaceId, r.GatewayId, r.NatGatewayId, r.TransitGatewayId,
		r.VpcPeeringConnectionId, r.EgressOnlyInternetGatewayId, r.InstanceId,
	} {
		if s := sdk.ToString(t); s != "" {
			return s
		}
	}
	return "nothing"
}
