package network

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
)

// Leftover is an object that a controller in the cluster has made and left.
type Leftover struct {
	Kind string // such as "load balancer"
	ID   string // an ARN for load balancers and target groups
	// Use says what uses it, if it cannot be deleted for that reason.
	Use string
}

func (l Leftover) String() string {
	if l.Use != "" {
		return l.Kind + " " + l.ID + " (" + l.Use + ")"
	}
	return l.Kind + " " + l.ID
}

// LeftoversError says that controllers in a cluster have left objects, and that nothing was deleted for this reason.
type LeftoversError struct {
	Cluster string
	Found   []Leftover
	// Busy says that the leftovers were to be deleted, and that Found are those in use.
	Busy bool
}

func (e *LeftoversError) Error() string {
	var found []string
	for _, l := range e.Found {
		found = append(found, l.String())
	}
	what := "still exists"
	if e.Busy {
		what = "is still in use"
	}
	return fmt.Sprintf("what controllers in cluster %s have made %s: %s", e.Cluster, what, strings.Join(found, ", "))
}

// leftovers are the objects that controllers in the cluster have made and left. Network interfaces that a service of AWS has
// made belong to one of its other objects, and end with it.
type leftovers struct {
	balancers  []elbtypes.LoadBalancer
	targets    []elbtypes.TargetGroup
	groups     []types.SecurityGroup
	volumes    []types.Volume
	interfaces []types.NetworkInterface
	// classic are the names of Classic Load Balancers that keep groups or subnets in use. Nothing here deletes them.
	classic []string
	// uses says what keeps a group in use, by its id.
	uses map[string]string
	// unseen is why load balancers and target groups could not be looked for.
	unseen error
}

// findLeftovers looks for leftovers in the VPC, and for volumes in the zones of its subnets.
func findLeftovers(ctx context.Context, c *aws.Client, spec Spec, s snapshot) (leftovers, error) {
	var l leftovers
	vpc := s.vpcID()
	if vpc == "" {
		return l, nil
	}
	within, owned := aws.Filter("vpc-id", vpc), aws.Inside(spec.Cluster).Filter()
	left := func(id *string, tags []types.Tag) bool {
		return !s.mine(id, tags) && aws.Inside(spec.Cluster).Made(aws.TagMap(tags))
	}
	var groups []types.SecurityGroup
	var interfaces []types.NetworkInterface
	var volumes []types.Volume
	in := map[string]types.Instance{} // the instances in the VPC, by id
	g, gctx := parallel.WithContext(ctx)
	g.Go(func() error {
		err := l.findBalancers(gctx, c, vpc, spec.Cluster)
		if err != nil && gctx.Err() == nil && !spec.DeleteLeftovers { // the network's own parts need neither permission nor endpoint
			l.unseen, err = err, nil
		}
		return err
	})
	g.Go(func() (err error) {
		groups, err = listGroups(gctx, c, within)
		return err
	})
	g.Go(func() (err error) {
		volumes, err = listVolumes(gctx, c, owned)
		return err
	})
	g.Go(func() (err error) {
		interfaces, err = listInterfaces(gctx, c, within)
		return err
	})
	g.Go(func() error {
		return c.EachInstance(gctx, func(i types.Instance) { in[sdk.ToString(i.InstanceId)] = i }, within)
	})
	if err := g.Wait(); err != nil {
		return l, fmt.Errorf("look for what controllers in cluster %s have left: %w", spec.Cluster, err)
	}
	for _, group := range groups {
		if left(group.GroupId, group.Tags) {
			l.groups = append(l.groups, group)
		}
	}
	for _, i := range interfaces {
		if !sdk.ToBool(i.RequesterManaged) && left(i.NetworkInterfaceId, i.TagSet) {
			l.interfaces = append(l.interfaces, i)
		}
	}
	for _, v := range volumes {
		if left(v.VolumeId, v.Tags) && ours(v, spec, s, in) {
			l.volumes = append(l.volumes, v)
		}
	}
	l.findUses(s, groups, interfaces, in)
	return l, nil
}

// ours reports whether a volume with the cluster's name may be of the network's cluster, and not of another tool's cluster with
// the same name: it is in one of the zones, no older than the network's claim, and attached to no instance outside the VPC.
func ours(v types.Volume, spec Spec, s snapshot, in map[string]types.Instance) bool {
	for _, a := range v.Attachments {
		if _, ok := in[sdk.ToString(a.InstanceId)]; !ok {
			return false
		}
	}
	if sdk.ToTime(v.CreateTime).Before(spec.Claim.At) {
		return false
	}
	return slices.ContainsFunc(s.subnets, func(n types.Subnet) bool {
		return sdk.ToString(n.AvailabilityZone) == sdk.ToString(v.AvailabilityZone)
	})
}

// balanced begins the description of an interface of a load balancer. What follows is the name of a Classic Load Balancer, and
// the end of the ARN of any other, such as net/web/0a1b2c3d4e5f6071.
const balanced = "ELB "

// findUses finds what keeps the groups of the leftovers in use although the leftovers are deleted, and Classic Load Balancers
// that do so or are in a VPC that is to be deleted.
func (l *leftovers) findUses(s snapshot, groups []types.SecurityGroup, interfaces []types.NetworkInterface, in map[string]types.Instance) {
	l.uses = map[string]string{}
	gone, known := map[string]bool{}, map[string]bool{}
	for _, i := range l.interfaces {
		gone[sdk.ToString(i.NetworkInterfaceId)] = true
	}
	for _, b := range l.balancers {
		if _, name, ok := strings.Cut(sdk.ToString(b.LoadBalancerArn), ":loadbalancer/"); ok {
			gone[balanced+name] = true
		}
	}
	for _, group := range slices.Concat(l.groups, slices.Collect(maps.Values(s.groups))) {
		known[sdk.ToString(group.GroupId)] = true
	}
	for _, i := range interfaces {
		id, about := sdk.ToString(i.NetworkInterfaceId), sdk.ToString(i.Description)
		who, classic, uses := "network interface "+id, "", false
		if a := i.Attachment; a != nil && sdk.ToString(a.InstanceId) != "" {
			if aws.IsGone(in[*a.InstanceId]) {
				continue // it ends with the instance
			}
			who += " of instance " + *a.InstanceId
		} else if about != "" {
			who += " (" + about + ")"
		}
		if managed := sdk.ToBool(i.RequesterManaged); managed && gone[about] || gone[id] {
			continue
		} else if name, ok := strings.CutPrefix(about, balanced); managed && ok && !strings.Contains(name, "/") {
			classic = name
		}
		for _, g := range i.Groups {
			l.uses[sdk.ToString(g.GroupId)] = "used by " + who
			uses = uses || known[sdk.ToString(g.GroupId)]
		}
		if classic != "" && (uses || !s.adopted) && !slices.Contains(l.classic, classic) {
			l.classic = append(l.classic, classic)
		}
	}
	for _, group := range groups {
		if id := sdk.ToString(group.GroupId); !known[id] {
			for _, r := range slices.Concat(rulesOf(group.IpPermissions), rulesOf(group.IpPermissionsEgress)) {
				l.uses[r.source] = "a rule of security group " + id + " refers to it"
			}
		}
	}
}

// findBalancers finds load balancers and target groups. Elastic Load Balancing does not filter by VPCs or tags.
func (l *leftovers) findBalancers(ctx context.Context, c *aws.Client, vpc, cluster string) error {
	balancers, err := aws.All(ctx, elb.NewDescribeLoadBalancersPaginator(c.ELB, &elb.DescribeLoadBalancersInput{}),
		func(p *elb.DescribeLoadBalancersOutput) []elbtypes.LoadBalancer { return p.LoadBalancers })
	if err != nil {
		return err
	}
	targets, err := aws.All(ctx, elb.NewDescribeTargetGroupsPaginator(c.ELB, &elb.DescribeTargetGroupsInput{}),
		func(p *elb.DescribeTargetGroupsOutput) []elbtypes.TargetGroup { return p.TargetGroups })
	if err != nil {
		return err
	}
	balancers = slices.DeleteFunc(balancers, func(b elbtypes.LoadBalancer) bool { return sdk.ToString(b.VpcId) != vpc })
	targets = slices.DeleteFunc(targets, func(t elbtypes.TargetGroup) bool { return sdk.ToString(t.VpcId) != vpc })
	var arns []string
	for _, b := range balancers {
		arns = append(arns, sdk.ToString(b.LoadBalancerArn))
	}
	for _, t := range targets {
		arns = append(arns, sdk.ToString(t.TargetGroupArn))
	}
	tags, err := c.TagsOfELB(ctx, arns)
	other := func(arn *string) bool { return !aws.Inside(cluster).Made(tags[sdk.ToString(arn)]) }
	l.balancers = slices.DeleteFunc(balancers, func(b elbtypes.LoadBalancer) bool { return other(b.LoadBalancerArn) })
	l.targets = slices.DeleteFunc(targets, func(t elbtypes.TargetGroup) bool { return other(t.TargetGroupArn) })
	return err
}

// all returns the leftovers in words.
func (l leftovers) all() (out []Leftover) {
	for _, b := range l.balancers {
		out = append(out, Leftover{Kind: "load balancer", ID: sdk.ToString(b.LoadBalancerArn)})
	}
	for _, t := range l.targets {
		out = append(out, Leftover{Kind: "target group", ID: sdk.ToString(t.TargetGroupArn)})
	}
	for _, g := range l.groups {
		out = append(out, Leftover{Kind: "security group", ID: sdk.ToString(g.GroupId), Use: l.uses[sdk.ToString(g.GroupId)]})
	}
	for _, name := range l.classic {
		out = append(out, Leftover{Kind: "Classic Load Balancer", ID: name, Use: "delete it first"})
	}
	for _, v := range l.volumes {
		found := Leftover{Kind: "volume", ID: sdk.ToString(v.VolumeId)}
		if v.State != types.VolumeStateAvailable {
			found.Use = string(v.State)
		}
		for _, a := range v.Attachments {
			found.Use = "attached to " + sdk.ToString(a.InstanceId)
		}
		out = append(out, found)
	}
	for _, i := range l.interfaces {
		found := Leftover{Kind: "network interface", ID: sdk.ToString(i.NetworkInterfaceId)}
		if a := i.Attachment; a != nil && sdk.ToString(a.InstanceId) != "" {
			found.Use = "attached to " + sdk.ToString(a.InstanceId)
		}
		out = append(out, found)
	}
	return out
}

// check returns a LeftoversError unless all leftovers can and may be deleted.
func (l leftovers) check(spec Spec) error {
	found := l.all()
	if spec.DeleteLeftovers {
		found = slices.DeleteFunc(found, func(l Leftover) bool { return l.Use == "" })
	}
	if len(found) == 0 {
		return nil
	}
	return &LeftoversError{Cluster: spec.Cluster, Found: found, Busy: spec.DeleteLeftovers}
}

// remove deletes the leftovers but for the security groups, which are deleted with the network's own since rules of both refer
// to each other, and the volumes. Nothing can bring back a volume, so removeVolumes deletes them when the groups are gone.
func (l leftovers) remove(ctx context.Context, c *aws.Client) error {
	err := deleteEach(ctx, "load balancer", l.balancers, func(ctx context.Context, b elbtypes.LoadBalancer) (*string, error) {
		_, err := c.ELB.DeleteLoadBalancer(ctx, &elb.DeleteLoadBalancerInput{LoadBalancerArn: b.LoadBalancerArn})
		return b.LoadBalancerArn, aws.Ignore(err, "LoadBalancerNotFound")
	})
	if err != nil {
		return err
	}
	g, ctx := parallel.WithContext(ctx)
	g.Go(func() error { // listeners of a load balancer that has just been deleted may still use them
		return deleteEach(ctx, "target group", l.targets, func(ctx context.Context, t elbtypes.TargetGroup) (*string, error) {
			_, err := c.ELB.DeleteTargetGroup(ctx, &elb.DeleteTargetGroupInput{TargetGroupArn: t.TargetGroupArn}, c.RetryELB(aws.ConsistencyAttempts, "ResourceInUse"))
			return t.TargetGroupArn, aws.Ignore(err, "TargetGroupNotFound")
		})
	})
	g.Go(func() error {
		return deleteEach(ctx, "network interface", l.interfaces, func(ctx context.Context, i types.NetworkInterface) (*string, error) {
			_, err := c.EC2.DeleteNetworkInterface(ctx, &ec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: i.NetworkInterfaceId})
			return i.NetworkInterfaceId, aws.Ignore(err, "InvalidNetworkInterfaceID.NotFound")
		})
	})
	return g.Wait()
}

func (l leftovers) removeVolumes(ctx context.Context, c *aws.Client) error {
	return deleteEach(ctx, "volume", l.volumes, func(ctx context.Context, v types.Volume) (*string, error) {
		_, err := c.EC2.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: v.VolumeId})
		return v.VolumeId, aws.Ignore(err, "InvalidVolume.NotFound")
	})
}

// deleteEach deletes leftovers of a kind in parallel. del also returns the id.
func deleteEach[T any](ctx context.Context, kind string, all []T, del func(context.Context, T) (id *string, err error)) error {
	g, ctx := parallel.WithContext(ctx)
	for _, one := range all {
		g.Go(func() error {
			id, err := del(ctx, one)
			if err != nil {
				return fmt.Errorf("delete %s %s, which a controller in the cluster has made: %w", kind, sdk.ToString(id), err)
			}
			return nil
		})
	}
	return g.Wait()
}
