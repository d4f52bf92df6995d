package route

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

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// ToPods are the wanted routes to the pods of one machine.
type ToPods struct {
	Cluster, Machine string
	VPCID            string
	// SubnetIDs are those of all subnets of the network: every table that applies to one of them gets the route.
	SubnetIDs []string
	// RoutedTables are the ids of tables that got the route earlier. A route in them that leads elsewhere is corrected.
	RoutedTables []string
	// PodCIDR is the network that is routed to the machine, and FormerPodCIDR the one that was before; zero if there is none.
	PodCIDR, FormerPodCIDR netip.Prefix
}

// WithoutGone returns the routes without the subnets that do not exist, to which the main table would
// seem to apply. It asks EC2 only if that table lacks the route.
func WithoutGone(ctx context.Context, c *aws.Client, spec ToPods, tables []types.RouteTable, networkInterface string) (ToPods, error) {
	loose := unassociatedSubnets(tables, spec)
	if len(loose) == 0 || !spec.PodCIDR.IsValid() {
		return spec, nil
	}
	main := TableOf(tables, loose[0])
	if main == nil || slices.Contains(Leading(tables, spec, networkInterface), sdk.ToString(main.RouteTableId)) {
		return spec, nil
	}
	found, err := existingSubnets(ctx, c, loose)
	if err != nil {
		return spec, err
	}
	spec.SubnetIDs = slices.DeleteFunc(slices.Clone(spec.SubnetIDs), func(id string) bool {
		_, exists := found[id]
		return slices.Contains(loose, id) && !exists
	})
	return spec, nil
}

// Leading returns the ids of the tables with a route to the machine's pods that leads to the
// machine.
func Leading(tables []types.RouteTable, spec ToPods, networkInterface string) []string {
	var out []string
	for _, t := range tables {
		for _, to := range []netip.Prefix{spec.PodCIDR, spec.FormerPodCIDR} {
			if r := findRoute(t, to); to.IsValid() && r != nil && sdk.ToString(r.NetworkInterfaceId) == networkInterface {
				out = append(out, sdk.ToString(t.RouteTableId))
			}
		}
	}
	return slices.Compact(out)
}

// TablesFor returns the ids of the tables that apply to the network's subnets, each once.
func TablesFor(tables []types.RouteTable, spec ToPods) []string {
	var out []string
	for _, subnet := range spec.SubnetIDs {
		if t := TableOf(tables, subnet); t != nil {
			out = append(out, sdk.ToString(t.RouteTableId))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Repair is the repair of a route in one table.
type Repair struct {
	aws.Repair
	Table string // its id
}

// Repairs compares the routes to a machine's pods with the spec and returns one repair per
// table with differences.
func Repairs(c *aws.Client, spec ToPods, tables []types.RouteTable, id, networkInterface string) []Repair {
	var out []Repair
	wanted := TablesFor(tables, spec)
	for _, t := range tables {
		table := sdk.ToString(t.RouteTableId)
		add := func(to netip.Prefix, f finding.Finding, fix func(context.Context) error) {
			f.Subject, f.Kind, f.Target = spec.Machine, finding.Route, fmt.Sprintf("%s in %s", to, table)
			out = append(out, Repair{aws.RepairOf(f, fix), table})
		}
		drop := func(to netip.Prefix) {
			add(to, finding.Finding{Problem: finding.NotWanted}, func(ctx context.Context) error { return deleteRoute(ctx, c, table, to) })
		}
		held, routed := slices.Contains(wanted, table), slices.Contains(spec.RoutedTables, table)
		if old := spec.FormerPodCIDR; old.IsValid() && old != spec.PodCIDR && (held || routed) {
			if r := findRoute(t, old); r != nil && sdk.ToString(r.InstanceId) == id {
				drop(old)
			}
		}
		if !spec.PodCIDR.IsValid() {
			continue
		}
		r := findRoute(t, spec.PodCIDR)
		switch {
		case held && (r == nil || TargetOf(*r) != networkInterface):
			turn := routed && (!spec.FormerPodCIDR.IsValid() || spec.FormerPodCIDR == spec.PodCIDR)
			f := finding.Finding{Problem: finding.Missing, Wanted: networkInterface}
			if r != nil {
				f.Problem, f.Found = finding.Value, TargetOf(*r)
			}
			add(spec.PodCIDR, f, func(ctx context.Context) error {
				return putPodRoute(ctx, c, podRoute{cluster: spec.Cluster, table: table, to: spec.PodCIDR, networkInterface: networkInterface, turn: turn}, r)
			})
		case !held && routed && r != nil && sdk.ToString(r.InstanceId) == id:
			drop(spec.PodCIDR)
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

// putPodRoute makes the route, or replaces the one found. A route to another target is replaced
// only if this target no longer exists. If the target is another machine of the cluster,
// putPodRoute waits: Terraform deletes or changes that machine at the same time.
func putPodRoute(ctx context.Context, c *aws.Client, r podRoute, found *types.Route) error {
	ctx, cancel := patience.Within(ctx, routeBudget)
	defer cancel()
	return aws.Poll(ctx, fmt.Sprintf("route %s in %s", r.to, r.table), func(ctx context.Context) (bool, string, error) {
		held, err := tryPodRoute(ctx, c, r, found)
		if held == "" || err != nil {
			return true, "", err
		}
		found, err = podRouteIn(ctx, c, r)
		return false, held, err
	})
}

// tryPodRoute makes one attempt. If another machine of the cluster has the route, or EC2 does not
// show whose it is yet, held says so.
func tryPodRoute(ctx context.Context, c *aws.Client, r podRoute, found *types.Route) (held string, err error) {
	destination := sdk.String(r.to.String())
	if found == nil {
		_, err := r.create(ctx, c)
		if !aws.IsCode(err, "RouteAlreadyExists") {
			return "", err
		}
		// An earlier call, whose response was lost, or someone else made the route.
		looked, failed := podRouteIn(ctx, c, r)
		if failed != nil {
			return "", errors.Join(failed, err)
		}
		if looked == nil {
			return "EC2 has the route and does not show it yet", nil
		}
		found = looked
	}
	if TargetOf(*found) == r.networkInterface {
		return "", nil
	}
	if !r.turn {
		if held, err = leadsTo(ctx, c, r, *found); err != nil || held != "" {
			return held, err
		}
	}
	_, err = c.EC2.ReplaceRoute(ctx, &ec2.ReplaceRouteInput{
		RouteTableId: &r.table, DestinationCidrBlock: destination, NetworkInterfaceId: &r.networkInterface,
	}, c.RetryUntilKnown())
	if goneRoute(err) { // EC2 shows a route that has been deleted, such as that of a predecessor
		if _, err = r.create(ctx, c); aws.IsCode(err, "RouteAlreadyExists") {
			return "it is deleted and made at the same time", nil
		}
	}
	return "", err
}

func (r podRoute) create(ctx context.Context, c *aws.Client) (*ec2.CreateRouteOutput, error) {
	return c.EC2.CreateRoute(ctx, &ec2.CreateRouteInput{
		RouteTableId: &r.table, DestinationCidrBlock: sdk.String(r.to.String()), NetworkInterfaceId: &r.networkInterface,
	}, c.RetryUntilKnown())
}

// podRouteIn returns the route in its table.
func podRouteIn(ctx context.Context, c *aws.Client, r podRoute) (*types.Route, error) {
	out, err := c.EC2.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{RouteTableIds: []string{r.table}}, c.RetryUntilKnown())
	if err != nil {
		return nil, err
	}
	for _, t := range out.RouteTables {
		return findRoute(t, r.to), nil
	}
	return nil, nil
}

// leadsTo returns the other machine of the cluster to which the route leads; empty if its target
// does not exist any more. A route to anything else is an error.
func leadsTo(ctx context.Context, c *aws.Client, r podRoute, found types.Route) (string, error) {
	if dead, err := dead(ctx, c, found); err != nil || dead {
		return "", err
	}
	if id := sdk.ToString(found.InstanceId); id != "" {
		i, err := c.Instance(ctx, id)
		if errors.Is(err, aws.ErrNotFound) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		if tags := aws.TagMap(i.Tags); tags[aws.TagCluster] == r.cluster && tags[aws.TagKind] == aws.KindMachine {
			return fmt.Sprintf("it leads to %s (%s) of this cluster", tags[aws.TagResource], id), nil
		}
	}
	return "", fmt.Errorf("it leads to %s and is not this machine's: remove it, or give the machine another network for its pods", TargetOf(found))
}

// dead reports whether a route's target does not exist any more, as opposed to a stopped instance.
func dead(ctx context.Context, c *aws.Client, r types.Route) (bool, error) {
	if r.State != types.RouteStateBlackhole {
		return false, nil
	}
	if sdk.ToString(r.InstanceId) == "" {
		return true, nil
	}
	_, err := c.Instance(ctx, *r.InstanceId)
	if errors.Is(err, aws.ErrNotFound) {
		return true, nil
	}
	return false, err
}

// Delete removes the routes to a machine's pods from the tables of the network and from
// those that got one earlier. It leaves routes that now lead to another machine. tables are as they
// were before the instance was terminated.
func Delete(ctx context.Context, c *aws.Client, spec ToPods, tables []types.RouteTable, id string) error {
	ours := append(TablesFor(tables, spec), spec.RoutedTables...)
	g, gctx := parallel.WithContext(ctx)
	for _, t := range tables {
		r := findRoute(t, spec.PodCIDR)
		if r == nil || !slices.Contains(ours, sdk.ToString(t.RouteTableId)) {
			continue
		}
		g.Go(func() error {
			if sdk.ToString(r.InstanceId) != id {
				if dead, err := dead(gctx, c, *r); err != nil || !dead {
					return err
				}
			}
			return deleteRoute(gctx, c, sdk.ToString(t.RouteTableId), spec.PodCIDR)
		})
	}
	return g.Wait()
}

func deleteRoute(ctx context.Context, c *aws.Client, table string, to netip.Prefix) error {
	_, err := c.EC2.DeleteRoute(ctx, &ec2.DeleteRouteInput{RouteTableId: &table, DestinationCidrBlock: sdk.String(to.String())})
	if err = aws.Ignore(err, "InvalidRoute.NotFound", "InvalidRouteTableID.NotFound"); err != nil {
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

// TargetOf names the target of a route.
func TargetOf(r types.Route) string {
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
