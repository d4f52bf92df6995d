package aws

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"golang.org/x/sync/errgroup"
)

// finding is one difference between what is wanted and what is, and the call
// or two that end it.
type finding struct {
	thing string // "security group worker"
	words string // "rule tcp 22 from 0.0.0.0/0: not wanted"
	fix   func(context.Context) error
}

// builder brings a network to what is wanted. Its snapshot follows what it does.
type builder struct {
	*Client
	spec NetworkSpec
	mu   sync.Mutex
	snapshot
}

// stages returns the ways to find differences, in the order in which they must
// be ended: each stage needs what the one before has made. Within a stage
// everything is independent.
func (b *builder) stages() []func() []finding {
	return []func() []finding{b.findVPC, b.findParts, b.findSettings}
}

// EnsureNetwork makes the network, or completes and repairs what there is of
// it. On an error it returns what exists by then.
func (c *Client) EnsureNetwork(ctx context.Context, spec NetworkSpec) (Network, error) {
	s, err := c.look(ctx, spec)
	if err != nil {
		return Network{}, err
	}
	b := &builder{Client: c, spec: spec, snapshot: s}
	for _, find := range b.stages() {
		g, gctx := errgroup.WithContext(ctx)
		for _, f := range find() {
			g.Go(func() error {
				if err := f.fix(gctx); err != nil {
					return fmt.Errorf("network of cluster %s: %s: %w", spec.Cluster, f.thing, err)
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return b.network(spec.Cluster), err
		}
	}
	if err := b.removeTags(ctx); err != nil {
		return b.network(spec.Cluster), err
	}
	return b.network(spec.Cluster), nil
}

// ObserveNetwork says in words, by thing, how the network differs from what is
// wanted. The error is ErrNotFound when the VPC is gone.
func (c *Client) ObserveNetwork(ctx context.Context, spec NetworkSpec) (Network, map[string]string, error) {
	s, err := c.look(ctx, spec)
	if err != nil {
		return Network{}, nil, err
	}
	if s.vpc == nil {
		return Network{}, nil, fmt.Errorf("network of cluster %s: %w", spec.Cluster, ErrNotFound)
	}
	b := &builder{Client: c, spec: spec, snapshot: s}
	words := map[string][]string{}
	for _, find := range b.stages() {
		for _, f := range find() {
			words[f.thing] = append(words[f.thing], f.words)
		}
	}
	drift := map[string]string{}
	for thing, w := range words {
		drift[thing] = strings.Join(w, "; ")
	}
	return b.network(spec.Cluster), drift, nil
}

// FindNetwork returns the network of a cluster by its tags, with the admin and
// NodePort networks its groups let in: what an import needs.
func (c *Client) FindNetwork(ctx context.Context, cluster string) (Network, NetworkSpec, error) {
	spec := NetworkSpec{Cluster: cluster}
	s, err := c.look(ctx, spec)
	if err != nil {
		return Network{}, spec, err
	}
	if s.vpc == nil {
		// The groups of an adopted VPC carry the cluster's tags, the VPC does not.
		out, err := c.EC2.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{
			Filters: []types.Filter{tagFilter(TagCluster, cluster), tagFilter(TagKind, kindNetwork)},
		})
		if err != nil {
			return Network{}, spec, fmt.Errorf("look for the network of cluster %s: %w", cluster, err)
		}
		if len(out.SecurityGroups) == 0 {
			return Network{}, spec, fmt.Errorf("network of cluster %s: %w", cluster, ErrNotFound)
		}
		return Network{}, spec, fmt.Errorf("network of cluster %s is in the adopted VPC %s, which cannot be imported by name alone",
			cluster, sdk.ToString(out.SecurityGroups[0].VpcId))
	}
	n := s.network(cluster)
	spec.VPCCIDR = n.VPCCIDR
	if len(n.Subnets) > 0 {
		spec.NodeCIDR, spec.AvailabilityZone = n.Subnets[0].CIDR, n.Subnets[0].AvailabilityZone
	}
	for _, r := range rulesOf(s.groups[RoleLoadBalancer].IpPermissions) {
		if p, ok := r.prefix(); ok && r.from == portSSH {
			spec.AdminCIDRs = append(spec.AdminCIDRs, p)
		}
	}
	for _, r := range rulesOf(s.groups[RoleWorker].IpPermissions) {
		if p, ok := r.prefix(); ok && r.from == portNodePortMin && r.protocol == "tcp" {
			spec.NodePortCIDRs = append(spec.NodePortCIDRs, p)
		}
	}
	spec.Tags = c.OwnTags(tagMap(s.vpc.Tags))
	return n, spec, nil
}

func (b *builder) findVPC() []finding {
	if b.spec.adopts() {
		return b.findAdopted()
	}
	if b.vpc != nil {
		return nil
	}
	return []finding{{"vpc", "missing", func(ctx context.Context) error {
		tags := b.want("")
		out, err := b.EC2.CreateVpc(ctx, &ec2.CreateVpcInput{
			CidrBlock:         sdk.String(b.spec.VPCCIDR.String()),
			TagSpecifications: []types.TagSpecification{specification(types.ResourceTypeVpc, tags)},
		})
		if err != nil {
			return fmt.Errorf("create VPC %s: %w", b.spec.VPCCIDR, err)
		}
		out.Vpc.Tags = ec2Tags(tags)
		b.change(func(s *snapshot) { s.vpc = out.Vpc })
		return nil
	}}}
}

// findAdopted finds adopted subnets that are not there. Only whoever made them
// can make them again.
func (b *builder) findAdopted() []finding {
	var out []finding
	for _, id := range b.spec.SubnetIDs {
		if !slices.ContainsFunc(b.subnets, func(s types.Subnet) bool { return sdk.ToString(s.SubnetId) == id }) {
			out = append(out, finding{"subnet " + id, "missing in " + b.spec.VPCID, func(context.Context) error {
				return fmt.Errorf("it does not exist in %s: take it out of subnet_ids, or write the id of the one that replaces it", b.spec.VPCID)
			}})
		}
	}
	return out
}

func (b *builder) findParts() []finding {
	var out []finding
	for _, role := range Roles() {
		if _, ok := b.groups[role]; !ok {
			out = append(out, finding{"security group " + string(role), "missing", func(ctx context.Context) error { return b.createGroup(ctx, role) }})
		}
	}
	if b.spec.adopts() {
		return out
	}
	if len(b.subnets) == 0 {
		out = append(out, finding{"subnet", "missing", b.createSubnet})
	}
	switch {
	case b.gateway == nil:
		out = append(out, finding{"internet gateway", "missing", b.createGateway})
	case !attachedTo(*b.gateway, b.vpcID()):
		out = append(out, finding{"internet gateway", "not attached to the VPC", b.attachGateway})
	}
	if b.own() == nil {
		out = append(out, finding{"route table", "missing", b.createTable})
	}
	return out
}

func (b *builder) findSettings() []finding {
	out := b.findRules()
	out = append(out, b.findTags()...)
	if b.spec.adopts() {
		return out
	}
	table := b.own()
	for _, subnet := range b.subnets {
		id := sdk.ToString(subnet.SubnetId)
		if !sdk.ToBool(subnet.MapPublicIpOnLaunch) {
			out = append(out, finding{"subnet", "machines get no public address by default, wanted one", func(ctx context.Context) error {
				_, err := b.EC2.ModifySubnetAttribute(ctx, &ec2.ModifySubnetAttributeInput{
					SubnetId: &id, MapPublicIpOnLaunch: &types.AttributeBooleanValue{Value: sdk.Bool(true)},
				}, b.settling())
				return err
			}})
		}
		if table != nil && !associated(*table, id) {
			out = append(out, finding{"route table", "not associated with the subnet", func(ctx context.Context) error {
				return b.associate(ctx, sdk.ToString(table.RouteTableId), id)
			}})
		}
	}
	if table != nil && b.gateway != nil {
		if words := defaultRoute(*table, sdk.ToString(b.gateway.InternetGatewayId)); words != "" {
			out = append(out, finding{"route table", words, func(ctx context.Context) error {
				return b.putDefaultRoute(ctx, sdk.ToString(table.RouteTableId), sdk.ToString(b.gateway.InternetGatewayId))
			}})
		}
	}
	return out
}

func (b *builder) findRules() []finding {
	ids := b.network(b.spec.Cluster).SecurityGroups
	if len(ids) < len(Roles()) {
		return nil // the missing group is a finding of its own, and rules refer to it
	}
	var out []finding
	wanted := wantedRules(b.spec, ids)
	for _, role := range Roles() {
		group := b.groups[role]
		others := func(egress bool) func(rule) bool {
			return func(r rule) bool { return egress && r == egressIPv6 || b.ignored[groupRule{ids[role], egress, r}] }
		}
		missing, unexpected := diffRules(wanted[role], rulesOf(group.IpPermissions))
		out = append(out, b.ruleFindings(role, ids, missing, slices.DeleteFunc(unexpected, others(false)), false)...)
		missing, unexpected = diffRules(wantedEgress, rulesOf(group.IpPermissionsEgress))
		out = append(out, b.ruleFindings(role, ids, missing, slices.DeleteFunc(unexpected, others(true)), true)...)
	}
	return out
}

// ruleFindings makes one finding, and one call, of all missing rules, and one
// of all unexpected ones.
func (b *builder) ruleFindings(role Role, ids map[Role]string, missing, unexpected []rule, egress bool) []finding {
	var out []finding
	add := func(rules []rule, what string, fix func(context.Context, string, []types.IpPermission, bool) error) {
		if len(rules) == 0 {
			return
		}
		var words []string
		for _, r := range rules {
			w := r.in(ids)
			if egress {
				w = "outgoing " + strings.Replace(w, " from ", " to ", 1)
			}
			words = append(words, "rule "+w+": "+what)
		}
		out = append(out, finding{"security group " + string(role), strings.Join(words, "; "), func(ctx context.Context) error {
			return fix(ctx, ids[role], permissions(rules), egress)
		}})
	}
	add(missing, "missing", b.authorize)
	add(unexpected, "not wanted", b.revoke)
	return out
}

// owned returns every resource that is ours with the tags it has, by thing.
func (b *builder) owned() []taggedThing {
	var out []taggedThing
	for _, role := range Roles() {
		if g, ok := b.groups[role]; ok {
			out = append(out, taggedThing{"security group " + string(role), sdk.ToString(g.GroupId), string(role), tagMap(g.Tags)})
		}
	}
	if b.spec.adopts() || b.vpc == nil {
		return out
	}
	out = append(out, taggedThing{"vpc", b.vpcID(), "", tagMap(b.vpc.Tags)})
	for _, s := range b.subnets {
		out = append(out, taggedThing{"subnet", sdk.ToString(s.SubnetId), "", tagMap(s.Tags)})
	}
	if b.gateway != nil {
		out = append(out, taggedThing{"internet gateway", sdk.ToString(b.gateway.InternetGatewayId), "", tagMap(b.gateway.Tags)})
	}
	if t := b.own(); t != nil {
		out = append(out, taggedThing{"route table", sdk.ToString(t.RouteTableId), "", tagMap(t.Tags)})
	}
	return out
}

type taggedThing struct {
	thing, id, name string
	tags            map[string]string
}

func (b *builder) findTags() []finding {
	var out []finding
	for _, t := range b.owned() {
		if words := diffTags(b.want(t.name), t.tags); len(words) > 0 {
			out = append(out, finding{t.thing, strings.Join(words, "; "), func(ctx context.Context) error {
				_, err := b.EC2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{t.id}, Tags: ec2Tags(b.want(t.name))}, b.settling())
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
	return b.deleteTags(ctx, ids, b.spec.RemoveTags, b.want(""))
}

// want returns the tags of one part of the network; name is a role for groups.
func (b *builder) want(name string) map[string]string {
	return b.clusterTags(b.spec.Cluster, kindNetwork, name, b.spec.Tags)
}

func (b *builder) change(f func(*snapshot)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&b.snapshot)
}

// deleteTags removes tag keys that are no longer wanted.
func (c *Client) deleteTags(ctx context.Context, ids, keys []string, wanted map[string]string) error {
	var gone []types.Tag
	for _, k := range keys {
		if _, still := wanted[k]; !still && !ReservedTag(k) {
			gone = append(gone, types.Tag{Key: sdk.String(k)})
		}
	}
	if len(gone) == 0 || len(ids) == 0 {
		return nil
	}
	if _, err := c.EC2.DeleteTags(ctx, &ec2.DeleteTagsInput{Resources: ids, Tags: gone}); err != nil {
		return fmt.Errorf("remove tags from %s: %w", strings.Join(ids, ", "), err)
	}
	return nil
}

// OwnTags returns those of a resource's tags that the user gave it.
func (c *Client) OwnTags(all map[string]string) map[string]string {
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(k, v string) bool { return ReservedTag(k) || c.defaultTags[k] == v })
	if len(out) == 0 {
		return nil
	}
	return out
}

func associated(t types.RouteTable, subnet string) bool {
	return slices.ContainsFunc(t.Associations, func(a types.RouteTableAssociation) bool { return sdk.ToString(a.SubnetId) == subnet })
}

// defaultRoute says what is wrong with the way out, empty when it is right.
func defaultRoute(t types.RouteTable, gateway string) string {
	for _, r := range t.Routes {
		if sdk.ToString(r.DestinationCidrBlock) != "0.0.0.0/0" {
			continue
		}
		if found := targetOf(r); found != gateway || r.State == types.RouteStateBlackhole {
			return fmt.Sprintf("route 0.0.0.0/0: found %s (%s), wanted %s", found, r.State, gateway)
		}
		return ""
	}
	return fmt.Sprintf("route 0.0.0.0/0: missing, wanted %s", gateway)
}
