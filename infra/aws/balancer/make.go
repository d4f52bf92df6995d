package balancer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// budget is several times what AWS takes until a load balancer forwards, which is two or three
// minutes.
const budget = 15 * time.Minute

// healthCheck is a health check of targets.
type healthCheck struct {
	protocol                              types.ProtocolEnum
	path, port, codes                     string
	interval, timeout, healthy, unhealthy int32 // seconds, and numbers of checks
}

// wantedCheck asks for readiness, as HAProxy of k8s_lb does. Its times are the shortest that AWS takes.
var wantedCheck = healthCheck{types.ProtocolEnumHttps, "/readyz", "traffic-port", "200", 5, 3, 2, 2}

func checkOf(g types.TargetGroup) healthCheck {
	c := healthCheck{
		g.HealthCheckProtocol, sdk.ToString(g.HealthCheckPath), sdk.ToString(g.HealthCheckPort), "",
		sdk.ToInt32(g.HealthCheckIntervalSeconds), sdk.ToInt32(g.HealthCheckTimeoutSeconds), sdk.ToInt32(g.HealthyThresholdCount), sdk.ToInt32(g.UnhealthyThresholdCount),
	}
	if g.Matcher != nil {
		c.codes = sdk.ToString(g.Matcher.HttpCode)
	}
	return c
}

// String returns the check for people.
func (c healthCheck) String() string {
	return fmt.Sprintf("%s %s on %s wants %s every %ds within %ds, %d times to be healthy, %d to be unhealthy",
		c.protocol, c.path, c.port, c.codes, c.interval, c.timeout, c.healthy, c.unhealthy)
}

// The attributes that are not left at AWS's defaults.
// https://docs.aws.amazon.com/elasticloadbalancing/latest/network/edit-target-group-attributes.html
var (
	balancerAttributes = map[string]string{"load_balancing.cross_zone.enabled": "true"}
	groupAttributes    = map[string]string{
		// A controller reaches itself through the load balancer: with its own address as the client's,
		// the connection would not come about.
		"preserve_client_ip.enabled": "false",
		// Connections to a controller that has left end, so that their clients go to another one.
		"deregistration_delay.timeout_seconds":                "30",
		"deregistration_delay.connection_termination.enabled": "true",
	}
)

// makeParts makes what does not exist, and waits until the load balancer forwards.
func makeParts(ctx context.Context, c *aws.Client, p parts, spec Spec) (parts, error) {
	if err := p.fits(spec); err != nil {
		return p, err
	}
	made := p.group == nil || p.balancer == nil || len(p.listeners) == 0
	if p.group == nil {
		out, err := c.ELB.CreateTargetGroup(ctx, &elb.CreateTargetGroupInput{
			Name: sdk.String(spec.awsName()), VpcId: &spec.VPCID, Protocol: types.ProtocolEnumTcp, Port: sdk.Int32(aws.PortAPI), TargetType: types.TargetTypeEnumInstance,
			HealthCheckProtocol: wantedCheck.protocol, HealthCheckPath: &wantedCheck.path, HealthCheckPort: &wantedCheck.port, Matcher: &types.Matcher{HttpCode: &wantedCheck.codes},
			HealthCheckIntervalSeconds: &wantedCheck.interval, HealthCheckTimeoutSeconds: &wantedCheck.timeout,
			HealthyThresholdCount: &wantedCheck.healthy, UnhealthyThresholdCount: &wantedCheck.unhealthy,
			Tags: aws.ELBTags(tagsOf(c, spec)),
		})
		if err != nil {
			return p, duplicate(ctx, c, spec, fmt.Errorf("make its target group: %w", err))
		}
		if p.group, err = answered(out.TargetGroups); err != nil {
			return p, fmt.Errorf("make its target group: %w", err)
		}
	}
	if p.balancer == nil {
		in := &elb.CreateLoadBalancerInput{
			Name: sdk.String(spec.awsName()), Type: types.LoadBalancerTypeEnumNetwork, Scheme: spec.scheme(), SubnetMappings: spec.mappings(true),
			SecurityGroups: []string{spec.GroupID}, Tags: aws.ELBTags(tagsOf(c, spec)),
		}
		out, err := c.ELB.CreateLoadBalancer(ctx, in, c.RetryELB(aws.DoubtAttempts, "SubnetNotFound", "InvalidSecurityGroup"))
		if aws.IsCode(err, "InvalidConfigurationRequest") { // something has the address, such as a load balancer that is being deleted
			in.SubnetMappings = spec.mappings(false)
			out, err = c.ELB.CreateLoadBalancer(ctx, in)
		}
		if err != nil {
			return p, duplicate(ctx, c, spec, fmt.Errorf("make it: %w", err))
		}
		if p.balancer, err = answered(out.LoadBalancers); err != nil {
			return p, fmt.Errorf("make it: %w", err)
		}
	}
	if len(p.listeners) == 0 {
		if err := listen(ctx, c, p, spec); err != nil {
			return p, fmt.Errorf("make its listener: %w", err)
		}
	}
	if made {
		if err := describeParts(ctx, c, &p); err != nil {
			return p, err
		}
	}
	err := await(ctx, c, &p)
	return p, err
}

// listen makes the listener.
func listen(ctx context.Context, c *aws.Client, p parts, spec Spec) error {
	_, err := c.ELB.CreateListener(ctx, &elb.CreateListenerInput{
		LoadBalancerArn: p.balancer.LoadBalancerArn, Protocol: types.ProtocolEnumTcp, Port: sdk.Int32(aws.PortAPI),
		DefaultActions: forwardTo(p.group.TargetGroupArn), Tags: aws.ELBTags(tagsOf(c, spec)),
	}, c.RetryELBUntilKnown())
	return aws.Ignore(err, "DuplicateListener")
}

// duplicate turns the error of a create that came too late into a ClaimedError.
func duplicate(ctx context.Context, c *aws.Client, spec Spec, err error) error {
	if !aws.IsCode(err, "DuplicateLoadBalancerName", "DuplicateTargetGroupName") {
		return err
	}
	p, seen := findParts(ctx, c, spec)
	if seen != nil {
		return errors.Join(err, seen)
	}
	if other := spec.owns(p, ""); other != nil {
		return other
	}
	return err
}

// answered returns the object in AWS's answer to the call that has made it.
func answered[V any](answer []V) (*V, error) {
	if len(answer) == 0 {
		return nil, errors.New("the answer of AWS does not contain it")
	}
	return &answer[0], nil
}

func forwardTo(group *string) []types.Action {
	return []types.Action{{Type: types.ActionTypeEnumForward, TargetGroupArn: group}}
}

// await waits until the load balancer forwards.
func await(ctx context.Context, c *aws.Client, p *parts) error {
	ctx, cancel := patience.Within(ctx, budget)
	defer cancel()
	arn := sdk.ToString(p.balancer.LoadBalancerArn)
	return aws.Poll(ctx, "wait until it forwards", func(ctx context.Context) (bool, string, error) {
		if p.balancer.State != nil {
			switch p.balancer.State.Code {
			case types.LoadBalancerStateEnumActive, types.LoadBalancerStateEnumActiveImpaired:
				return true, "", nil
			case types.LoadBalancerStateEnumFailed:
				return false, "", fmt.Errorf("AWS could not make it: %s", sdk.ToString(p.balancer.State.Reason))
			}
		}
		out, err := c.ELB.DescribeLoadBalancers(ctx, &elb.DescribeLoadBalancersInput{LoadBalancerArns: []string{arn}}, c.RetryELBUntilKnown())
		if err != nil {
			return false, "", err
		}
		if len(out.LoadBalancers) == 0 || out.LoadBalancers[0].State == nil {
			return false, "AWS does not say its state", nil
		}
		p.balancer = &out.LoadBalancers[0]
		return false, string(p.balancer.State.Code), nil
	})
}

// repairsOf compares what exists with what is wanted.
func repairsOf(c *aws.Client, spec Spec, p parts) []aws.Repair {
	out := groupRepairs(c, spec, p)
	arn := p.balancer.LoadBalancerArn
	present, kept, wanted := p.subnets(spec)
	if found, want := list(present), list(wanted); found != want {
		out = append(out, aws.RepairOf(finding.Finding{Kind: finding.BalancerSubnets, Problem: finding.Value, Found: found, Wanted: want}, func(ctx context.Context) error {
			// AWS changes the subnet of a zone only by leaving the zone.
			for _, subnets := range [][]string{kept, wanted} {
				if len(subnets) == 0 || list(subnets) == found {
					continue
				}
				if _, err := c.ELB.SetSubnets(ctx, &elb.SetSubnetsInput{LoadBalancerArn: arn, Subnets: subnets}); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	if found := list(p.balancer.SecurityGroups); found != spec.GroupID {
		out = append(out, aws.RepairOf(finding.Finding{Kind: finding.SecurityGroups, Problem: finding.Value, Found: found, Wanted: spec.GroupID}, func(ctx context.Context) error {
			_, err := c.ELB.SetSecurityGroups(ctx, &elb.SetSecurityGroupsInput{LoadBalancerArn: arn, SecurityGroups: []string{spec.GroupID}})
			return err
		}))
	}
	if differs := diffAttributes(balancerAttributes, p.attributes); len(differs) > 0 {
		out = append(out, aws.Repair{Findings: differs, Fix: func(ctx context.Context) error {
			in := &elb.ModifyLoadBalancerAttributesInput{LoadBalancerArn: arn}
			for _, t := range aws.ELBTags(balancerAttributes) {
				in.Attributes = append(in.Attributes, types.LoadBalancerAttribute{Key: t.Key, Value: t.Value})
			}
			_, err := c.ELB.ModifyLoadBalancerAttributes(ctx, in)
			return err
		}})
	}
	tags := tagsOf(c, spec)
	for _, part := range p.arns() {
		if differs := aws.DiffTags(tags, p.tags[part]); len(differs) > 0 {
			out = append(out, aws.Repair{Findings: differs, Fix: func(ctx context.Context) error { return c.WriteTags(ctx, []string{part}, tags) }})
		}
	}
	return append(out, listenerRepairs(c, spec, p)...)
}

// mappings are the subnets of a new load balancer, with the addresses that it takes there or any.
func (s Spec) mappings(chosen bool) (out []types.SubnetMapping) {
	for _, zone := range slices.Sorted(maps.Keys(s.Subnets)) {
		first := s.Subnets[zone][0]
		m := types.SubnetMapping{SubnetId: &first.ID}
		if chosen && !s.Public && first.Address.IsValid() {
			m.PrivateIPv4Address = sdk.String(first.Address.String())
		}
		out = append(out, m)
	}
	return out
}

// subnets returns the subnets that a load balancer has, those of them that it keeps, and those that it is to have.
func (p parts) subnets(spec Spec) (present, kept, wanted []string) {
	for _, z := range p.balancer.AvailabilityZones {
		present = append(present, sdk.ToString(z.SubnetId))
	}
	for _, zone := range slices.Sorted(maps.Keys(spec.Subnets)) {
		stays := slices.IndexFunc(spec.Subnets[zone], func(s Subnet) bool { return slices.Contains(present, s.ID) })
		if stays >= 0 {
			kept, wanted = append(kept, spec.Subnets[zone][stays].ID), append(wanted, spec.Subnets[zone][stays].ID)
		} else {
			wanted = append(wanted, spec.Subnets[zone][0].ID)
		}
	}
	return present, kept, wanted
}

// listenerRepairs compares the listeners: there is one, on the API's port.
func listenerRepairs(c *aws.Client, spec Spec, p parts) (out []aws.Repair) {
	listens := false
	for _, l := range p.listeners {
		if sdk.ToInt32(l.Port) != aws.PortAPI || l.Protocol != types.ProtocolEnumTcp {
			out = append(out, aws.RepairOf(finding.Finding{Kind: finding.Listener, Target: fmt.Sprint(sdk.ToInt32(l.Port)), Problem: finding.NotWanted}, func(ctx context.Context) error {
				_, err := c.ELB.DeleteListener(ctx, &elb.DeleteListenerInput{ListenerArn: l.ListenerArn})
				return aws.Ignore(err, "ListenerNotFound")
			}))
			continue
		}
		listens = true
		if p.group != nil && (len(l.DefaultActions) != 1 || sdk.ToString(l.DefaultActions[0].TargetGroupArn) != sdk.ToString(p.group.TargetGroupArn)) {
			out = append(out, aws.RepairOf(finding.Finding{Kind: finding.Listener, Target: fmt.Sprint(aws.PortAPI), Problem: finding.Elsewhere}, func(ctx context.Context) error {
				_, err := c.ELB.ModifyListener(ctx, &elb.ModifyListenerInput{ListenerArn: l.ListenerArn, DefaultActions: forwardTo(p.group.TargetGroupArn)})
				return err
			}))
		}
	}
	if !listens {
		out = append(out, aws.RepairOf(finding.Finding{Kind: finding.Listener, Target: fmt.Sprint(aws.PortAPI), Problem: finding.Missing}, func(ctx context.Context) error {
			return listen(ctx, c, p, spec)
		}))
	}
	return out
}

// groupRepairs compares the target group.
func groupRepairs(c *aws.Client, spec Spec, p parts) (out []aws.Repair) {
	if p.group == nil { // an apply makes it before anything is compared
		return []aws.Repair{aws.RepairOf(finding.Finding{Kind: finding.TargetGroup, Problem: finding.Missing}, func(context.Context) error { return nil })}
	}
	group := p.group.TargetGroupArn
	if found := checkOf(*p.group); found != wantedCheck {
		out = append(out, aws.RepairOf(finding.Finding{Kind: finding.HealthCheck, Problem: finding.Value, Found: found.String(), Wanted: wantedCheck.String()}, func(ctx context.Context) error {
			_, err := c.ELB.ModifyTargetGroup(ctx, &elb.ModifyTargetGroupInput{
				TargetGroupArn: group, HealthCheckProtocol: wantedCheck.protocol, HealthCheckPath: &wantedCheck.path, HealthCheckPort: &wantedCheck.port,
				HealthCheckIntervalSeconds: &wantedCheck.interval, HealthCheckTimeoutSeconds: &wantedCheck.timeout, HealthyThresholdCount: &wantedCheck.healthy,
				UnhealthyThresholdCount: &wantedCheck.unhealthy, Matcher: &types.Matcher{HttpCode: &wantedCheck.codes},
			})
			return err
		}))
	}
	if differs := diffAttributes(groupAttributes, p.attributes); len(differs) > 0 {
		out = append(out, aws.Repair{Findings: differs, Fix: func(ctx context.Context) error {
			in := &elb.ModifyTargetGroupAttributesInput{TargetGroupArn: group}
			for _, t := range aws.ELBTags(groupAttributes) {
				in.Attributes = append(in.Attributes, types.TargetGroupAttribute{Key: t.Key, Value: t.Value})
			}
			_, err := c.ELB.ModifyTargetGroupAttributes(ctx, in)
			return err
		}})
	}
	var missing, others []types.TargetDescription
	var absent, present []finding.Finding
	for _, id := range slices.Sorted(slices.Values(spec.InstanceIDs)) {
		if !slices.Contains(p.targets, id) && !slices.Contains(spec.StoppedIDs, id) {
			missing = append(missing, types.TargetDescription{Id: &id})
			absent = append(absent, finding.Finding{Kind: finding.BalancerTarget, Target: id, Problem: finding.Missing})
		}
	}
	for _, id := range p.targets {
		if !slices.Contains(spec.InstanceIDs, id) {
			others = append(others, types.TargetDescription{Id: &id})
			present = append(present, finding.Finding{Kind: finding.BalancerTarget, Target: id, Problem: finding.NotWanted})
		}
	}
	if len(missing) > 0 {
		out = append(out, aws.Repair{Findings: absent, Fix: func(ctx context.Context) error {
			// An instance that is starting cannot be a target yet.
			_, err := c.ELB.RegisterTargets(ctx, &elb.RegisterTargetsInput{TargetGroupArn: group, Targets: missing}, c.RetryELB(aws.AddressAttempts, "InvalidTarget", "TargetGroupNotFound"))
			return err
		}})
	}
	if len(others) > 0 {
		out = append(out, aws.Repair{Findings: present, Fix: func(ctx context.Context) error {
			_, err := c.ELB.DeregisterTargets(ctx, &elb.DeregisterTargetsInput{TargetGroupArn: group, Targets: others})
			return aws.Ignore(err, "InvalidTarget")
		}})
	}
	return out
}

// diffAttributes returns how found differs from wanted.
func diffAttributes(wanted, found map[string]string) (out []finding.Finding) {
	for _, k := range slices.Sorted(maps.Keys(wanted)) {
		if found[k] != wanted[k] {
			out = append(out, finding.Finding{Kind: finding.BalancerAttribute, Target: k, Problem: finding.Value, Found: found[k], Wanted: wanted[k]})
		}
	}
	return out
}

// list returns ids as a text, sorted.
func list(ids []string) string { return strings.Join(slices.Sorted(slices.Values(ids)), ", ") }
