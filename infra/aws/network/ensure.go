package network

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"golang.org/x/sync/errgroup"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/route"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// builder brings a network to what is wanted. Its snapshot is updated with every change.
type builder struct {
	*aws.Client
	spec Spec
	mu   sync.Mutex
	snapshot
	choice zoneChoice
}

// stages returns the functions that find differences, in the order in which they must be repaired:
// each stage needs the results of the one before. The repairs within a stage are independent.
func (b *builder) stages() []func() []aws.Repair {
	return []func() []aws.Repair{b.findVPC, b.findParts, func() []aws.Repair { return append(b.findNATGateways(), b.findConnect()...) }, b.findSettings, b.findExcessConnect, b.findExcessNATs, b.findExcessSubnets, b.findExcessTables}
}

// Ensure makes the network, or completes and repairs an existing one. With an error it
// returns what exists by then; nothing of it if the error is a ClaimedError.
func Ensure(ctx context.Context, c *aws.Client, spec Spec) (Network, error) {
	s, err := takeSnapshot(ctx, c, spec)
	if err != nil {
		return Network{}, err
	}
	b := &builder{Client: c, spec: spec, snapshot: s}
	if err := b.claim(ctx); err != nil {
		if spec.creates() {
			err = aws.Raced(err)
		}
		return Network{}, fmt.Errorf("network of cluster %s: %w", spec.Cluster, err)
	}
	n, err := b.ensure(ctx)
	if !spec.creates() {
		return n, err
	}
	lost := err
	switch {
	case err == nil:
		lost = confirm(ctx, c, spec)
	case !aws.IsClaimed(err): // what went wrong may be another one's doing
		lost = b.keepsVPC(ctx)
	}
	if aws.IsClaimed(lost) {
		return Network{}, fmt.Errorf("network of cluster %s: %w", spec.Cluster, errors.Join(aws.Raced(lost), concede(ctx, c, spec, n)))
	}
	return n, errors.Join(err, lost)
}

// ensure carries out the repairs, stage by stage.
func (b *builder) ensure(ctx context.Context) (Network, error) {
	spec := b.spec
	for _, find := range b.stages() {
		g, gctx := errgroup.WithContext(ctx)
		for _, r := range find() {
			g.Go(func() error {
				if err := r.Fix(gctx); err != nil {
					return fmt.Errorf("network of cluster %s: %s: %w", spec.Cluster, r.Findings[0].Subject, err)
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return b.network(), err
		}
	}
	if err := b.removeTags(ctx); err != nil {
		return b.network(), err
	}
	return b.network(), nil
}

// Observe returns how the network differs from what is wanted. The subjects are its parts:
// "vpc", "security group worker". The error is ErrNotFound if the VPC does not exist.
func Observe(ctx context.Context, c *aws.Client, spec Spec) (Network, []finding.Finding, error) {
	s, err := takeSnapshot(ctx, c, spec)
	if err != nil {
		return Network{}, nil, err
	}
	if s.vpc == nil {
		return Network{}, nil, fmt.Errorf("network of cluster %s: %w", spec.Cluster, aws.ErrNotFound)
	}
	b := &builder{Client: c, spec: spec, snapshot: s}
	if _, err := b.judge(func(string) bool { return true }); err != nil {
		return Network{}, nil, fmt.Errorf("network of cluster %s: %w", spec.Cluster, err)
	}
	var out []finding.Finding
	for _, find := range b.stages() {
		out = append(out, aws.FindingsOf(find())...)
	}
	return b.network(), out, nil
}

// Find returns the network of a cluster by its tags, with the admin and NodePort networks
// and the role of bastions that its groups allow, for an import.
func Find(ctx context.Context, c *aws.Client, cluster string) (Network, Spec, error) {
	spec := Spec{Cluster: cluster, lookForParts: true}
	s, err := takeSnapshot(ctx, c, spec)
	if err != nil {
		return Network{}, spec, err
	}
	if s.vpc == nil {
		// In an adopted VPC only the groups carry the cluster's tags.
		out, err := c.EC2.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{
			Filters: []types.Filter{aws.TagFilter(aws.TagCluster, cluster), aws.TagFilter(aws.TagKind, aws.KindNetwork)},
		})
		if err != nil {
			return Network{}, spec, fmt.Errorf("look for the network of cluster %s: %w", cluster, err)
		}
		if len(out.SecurityGroups) == 0 {
			return Network{}, spec, fmt.Errorf("network of cluster %s: %w", cluster, aws.ErrNotFound)
		}
		return Network{}, spec, fmt.Errorf("network of cluster %s is in the adopted VPC %s, which cannot be imported by name alone",
			cluster, sdk.ToString(out.SecurityGroups[0].VpcId))
	}
	s.readLayout(&spec)
	n := s.network(spec)
	n.Claim = aws.Held(aws.TagMap(s.vpc.Tags))
	spec.VPCCIDR, spec.InstanceConnect = n.VPCCIDR, n.Connect.EndpointID != ""
	for _, r := range rulesOf(s.groups[aws.RoleLoadBalancer].IpPermissions) {
		if r.from != portSSH || r.protocol != "tcp" {
			continue
		}
		if p, ok := r.prefix(); ok {
			spec.AdminCIDRs = append(spec.AdminCIDRs, p)
		}
		for role, id := range n.SecurityGroups {
			if id == r.source {
				spec.BastionRole = role
			}
		}
	}
	for _, r := range rulesOf(s.groups[aws.RoleWorker].IpPermissions) {
		if p, ok := r.prefix(); ok && r.from == portNodePortMin && r.protocol == "tcp" {
			spec.NodePortCIDRs = append(spec.NodePortCIDRs, p)
		}
	}
	for _, r := range rulesOf(s.groups[aws.RoleController].IpPermissions) {
		spec.ControllerPods = spec.ControllerPods || r.protocol == "udp" && r.source == n.SecurityGroups[aws.RoleWorker]
	}
	spec.Tags = c.OwnTags(aws.TagMap(s.vpc.Tags))
	return n, spec, nil
}

func (b *builder) findVPC() []aws.Repair {
	if b.spec.adopts() {
		return b.findAdopted()
	}
	if b.vpc != nil {
		return nil
	}
	return []aws.Repair{aws.RepairOf(finding.Finding{Subject: subjectVPC, Kind: finding.VPC, Problem: finding.Missing}, func(ctx context.Context) error {
		tags := b.want("")
		out, err := b.EC2.CreateVpc(ctx, &ec2.CreateVpcInput{
			CidrBlock:         sdk.String(b.spec.VPCCIDR.String()),
			TagSpecifications: []types.TagSpecification{aws.TagSpecification(types.ResourceTypeVpc, tags)},
		})
		if err != nil {
			return fmt.Errorf("create VPC %s: %w", b.spec.VPCCIDR, err)
		}
		out.Vpc.Tags = aws.EC2Tags(tags)
		b.change(func(s *snapshot) { s.vpc = out.Vpc })
		return nil
	})}
}

// findAdopted finds adopted subnets that do not exist. Only their owner can create them again.
func (b *builder) findAdopted() []aws.Repair {
	var out []aws.Repair
	for _, id := range b.spec.SubnetIDs {
		if !slices.ContainsFunc(b.subnets, func(s types.Subnet) bool { return sdk.ToString(s.SubnetId) == id }) {
			f := finding.Finding{Subject: "subnet " + id, Kind: finding.AdoptedSubnet, Problem: finding.Missing, Wanted: b.spec.VPCID}
			out = append(out, aws.RepairOf(f, func(context.Context) error {
				return fmt.Errorf("it does not exist in %s: take it out of subnet_ids, or write the id of the one that replaces it", b.spec.VPCID)
			}))
		}
	}
	return out
}

// The parts of a network of our own, as findings name them.
const (
	subjectVPC     = "vpc"
	subjectSubnet  = "subnet"
	subjectGateway = "internet gateway"
	subjectTable   = "route table"
)

func (b *builder) subjectSubnet(p place) string { return subjectSubnet + " " + b.spec.name(p) }

func subjectGroup(role aws.Role) string { return "security group " + string(role) }

func (b *builder) findParts() []aws.Repair {
	var out []aws.Repair
	add := func(subject string, kind finding.Kind, problem finding.Problem, fix func(context.Context) error) {
		out = append(out, aws.RepairOf(finding.Finding{Subject: subject, Kind: kind, Problem: problem}, fix))
	}
	for _, role := range b.spec.groupRoles() {
		if _, ok := b.groups[role]; !ok {
			add(subjectGroup(role), finding.SecurityGroup, finding.Missing, func(ctx context.Context) error { return b.createGroup(ctx, role) })
		}
	}
	if b.spec.adopts() {
		return out
	}
	for _, p := range b.spec.places() {
		if b.subnet(p.cidr) == nil {
			add(b.subjectSubnet(p), finding.Subnet, finding.Missing, func(ctx context.Context) error { return b.createSubnet(ctx, p) })
		}
	}
	switch {
	case b.gateway == nil:
		add(subjectGateway, finding.InternetGateway, finding.Missing, b.createGateway)
	case !attachedTo(*b.gateway, b.vpcID()):
		add(subjectGateway, finding.InternetGateway, finding.Detached, b.attachGateway)
	}
	tables := b.ownTables()
	names, _ := b.spec.tables()
	for _, name := range names {
		if tables[name] == nil {
			add(subjectTable+" "+name, finding.RouteTable, finding.Missing, func(ctx context.Context) error { return b.createTable(ctx, name) })
		}
	}
	return out
}

func (b *builder) findSettings() []aws.Repair {
	out := b.findRules()
	out = append(out, b.findTags()...)
	if b.spec.adopts() {
		return out
	}
	for _, p := range b.spec.places() {
		out = append(out, b.findSubnetSettings(p)...)
	}
	names, natOf := b.spec.tables()
	for _, name := range names {
		out = append(out, b.findDefaultRoute(name, natOf[name])...)
	}
	return out
}

// findSubnetSettings finds a subnet that gives machines public addresses against the specification, or
// has another route table.
func (b *builder) findSubnetSettings(p place) []aws.Repair {
	subnet := b.subnet(p.cidr)
	if subnet == nil {
		return nil // a finding of its own
	}
	var out []aws.Repair
	id, subject := sdk.ToString(subnet.SubnetId), b.subjectSubnet(p)
	if sdk.ToBool(subnet.MapPublicIpOnLaunch) != p.public {
		f := finding.Finding{Subject: subject, Kind: finding.Subnet, Problem: finding.NoPublicIP}
		if !p.public {
			f.Problem = finding.PublicIP
		}
		out = append(out, aws.RepairOf(f, func(ctx context.Context) error {
			_, err := b.EC2.ModifySubnetAttribute(ctx, &ec2.ModifySubnetAttributeInput{
				SubnetId: &id, MapPublicIpOnLaunch: &types.AttributeBooleanValue{Value: sdk.Bool(p.public)},
			}, b.RetryUntilKnown())
			return err
		}))
	}
	if table := b.ownTables()[p.table()]; table != nil && !route.Associated(*table, id) {
		f := finding.Finding{Subject: subjectTable + " " + p.table(), Kind: finding.RouteTable, Target: b.spec.name(p), Problem: finding.Detached}
		out = append(out, aws.RepairOf(f, func(ctx context.Context) error {
			return b.associate(ctx, sdk.ToString(table.RouteTableId), id)
		}))
	}
	return out
}

// findDefaultRoute finds a default route of one of our tables that leads elsewhere than to the internet
// gateway or to the NAT gateway.
func (b *builder) findDefaultRoute(name string, natZone int) []aws.Repair {
	table := b.ownTables()[name]
	if table == nil {
		return nil
	}
	id := sdk.ToString(table.RouteTableId)
	var target string
	put := func(ctx context.Context) error {
		return b.putDefaultRoute(ctx, id, ec2.CreateRouteInput{GatewayId: &target})
	}
	if name == publicTable {
		if b.gateway == nil {
			return nil
		}
		target = sdk.ToString(b.gateway.InternetGatewayId)
	} else {
		if target = b.natGateways()[natName(natZone)].ID; target == "" {
			return nil
		}
		put = func(ctx context.Context) error {
			if err := natReady(ctx, b.Client, target); err != nil {
				return err
			}
			return b.putDefaultRoute(ctx, id, ec2.CreateRouteInput{NatGatewayId: &target})
		}
	}
	var out []aws.Repair
	for _, f := range diffDefaultRoute(*table, target) {
		f.Subject = subjectTable + " " + name
		out = append(out, aws.RepairOf(f, put))
	}
	return out
}

func (b *builder) findRules() []aws.Repair {
	ids := b.groupIDs()
	if slices.ContainsFunc(b.spec.groupRoles(), func(role aws.Role) bool { return ids[role] == "" }) {
		return nil // the missing group is a finding of its own, and rules need its id
	}
	var out []aws.Repair
	wanted := wantedRules(b.spec, ids)
	for _, role := range b.spec.groupRoles() {
		group := b.groups[role]
		others := func(egress bool) func(rule) bool {
			return func(r rule) bool { return egress && r == egressIPv6 || b.ignored[groupRule{ids[role], egress, r}] }
		}
		missing, unexpected := diffRules(wanted[role], rulesOf(group.IpPermissions))
		out = append(out, b.ruleRepairs(role, ids, missing, slices.DeleteFunc(unexpected, others(false)), false)...)
		missing, unexpected = diffRules(b.wantedEgressOf(role), rulesOf(group.IpPermissionsEgress))
		out = append(out, b.ruleRepairs(role, ids, missing, slices.DeleteFunc(unexpected, others(true)), true)...)
	}
	return out
}

// ruleRepairs makes one repair, with one call, for all missing rules, and one for all unexpected
// ones.
func (b *builder) ruleRepairs(role aws.Role, ids map[aws.Role]string, missing, unexpected []rule, egress bool) []aws.Repair {
	var out []aws.Repair
	add := func(rules []rule, problem finding.Problem, fix func(context.Context, string, []types.IpPermission, bool) error) {
		if len(rules) == 0 {
			return
		}
		var differs []finding.Finding
		for _, r := range rules {
			differs = append(differs, finding.Finding{Subject: subjectGroup(role), Kind: finding.Rule, Target: r.in(ids, egress), Problem: problem})
		}
		out = append(out, aws.Repair{Findings: differs, Fix: func(ctx context.Context) error {
			return fix(ctx, ids[role], permissions(rules), egress)
		}})
	}
	add(missing, finding.Missing, b.authorize)
	add(unexpected, finding.NotWanted, b.revoke)
	return out
}

// ownedNATParts returns our NAT gateways and their Elastic IPs.
func (b *builder) ownedNATParts() []taggedThing {
	var out []taggedThing
	for _, n := range b.nats {
		if natUsable(n) {
			name := b.nameOfNAT(n)
			out = append(out, taggedThing{subjectNAT + " " + name, sdk.ToString(n.NatGatewayId), name, aws.TagMap(n.Tags)})
		}
	}
	for _, a := range b.natAddresses {
		name := b.nameOfNATAddress(a)
		out = append(out, taggedThing{"Elastic IP of " + name, sdk.ToString(a.AllocationId), name, aws.TagMap(a.Tags)})
	}
	return out
}

// owned returns our resources with the tags they have.
func (b *builder) owned() []taggedThing {
	var out []taggedThing
	for _, role := range aws.Roles() {
		if g, ok := b.groups[role]; ok {
			out = append(out, taggedThing{subjectGroup(role), sdk.ToString(g.GroupId), string(role), aws.TagMap(g.Tags)})
		}
	}
	out = append(out, b.ownedConnectParts()...)
	if b.spec.adopts() || b.vpc == nil {
		return out
	}
	out = append(out, taggedThing{subjectVPC, b.vpcID(), "", aws.TagMap(b.vpc.Tags)})
	names := map[string]string{}
	for _, p := range b.spec.places() {
		names[p.cidr.String()] = b.spec.name(p)
	}
	for _, s := range b.subnets {
		tags := aws.TagMap(s.Tags)
		name, wanted := names[sdk.ToString(s.CidrBlock)]
		if !wanted {
			name = tags[aws.TagResource]
		}
		out = append(out, taggedThing{subjectSubnet + " " + name, sdk.ToString(s.SubnetId), name, tags})
	}
	if b.gateway != nil {
		out = append(out, taggedThing{subjectGateway, sdk.ToString(b.gateway.InternetGatewayId), "", aws.TagMap(b.gateway.Tags)})
	}
	for name, t := range b.ownTables() {
		out = append(out, taggedThing{subjectTable + " " + name, sdk.ToString(t.RouteTableId), name, aws.TagMap(t.Tags)})
	}
	return append(out, b.ownedNATParts()...)
}

type taggedThing struct {
	subject, id, name string
	tags              map[string]string
}

func idsOf(things []taggedThing) []string {
	out := make([]string, len(things))
	for i, t := range things {
		out[i] = t.id
	}
	return out
}

func (b *builder) findTags() []aws.Repair {
	var out []aws.Repair
	for _, t := range b.owned() {
		if differs := aws.DiffTags(b.want(t.name), t.tags); len(differs) > 0 {
			out = append(out, aws.Repair{Findings: finding.About(t.subject, differs), Fix: func(ctx context.Context) error {
				_, err := b.EC2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{t.id}, Tags: aws.EC2Tags(b.want(t.name))}, b.RetryUntilKnown())
				return err
			}})
		}
	}
	return out
}

func (b *builder) removeTags(ctx context.Context) error {
	var ids []string
	for _, t := range b.owned() {
		ids = append(ids, t.id)
	}
	return b.RemoveTags(ctx, ids, b.spec.RemoveTags, b.want(""))
}

// want returns the tags of one part of the network; for groups, name is a role.
func (b *builder) want(name string) map[string]string {
	out := b.ClusterTags(b.spec.Cluster, aws.KindNetwork, name, b.spec.Tags)
	maps.Copy(out, b.spec.Claim.Tags())
	return out
}

func (b *builder) change(f func(*snapshot)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&b.snapshot)
}

// diffDefaultRoute returns what is wrong with the default route: at most one finding.
func diffDefaultRoute(t types.RouteTable, gateway string) []finding.Finding {
	f := finding.Finding{Subject: subjectTable, Kind: finding.Route, Target: "0.0.0.0/0", Problem: finding.Missing, Wanted: gateway}
	for _, r := range t.Routes {
		if sdk.ToString(r.DestinationCidrBlock) != f.Target {
			continue
		}
		if route.TargetOf(r) == gateway && r.State != types.RouteStateBlackhole {
			return nil
		}
		f.Problem, f.Found, f.Cause = finding.Value, route.TargetOf(r), string(r.State)
		break
	}
	return []finding.Finding{f}
}
