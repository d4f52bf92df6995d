package network

import (
	"context"
	"errors"
	"fmt"
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
	g, gctx := parallel.WithContext(ctx)
	g.Go(func() error {
		var denied *aws.DeniedError
		err := l.findBalancers(gctx, c, vpc, spec.Cluster)
		if errors.As(err, &denied) && !spec.DeleteLeftovers { // the network's own parts do not need the permission
			l.unseen, err = err, nil
		}
		return err
	})
	g.Go(func() error {
		all, err := listGroups(gctx, c, within)
		l.groups = slices.DeleteFunc(all, func(g types.SecurityGroup) bool { return !left(g.GroupId, g.Tags) })
		return err
	})
	g.Go(func() error {
		all, err := listVolumes(gctx, c, owned)
		l.volumes = slices.DeleteFunc(all, func(v types.Volume) bool {
			return !left(v.VolumeId, v.Tags) || !slices.ContainsFunc(s.subnets, func(n types.Subnet) bool {
				return sdk.ToString(n.AvailabilityZone) == sdk.ToString(v.AvailabilityZone)
			})
		})
		return err
	})
	g.Go(func() error {
		all, err := listInterfaces(gctx, c, within, owned)
		l.interfaces = slices.DeleteFunc(all, func(i types.NetworkInterface) bool {
			return sdk.ToBool(i.RequesterManaged) || !left(i.NetworkInterfaceId, i.TagSet)
		})
		return err
	})
	if err := g.Wait(); err != nil {
		return l, fmt.Errorf("look for what controllers in cluster %s have left: %w", spec.Cluster, err)
	}
	return l, nil
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
		out = append(out, Leftover{Kind: "security group", ID: sdk.ToString(g.GroupId)})
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

// remove deletes the leftovers but for the security groups, which are deleted with the network's own: rules of both refer to
// each other.
func (l leftovers) remove(ctx context.Context, c *aws.Client) error {
	g, gctx := parallel.WithContext(ctx)
	for _, b := range l.balancers {
		g.Go(func() error {
			_, err := c.ELB.DeleteLoadBalancer(gctx, &elb.DeleteLoadBalancerInput{LoadBalancerArn: b.LoadBalancerArn})
			return aboutLeftover("load balancer", b.LoadBalancerArn, aws.Ignore(err, "LoadBalancerNotFound"))
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	g, gctx = parallel.WithContext(ctx)
	for _, t := range l.targets { // listeners of a load balancer that has just been deleted may still use them
		g.Go(func() error {
			_, err := c.ELB.DeleteTargetGroup(gctx, &elb.DeleteTargetGroupInput{TargetGroupArn: t.TargetGroupArn}, c.RetryELB(aws.ConsistencyAttempts, "ResourceInUse"))
			return aboutLeftover("target group", t.TargetGroupArn, aws.Ignore(err, "TargetGroupNotFound"))
		})
	}
	for _, v := range l.volumes {
		g.Go(func() error {
			_, err := c.EC2.DeleteVolume(gctx, &ec2.DeleteVolumeInput{VolumeId: v.VolumeId})
			return aboutLeftover("volume", v.VolumeId, aws.Ignore(err, "InvalidVolume.NotFound"))
		})
	}
	for _, i := range l.interfaces {
		g.Go(func() error {
			_, err := c.EC2.DeleteNetworkInterface(gctx, &ec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: i.NetworkInterfaceId})
			return aboutLeftover("network interface", i.NetworkInterfaceId, aws.Ignore(err, "InvalidNetworkInterfaceID.NotFound"))
		})
	}
	return g.Wait()
}

func aboutLeftover(kind string, id *string, err error) error {
	if err != nil {
		return fmt.Errorf("delete %s %s, which a controller in the cluster has made: %w", kind, sdk.ToString(id), err)
	}
	return nil
}
