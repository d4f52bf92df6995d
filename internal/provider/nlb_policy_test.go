package provider

import (
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
)

// TestBalancerPolicy makes, repairs, changes and deletes load balancers under the policies of examples/iam:
// each action of that for load balancers is called, and without it an error names it.
func TestBalancerPolicy(t *testing.T) {
	t.Parallel()
	everyday, balancers, destroy := readPolicy(t, "everyday.json"), readPolicy(t, "load-balancers.json"), readPolicy(t, "destroy.json")
	whole := newRestricted(t, everyday.without(""), balancers.without(""))
	if failure := whole.balancerJob(balancers.without(""), destroy.without("")); failure != "" {
		t.Fatal(failure)
	}
	called := whole.account.Calls()
	for _, s := range balancers.Statement {
		for _, action := range statementActions(s) {
			service, name, _ := strings.Cut(action, ":")
			if service == "ec2" { // Elastic Load Balancing asks EC2 with the caller's permissions, and not all of that is documented
				continue
			}
			if called[name] == 0 {
				t.Errorf("nobody calls %s: remove it from the policy", action)
			}
			if !everyKill && name != "SetSubnets" && name != "AddTags" && name != "DescribeTags" {
				continue
			}
			t.Run(action, func(t *testing.T) {
				t.Parallel()
				without := balancers.without(action)
				missed(t, action, newRestricted(t, everyday.without(""), without).balancerJob(without, destroy.without("")))
			})
		}
	}
}

// balancerJob returns the first failure. The user has the policy for everyday and that for load balancers, and
// at the end those for load balancers and for destruction.
func (r *restricted) balancerJob(balancers, destroy string) string {
	give := func(policies ...string) {
		if _, err := r.account.Cloud.Identities().PutUser("terraform", policies); err != nil {
			r.t.Fatal(err)
		}
	}
	everyday := readPolicy(r.t, "everyday.json").without("")
	give(everyday, balancers)
	network, nlb, machine, leaving := r.instance("k8s_network"), r.instance("k8s_nlb"), r.instance("k8s_machine"), r.instance("k8s_machine")
	config := func(controllers ...*instance) values {
		hosts := []any{}
		for _, c := range controllers {
			hosts = append(hosts, c.get("host"))
		}
		return values{"network": network.get("ref"), "controllers": hosts}
	}
	for _, step := range []struct {
		name string
		do   func() string
	}{
		{"create the network", func() string { return network.attempt(with(networkConfig(), values{"zone_count": 2})) }},
		{"create machines", func() string {
			return either(func() string {
				return machine.attempt(values{"name": "controller-0", "role": "controller", "network": network.get("ref")})
			}, func() string {
				return leaving.attempt(values{"name": "controller-1", "role": "controller", "network": network.get("ref")})
			})
		}},
		{"create load balancers", func() string {
			return nlb.attempt(with(config(machine, leaving), values{"tags": values{"room": "12"}}))
		}},
		{"settle", func() string {
			r.provider.Settle(r.t.Context())
			return nlb.refreshed()
		}},
		{"damage", func() string { return r.damageBalancer(nlb, network) }},
		{"repair", func() string { return nlb.attempt(config(machine)) }},
		{"clean up", func() string {
			out := answer[*elb.DescribeTargetGroupsOutput](r.t)(r.cloud.client.ELB.DescribeTargetGroups(r.t.Context(), &elb.DescribeTargetGroupsInput{Names: []string{"other", "another"}}))
			for _, g := range out.TargetGroups {
				answer[*elb.DeleteTargetGroupOutput](r.t)(r.cloud.client.ELB.DeleteTargetGroup(r.t.Context(), &elb.DeleteTargetGroupInput{TargetGroupArn: g.TargetGroupArn}))
			}
			return ""
		}},
		{"delete load balancers", func() string { return nlb.dismiss().failure() }},
		{"destroy", func() string {
			give(everyday, balancers, destroy)
			return either(func() string { return machine.dismiss().failure() }, func() string { return leaving.dismiss().failure() }, func() string { return network.dismiss().failure() })
		}},
	} {
		if failure := step.do(); failure != "" {
			return step.name + ": " + failure
		}
	}
	r.account.Empty()
	return ""
}

// damageBalancer is done by somebody with all rights. The refresh finds it.
func (r *restricted) damageBalancer(nlb, network *instance) string {
	n := &nlbCluster{cloud: r.cloud, nlb: nlb}
	api, ctx, arn, group := r.cloud.client.ELB, r.t.Context(), n.arn("internal"), n.group(r.t, "internal")
	var failures []string
	note := func(_ any, err error) {
		if err != nil {
			failures = append(failures, err.Error())
		}
	}
	workers := network.get("security_group_ids").(values)["worker"].(string)
	subnets := network.get("ref").(values)["subnets"].([]any)
	note(api.SetSecurityGroups(ctx, &elb.SetSecurityGroupsInput{LoadBalancerArn: arn, SecurityGroups: []string{workers}}))
	note(api.SetSubnets(ctx, &elb.SetSubnetsInput{LoadBalancerArn: arn, Subnets: []string{subnets[0].(values)["id"].(string)}}))
	note(api.ModifyTargetGroup(ctx, &elb.ModifyTargetGroupInput{TargetGroupArn: group.TargetGroupArn, HealthyThresholdCount: sdk.Int32(3)}))
	listeners := answer[*elb.DescribeListenersOutput](r.t)(api.DescribeListeners(ctx, &elb.DescribeListenersInput{LoadBalancerArn: arn})).Listeners
	other, err := api.CreateTargetGroup(ctx, &elb.CreateTargetGroupInput{Name: sdk.String("other"), Protocol: types.ProtocolEnumTcp, Port: sdk.Int32(1), VpcId: group.VpcId, TargetType: types.TargetTypeEnumInstance})
	if err != nil {
		return err.Error()
	}
	note(api.ModifyListener(ctx, &elb.ModifyListenerInput{ListenerArn: listeners[0].ListenerArn, DefaultActions: []types.Action{{Type: types.ActionTypeEnumForward, TargetGroupArn: other.TargetGroups[0].TargetGroupArn}}}))
	another, err := api.CreateTargetGroup(ctx, &elb.CreateTargetGroupInput{Name: sdk.String("another"), Protocol: types.ProtocolEnumTcp, Port: sdk.Int32(1), VpcId: group.VpcId, TargetType: types.TargetTypeEnumInstance})
	if err != nil {
		return err.Error()
	}
	note(api.CreateListener(ctx, &elb.CreateListenerInput{LoadBalancerArn: arn, Port: sdk.Int32(80), Protocol: types.ProtocolEnumTcp,
		DefaultActions: []types.Action{{Type: types.ActionTypeEnumForward, TargetGroupArn: another.TargetGroups[0].TargetGroupArn}}}))
	failures = append(failures, nlb.refreshed())
	if failure := strings.Join(failures, ""); failure != "" {
		return failure
	}
	return ""
}
