package balancer

import (
	"context"
	"fmt"
	"maps"
	"slices"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
)

// parts are a load balancer and its target group as found; nil is what does not exist.
type parts struct {
	balancer  *types.LoadBalancer
	group     *types.TargetGroup
	listeners []types.Listener
	targets   []string // ids of the instances, sorted
	// attributes are those of load balancer and target group, whose keys differ but for cross-zone
	// balancing, which is that of the load balancer here.
	attributes map[string]string
	tags       map[string]map[string]string // by ARN
}

func (p parts) balancerARN() *string {
	if p.balancer == nil {
		return nil
	}
	return p.balancer.LoadBalancerArn
}

// arns returns the ARNs of load balancer and target group, as far as they exist.
func (p parts) arns() (out []string) {
	if p.balancer != nil {
		out = append(out, sdk.ToString(p.balancer.LoadBalancerArn))
	}
	if p.group != nil {
		out = append(out, sdk.ToString(p.group.TargetGroupArn))
	}
	return out
}

func (p parts) found() Balancer {
	b := p.balancer
	arn := sdk.ToString(b.LoadBalancerArn)
	out := Balancer{
		ARN: arn, DNSName: sdk.ToString(b.DNSName), ZoneID: sdk.ToString(b.CanonicalHostedZoneId), VPCID: sdk.ToString(b.VpcId),
		Public: b.Scheme == types.LoadBalancerSchemeEnumInternetFacing, Cluster: p.tags[arn][aws.TagCluster], Tags: p.tags[arn], Claim: aws.ClaimIn(p.tags[arn]),
	}
	for _, part := range p.arns() {
		if aws.OwnerOf(p.tags[part]).Unsettled() {
			out.Unsettled = append(out.Unsettled, part)
		}
	}
	return out
}

// findParts looks for the load balancer and its target group by their name. What does not exist is no
// error.
func findParts(ctx context.Context, c *aws.Client, spec Spec) (p parts, err error) {
	name := []string{spec.awsName()}
	g, gctx := parallel.WithContext(ctx)
	g.Go(func() error {
		out, err := c.ELB.DescribeLoadBalancers(gctx, &elb.DescribeLoadBalancersInput{Names: name})
		if err = aws.Ignore(err, "LoadBalancerNotFound"); err != nil {
			return fmt.Errorf("describe it: %w", err)
		}
		if out != nil && len(out.LoadBalancers) > 0 {
			p.balancer = &out.LoadBalancers[0]
		}
		return nil
	})
	g.Go(func() error {
		out, err := c.ELB.DescribeTargetGroups(gctx, &elb.DescribeTargetGroupsInput{Names: name})
		if err = aws.Ignore(err, "TargetGroupNotFound"); err != nil {
			return fmt.Errorf("describe its target group: %w", err)
		}
		if out != nil && len(out.TargetGroups) > 0 {
			p.group = &out.TargetGroups[0]
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return p, err
	}
	err = describeParts(ctx, c, &p)
	return p, err
}

// describeParts looks at everything that belongs to the parts.
func describeParts(ctx context.Context, c *aws.Client, p *parts) error {
	balancer, group := map[string]string{}, map[string]string{}
	p.tags, p.listeners, p.targets = map[string]map[string]string{}, nil, nil
	g, ctx := parallel.WithContext(ctx)
	if arns := p.arns(); len(arns) > 0 {
		g.Go(func() error {
			out, err := c.ELB.DescribeTags(ctx, &elb.DescribeTagsInput{ResourceArns: arns}, c.RetryELBUntilKnown())
			if err != nil {
				return fmt.Errorf("read its tags: %w", err)
			}
			for _, d := range out.TagDescriptions {
				p.tags[sdk.ToString(d.ResourceArn)] = aws.ELBTagMap(d.Tags)
			}
			return nil
		})
	}
	if p.balancer != nil {
		arn := p.balancer.LoadBalancerArn
		g.Go(func() (err error) {
			p.listeners, err = aws.All(ctx, elb.NewDescribeListenersPaginator(c.ELB, &elb.DescribeListenersInput{LoadBalancerArn: arn}),
				func(p *elb.DescribeListenersOutput) []types.Listener { return p.Listeners }, c.RetryELBUntilKnown())
			if err != nil {
				return fmt.Errorf("describe its listeners: %w", err)
			}
			return nil
		})
		g.Go(func() error {
			out, err := c.ELB.DescribeLoadBalancerAttributes(ctx, &elb.DescribeLoadBalancerAttributesInput{LoadBalancerArn: arn}, c.RetryELBUntilKnown())
			if err != nil {
				return fmt.Errorf("read its attributes: %w", err)
			}
			for _, a := range out.Attributes {
				balancer[sdk.ToString(a.Key)] = sdk.ToString(a.Value)
			}
			return nil
		})
	}
	if p.group != nil {
		arn := p.group.TargetGroupArn
		g.Go(func() error {
			out, err := c.ELB.DescribeTargetGroupAttributes(ctx, &elb.DescribeTargetGroupAttributesInput{TargetGroupArn: arn}, c.RetryELBUntilKnown())
			if err != nil {
				return fmt.Errorf("read the attributes of its target group: %w", err)
			}
			for _, a := range out.Attributes {
				group[sdk.ToString(a.Key)] = sdk.ToString(a.Value)
			}
			return nil
		})
		g.Go(func() error {
			out, err := c.ELB.DescribeTargetHealth(ctx, &elb.DescribeTargetHealthInput{TargetGroupArn: arn}, c.RetryELBUntilKnown())
			if err != nil {
				return fmt.Errorf("describe its targets: %w", err)
			}
			for _, t := range out.TargetHealthDescriptions {
				if t.TargetHealth == nil || t.TargetHealth.State != types.TargetHealthStateEnumDraining {
					p.targets = append(p.targets, sdk.ToString(t.Target.Id))
				}
			}
			slices.Sort(p.targets)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	p.attributes = group
	maps.Copy(p.attributes, balancer)
	return nil
}
