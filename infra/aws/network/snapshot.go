package network

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/route"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
)

// snapshot is everything that EC2 knows of a network.
type snapshot struct {
	adopted bool
	claim   aws.Claim
	vpc     *types.Vpc
	// extra are further VPCs with the cluster's tags, left by a creation whose response was lost.
	extra   []types.Vpc
	subnets []types.Subnet
	tables  []types.RouteTable // all that were listed; see route.TableOf and ownTables
	nats    []types.NatGateway // also deleted ones; see natGateways
	// natAddresses are the Elastic IPs of NAT gateways.
	natAddresses []types.Address
	endpoints    []types.Ec2InstanceConnectEndpoint // of ours, see endpoint
	known        Network
	mine         func(id *string, tags []types.Tag) bool
	gateway      *types.InternetGateway
	// spare are further gateways of ours, left by calls whose response was lost.
	spare  []types.InternetGateway
	groups map[aws.MachineRole]types.SecurityGroup
	// ignored are the groups' rules that belong to others.
	ignored map[groupRule]bool
}

// takeSnapshot takes a snapshot of the VPC with a known id, or else of the one with the cluster's
// tags. It makes one round of parallel calls, and then reads the rules to ignore.
func takeSnapshot(ctx context.Context, c *aws.Client, spec Spec) (snapshot, error) {
	tagged := []types.Filter{aws.TagFilter(aws.TagCluster, spec.Cluster), aws.TagFilter(aws.TagKind, aws.KindNetwork)}
	within := tagged
	vpcs := &ec2.DescribeVpcsInput{Filters: tagged}
	id := spec.VPCID
	if id == "" {
		id = spec.Known.VPCID
	}
	if id != "" {
		within = []types.Filter{aws.Filter("vpc-id", id)}
		vpcs = &ec2.DescribeVpcsInput{VpcIds: []string{id}}
	}

	var (
		s        = snapshot{adopted: spec.adopts(), claim: spec.Claim, known: spec.Known, mine: spec.mine(), groups: map[aws.MachineRole]types.SecurityGroup{}}
		found    []types.Vpc
		gateways []types.InternetGateway
		groups   []types.SecurityGroup
	)
	g, gctx := parallel.WithContext(ctx)
	g.Go(func() (err error) {
		found, err = aws.All(gctx, ec2.NewDescribeVpcsPaginator(c.EC2, vpcs), func(p *ec2.DescribeVpcsOutput) []types.Vpc { return p.Vpcs }, c.RetryInDoubt())
		return err
	})
	g.Go(func() (err error) {
		s.subnets, err = lookSubnets(gctx, c, spec, within)
		return err
	})
	g.Go(func() (err error) {
		s.tables, err = listTables(gctx, c, within...)
		return err
	})
	g.Go(func() (err error) {
		if !spec.adopts() {
			gateways, err = findGateways(gctx, c, id, tagged)
		}
		return err
	})
	g.Go(func() (err error) {
		if spec.mayHaveNATGateways() {
			s.nats, s.natAddresses, err = natParts(gctx, c, spec, tagged)
		}
		return err
	})
	g.Go(func() (err error) {
		if spec.mayConnect() {
			s.endpoints, err = connectParts(gctx, c, spec, within)
		}
		return err
	})
	g.Go(func() (err error) {
		groups, err = listGroups(gctx, c, within...)
		return err
	})
	err := g.Wait()
	if err != nil {
		if id != "" && aws.IsCode(err, "InvalidVpcID.NotFound") {
			return s, fmt.Errorf("VPC %s of cluster %s %w", id, spec.Cluster, aws.ErrNotFound)
		}
		return s, fmt.Errorf("look at the network of cluster %s: %w", spec.Cluster, err)
	}
	if spec.ownOnly {
		found = slices.DeleteFunc(found, func(v types.Vpc) bool { return aws.TagMap(v.Tags)[aws.TagClaim] != spec.Claim.ID })
	}
	if id != "" || spec.ownOnly { // what another is making under the same name
		gateways = slices.DeleteFunc(gateways, func(g types.InternetGateway) bool { return len(g.Attachments) == 0 && s.others(g.Tags) })
	}
	s.choose(found)
	s.narrow(gateways, groups, spec.Known)
	if s.ignored, err = ignoredRules(ctx, c, spec.IgnoreRules, s.groups); err != nil {
		return s, fmt.Errorf("look at the network of cluster %s: %w", spec.Cluster, err)
	}
	if s.adopted { // in the order of the spec
		slices.SortFunc(s.subnets, func(a, b types.Subnet) int {
			return slices.Index(spec.SubnetIDs, sdk.ToString(a.SubnetId)) - slices.Index(spec.SubnetIDs, sdk.ToString(b.SubnetId))
		})
	}
	return s, nil
}

// lookSubnets returns the adopted subnets that exist, or else the subnets matching within.
func lookSubnets(ctx context.Context, c *aws.Client, spec Spec, within []types.Filter) ([]types.Subnet, error) {
	if spec.adopts() {
		if len(spec.SubnetIDs) == 0 {
			return nil, nil // without ids EC2 would list all subnets
		}
		out, err := c.EC2.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{SubnetIds: spec.SubnetIDs}, c.RetryInDoubt())
		if err == nil {
			return out.Subnets, nil
		}
		if !aws.IsCode(err, "InvalidSubnetID.NotFound", "InvalidSubnetId.NotFound") {
			return nil, err
		}
		within = []types.Filter{aws.Filter("subnet-id", spec.SubnetIDs...)} // a filter does not fail if one is missing
	}
	return listSubnets(ctx, c, within...)
}

// findGateways returns the gateway attached to the VPC, else those with the cluster's tags.
func findGateways(ctx context.Context, c *aws.Client, vpc string, tagged []types.Filter) ([]types.InternetGateway, error) {
	if vpc != "" {
		found, err := listGateways(ctx, c, aws.Filter("attachment.vpc-id", vpc))
		if err != nil || len(found) > 0 {
			return found, err
		}
	}
	return listGateways(ctx, c, tagged...)
}

// mine returns a function that recognises our own resources in a shared VPC by the cluster's tags
// or by a known id.
func (s Spec) mine() func(*string, []types.Tag) bool {
	known := map[string]bool{s.Known.VPCID: true, s.Known.InternetGatewayID: true}
	for _, n := range s.Known.Subnets {
		known[n.ID] = true
	}
	for _, id := range s.Known.RouteTables {
		known[id] = true
	}
	for _, n := range s.Known.NATGateways {
		known[n.ID], known[n.AllocationID] = true, true
	}
	for _, id := range s.Known.SecurityGroups {
		known[id] = true
	}
	known[s.Known.Connect.EndpointID], known[s.Known.Connect.SecurityGroupID] = true, true
	delete(known, "")
	return func(id *string, tags []types.Tag) bool {
		m := aws.TagMap(tags)
		return known[sdk.ToString(id)] || m[aws.TagCluster] == s.Cluster && m[aws.TagKind] == aws.KindNetwork
	}
}

// choose selects the VPC with the most parts. There are several only after an interruption.
func (s *snapshot) choose(vpcs []types.Vpc) {
	if len(vpcs) == 0 {
		return
	}
	subnets := map[string]int{}
	for _, n := range s.subnets {
		subnets[sdk.ToString(n.VpcId)]++
	}
	slices.SortFunc(vpcs, func(a, b types.Vpc) int {
		if d := subnets[sdk.ToString(b.VpcId)] - subnets[sdk.ToString(a.VpcId)]; d != 0 {
			return d
		}
		return aws.CompareIDs(a.VpcId, b.VpcId)
	})
	s.vpc, s.extra = &vpcs[0], vpcs[1:]
}

// narrow keeps what belongs to the chosen VPC and to us.
func (s *snapshot) narrow(gateways []types.InternetGateway, groups []types.SecurityGroup, known Network) {
	id := s.vpcID()
	s.endpoints = slices.DeleteFunc(s.endpoints, func(e types.Ec2InstanceConnectEndpoint) bool { return sdk.ToString(e.VpcId) != id })
	s.subnets = slices.DeleteFunc(s.subnets, func(n types.Subnet) bool {
		return sdk.ToString(n.VpcId) != id || !s.adopted && !s.mine(n.SubnetId, n.Tags)
	})
	s.tables = slices.DeleteFunc(s.tables, func(t types.RouteTable) bool { return sdk.ToString(t.VpcId) != id })
	slices.SortFunc(s.subnets, func(a, b types.Subnet) int { return aws.CompareIDs(a.SubnetId, b.SubnetId) })
	slices.SortFunc(s.tables, func(a, b types.RouteTable) int { return aws.CompareIDs(a.RouteTableId, b.RouteTableId) })
	slices.SortFunc(gateways, func(a, b types.InternetGateway) int {
		return aws.CompareIDs(a.InternetGatewayId, b.InternetGatewayId)
	})
	// The attached gateway comes first. One that is not attached had its attachment interrupted or
	// undone.
	slices.SortStableFunc(gateways, func(a, b types.InternetGateway) int { return len(b.Attachments) - len(a.Attachments) })
	for _, w := range gateways {
		switch {
		case len(w.Attachments) > 0 && !attachedTo(w, id):
		case s.gateway == nil:
			s.gateway = &w
		default:
			s.spare = append(s.spare, w)
		}
	}
	for _, g := range groups {
		if sdk.ToString(g.VpcId) != id || !s.mine(g.GroupId, g.Tags) {
			continue
		}
		role := aws.MachineRole(aws.TagMap(g.Tags)[aws.TagResource])
		if known.Connect.SecurityGroupID == sdk.ToString(g.GroupId) {
			role = roleConnect
		}
		for r, groupID := range known.SecurityGroups {
			if groupID == sdk.ToString(g.GroupId) {
				role = r
			}
		}
		s.groups[role] = g
	}
}

// others reports whether the tags have the claim of another owner.
func (s *snapshot) others(tags []types.Tag) bool {
	id := aws.TagMap(tags)[aws.TagClaim]
	return id != "" && id != s.claim.ID
}

func (s *snapshot) vpcID() string {
	if s.vpc == nil {
		return ""
	}
	return sdk.ToString(s.vpc.VpcId)
}

// ownTables returns our own route tables by name, associated or not.
func (s *snapshot) ownTables() map[string]*types.RouteTable {
	out := map[string]*types.RouteTable{}
	for i, t := range s.tables {
		if s.adopted || !s.mine(t.RouteTableId, t.Tags) {
			continue
		}
		name := s.nameOfTable(t)
		if _, double := out[name]; !double || s.known.RouteTables[name] == sdk.ToString(t.RouteTableId) {
			out[name] = &s.tables[i]
		}
	}
	return out
}

// subnet returns our own subnet with a network.
func (s *snapshot) subnet(cidr netip.Prefix) *types.Subnet {
	for i, n := range s.subnets {
		if sdk.ToString(n.CidrBlock) == cidr.String() {
			return &s.subnets[i]
		}
	}
	return nil
}

// network returns what there is of the network. Its subnets are in the order of places; in an adopted
// VPC, in that of the specification.
func (s *snapshot) network(spec Spec) Network {
	n := Network{Cluster: spec.Cluster, VPCID: s.vpcID(), SecurityGroups: map[aws.MachineRole]string{}, RouteTables: map[string]string{}, NATGateways: s.natGateways()}
	if s.vpc != nil {
		n.VPCCIDR, _ = netip.ParsePrefix(sdk.ToString(s.vpc.CidrBlock))
	}
	add := func(subnet types.Subnet, table *types.RouteTable, public bool) {
		found := Subnet{ID: sdk.ToString(subnet.SubnetId), AvailabilityZone: sdk.ToString(subnet.AvailabilityZone), Public: public}
		found.CIDR, _ = netip.ParsePrefix(sdk.ToString(subnet.CidrBlock))
		if table != nil {
			found.RouteTableID = sdk.ToString(table.RouteTableId)
		}
		n.Subnets = append(n.Subnets, found)
	}
	if s.adopted {
		for _, subnet := range s.subnets {
			table := route.TableOf(s.tables, sdk.ToString(subnet.SubnetId))
			add(subnet, table, table != nil && leadsOut(*table))
			if zone := sdk.ToString(subnet.AvailabilityZone); !slices.Contains(n.Zones, zone) {
				n.Zones = append(n.Zones, zone)
			}
		}
	} else {
		tables := s.ownTables()
		n.Zones = slices.Clone(spec.zones())
		for _, p := range spec.places() {
			if subnet := s.subnet(p.cidr); subnet != nil {
				n.Zones[p.zone] = sdk.ToString(subnet.AvailabilityZone)
				add(*subnet, tables[p.table()], p.public) // the table is, or will be, the subnet's
			}
		}
		for name, t := range tables {
			n.RouteTables[name] = sdk.ToString(t.RouteTableId)
		}
	}
	if s.gateway != nil {
		n.InternetGatewayID = sdk.ToString(s.gateway.InternetGatewayId)
	}
	n.Connect, n.SecurityGroups = s.connect(), s.groupIDs()
	delete(n.SecurityGroups, roleConnect)
	return n
}

// leadsOut reports whether a table's default route leads to an internet gateway.
func leadsOut(t types.RouteTable) bool {
	return slices.ContainsFunc(t.Routes, func(r types.Route) bool {
		return sdk.ToString(r.DestinationCidrBlock) == anywhere && strings.HasPrefix(sdk.ToString(r.GatewayId), "igw-")
	})
}

func attachedTo(g types.InternetGateway, vpc string) bool {
	return slices.ContainsFunc(g.Attachments, func(a types.InternetGatewayAttachment) bool { return sdk.ToString(a.VpcId) == vpc })
}
