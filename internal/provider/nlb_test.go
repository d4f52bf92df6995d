package provider

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
)

// nlbCluster is a network with load balancers in front of two controllers.
type nlbCluster struct {
	cloud
	network, nlb *instance
	controllers  []*instance
}

func newNLBCluster(t *testing.T, networkConfig values) *nlbCluster {
	t.Helper()
	n := &nlbCluster{cloud: newCloud(t)}
	n.network, n.nlb = n.instance("k8s_network"), n.instance("k8s_nlb")
	n.network.must(networkConfig)
	for i := range 2 {
		machine := n.instance("k8s_machine")
		machine.must(values{"name": fmt.Sprintf("controller-%d", i), "role": "controller", "network": n.network.get("ref")})
		n.controllers = append(n.controllers, machine)
	}
	return n
}

func (n *nlbCluster) config(more values) values {
	var hosts []any
	for _, c := range n.controllers {
		hosts = append(hosts, c.get("host"))
	}
	return with(values{"network": n.network.get("ref"), "controllers": hosts}, more)
}

// arn returns the ARN of one of the load balancers.
func (n *nlbCluster) arn(which string) *string {
	o, _ := n.nlb.get(which).(values)
	arn, _ := o["arn"].(string)
	return &arn
}

// group returns the target group of a load balancer.
func (n *nlbCluster) group(t *testing.T, which string) types.TargetGroup {
	t.Helper()
	out := answer[*elb.DescribeTargetGroupsOutput](t)(n.client.ELB.DescribeTargetGroups(t.Context(), &elb.DescribeTargetGroupsInput{LoadBalancerArn: n.arn(which)}))
	return out.TargetGroups[0]
}

func (n *nlbCluster) targets(t *testing.T, which string) (out []string) {
	t.Helper()
	found := answer[*elb.DescribeTargetHealthOutput](t)(n.client.ELB.DescribeTargetHealth(t.Context(), &elb.DescribeTargetHealthInput{TargetGroupArn: n.group(t, which).TargetGroupArn}))
	for _, d := range found.TargetHealthDescriptions {
		if d.TargetHealth.State != types.TargetHealthStateEnumDraining {
			out = append(out, *d.Target.Id)
		}
	}
	slices.Sort(out)
	return out
}

func (n *nlbCluster) ids() (out []string) {
	for _, c := range n.controllers {
		out = append(out, c.get("id").(string))
	}
	slices.Sort(out)
	return out
}

// TestNLB: the load balancers have a name each, are changed in place, and what somebody else does to them is
// drift and is repaired.
func TestNLB(t *testing.T) {
	t.Parallel()
	n := newNLBCluster(t, with(networkConfig(), values{"zone_count": 2}))
	config := n.config(values{"tags": values{"room": "12"}})
	planned := plain(n.nlb.plan(config).planned).(values)
	if planned["id"] != "demo" || planned["endpoint"] != unknown {
		t.Errorf("planned %v", planned)
	}
	n.nlb.must(config)
	n.cloud = n.ends(t)
	n.nlb, n.network = n.taken(n.nlb), n.taken(n.network)
	n.nlb.settled(config)

	internal, facing := n.nlb.get("internal").(values), n.nlb.get("internet_facing").(values)
	ref := n.nlb.get("ref").(values)
	if want := fmt.Sprintf("https://%s:6443", facing["dns_name"]); n.nlb.get("endpoint") != want || ref["endpoint"] != want {
		t.Errorf("endpoint %v, wanted %s", n.nlb.get("endpoint"), want)
	}
	if want := fmt.Sprintf("https://%s:6443", internal["dns_name"]); n.nlb.get("private_endpoint") != want || internal["dns_name"] == facing["dns_name"] {
		t.Errorf("private endpoint %v, wanted %s", n.nlb.get("private_endpoint"), want)
	}
	if names := fmt.Sprint(ref["names"]); names != fmt.Sprint([]any{facing["dns_name"], internal["dns_name"]}) {
		t.Errorf("names %s", names)
	}
	if ids := n.ids(); !slices.Equal(n.targets(t, "internal"), ids) || !slices.Equal(n.targets(t, "internet_facing"), ids) {
		t.Errorf("targets %v and %v, wanted %v", n.targets(t, "internal"), n.targets(t, "internet_facing"), ids)
	}

	t.Run("drift", func(t *testing.T) {
		api, ctx, group := n.client.ELB, t.Context(), n.group(t, "internal")
		answer[*elb.DeregisterTargetsOutput](t)(api.DeregisterTargets(ctx, &elb.DeregisterTargetsInput{TargetGroupArn: group.TargetGroupArn, Targets: []types.TargetDescription{{Id: &n.ids()[0]}}}))
		answer[*elb.ModifyTargetGroupOutput](t)(api.ModifyTargetGroup(ctx, &elb.ModifyTargetGroupInput{TargetGroupArn: group.TargetGroupArn, HealthCheckPath: sdk.String("/livez")}))
		answer[*elb.ModifyTargetGroupAttributesOutput](t)(api.ModifyTargetGroupAttributes(ctx, &elb.ModifyTargetGroupAttributesInput{TargetGroupArn: group.TargetGroupArn,
			Attributes: []types.TargetGroupAttribute{{Key: sdk.String("preserve_client_ip.enabled"), Value: sdk.String("true")}}}))
		answer[*elb.ModifyLoadBalancerAttributesOutput](t)(api.ModifyLoadBalancerAttributes(ctx, &elb.ModifyLoadBalancerAttributesInput{LoadBalancerArn: n.arn("internal"),
			Attributes: []types.LoadBalancerAttribute{{Key: sdk.String("load_balancing.cross_zone.enabled"), Value: sdk.String("false")}}}))
		workers := n.network.get("security_group_ids").(values)["worker"].(string)
		answer[*elb.SetSecurityGroupsOutput](t)(api.SetSecurityGroups(ctx, &elb.SetSecurityGroupsInput{LoadBalancerArn: n.arn("internet_facing"), SecurityGroups: []string{workers}}))
		answer[*elb.RemoveTagsOutput](t)(api.RemoveTags(ctx, &elb.RemoveTagsInput{ResourceArns: []string{*n.arn("internet_facing")}, TagKeys: []string{"room"}}))
		listeners := answer[*elb.DescribeListenersOutput](t)(api.DescribeListeners(ctx, &elb.DescribeListenersInput{LoadBalancerArn: n.arn("internet_facing")})).Listeners
		answer[*elb.DeleteListenerOutput](t)(api.DeleteListener(ctx, &elb.DeleteListenerInput{ListenerArn: listeners[0].ListenerArn}))

		n.nlb.refresh()
		drift := fmt.Sprint(n.nlb.get("drift"))
		mention(t, drift, "internal load balancer", "public load balancer", "target "+n.ids()[0]+": not registered", "HTTPS /livez", "attribute preserve_client_ip.enabled: found true, wanted false",
			"attribute load_balancing.cross_zone.enabled: found false, wanted true", "security groups: found "+workers, "tag room: missing", "listener on port 6443: missing")
		n.nlb.must(config)
		n.nlb.settled(config)
		if n.nlb.get("endpoint") != ref["endpoint"] {
			t.Error("a repair has changed the endpoint")
		}
	})

	t.Run("another controller", func(t *testing.T) {
		one := with(config, values{"controllers": config["controllers"].([]any)[1:]})
		n.nlb.must(one)
		if got := n.targets(t, "internal"); len(got) != 1 || got[0] != n.controllers[1].get("id") {
			t.Errorf("targets %v", got)
		}
		n.nlb.must(config)
		n.nlb.settled(config)
	})

	t.Run("private", func(t *testing.T) {
		private := with(config, values{"public": false})
		said := n.nlb.plan(private)
		if len(said.warnings) != 1 || !strings.Contains(said.warnings[0].Summary, fmt.Sprintf("The load balancer %s is deleted", facing["dns_name"])) {
			t.Errorf("warnings %v", said.warnings)
		}
		n.nlb.must(private)
		n.nlb.settled(private)
		if n.nlb.get("endpoint") != n.nlb.get("private_endpoint") || n.nlb.get("internet_facing") != nil || len(n.account.Cloud.Overview().LoadBalancers) != 1 {
			t.Errorf("endpoint %v, %v", n.nlb.get("endpoint"), n.account.Cloud.Overview().LoadBalancers)
		}
		n.nlb.must(config)
		n.nlb.settled(config)
	})

	t.Run("deleted by somebody", func(t *testing.T) {
		before := n.nlb.get("private_endpoint")
		answer[*elb.DeleteLoadBalancerOutput](t)(n.client.ELB.DeleteLoadBalancer(t.Context(), &elb.DeleteLoadBalancerInput{LoadBalancerArn: n.arn("internal")}))
		n.nlb.refresh()
		mention(t, fmt.Sprint(n.nlb.get("drift")), "missing; an apply makes another, and the endpoint changes")
		if planned := plain(n.nlb.plan(config).planned).(values); planned["private_endpoint"] != unknown || planned["endpoint"] == unknown {
			t.Errorf("planned %v and %v", planned["private_endpoint"], planned["endpoint"])
		}
		n.nlb.must(config)
		n.nlb.settled(config)
		if n.nlb.get("private_endpoint") == before {
			t.Error("the endpoint has the name of the load balancer that was deleted")
		}
	})

	t.Run("import", func(t *testing.T) {
		before := n.nlb.state
		n.nlb.imports("demo")
		n.nlb.must(config)
		n.nlb.settled(config)
		for _, name := range []string{"endpoint", "private_endpoint", "claim", "ref"} {
			if was := plain(before).(values)[name]; fmt.Sprint(n.nlb.get(name)) != fmt.Sprint(was) {
				t.Errorf("%s was %v and is %v", name, was, n.nlb.get(name))
			}
		}
	})

	t.Run("a colleague", func(t *testing.T) {
		other := n.process(t).instance("k8s_nlb")
		if mention(t, other.attempt(config), "is another's", "`adopt = true`"); !other.state.IsNull() {
			t.Error("it is in the second state")
		}
	})

	n.fatal(n.nlb.dismiss().errors)
	if o := n.account.Cloud.Overview(); len(o.LoadBalancers)+len(o.TargetGroups) > 0 {
		t.Errorf("left: %v %v", o.LoadBalancers, o.TargetGroups)
	}
}

// TestNLBZones: the load balancers leave a zone before the network does, and come back to the subnet that is given
// for it.
func TestNLBZones(t *testing.T) {
	t.Parallel()
	n := newNLBCluster(t, with(networkConfig(), values{"zone_count": 2}))
	n.nlb.must(n.config(nil))
	zones := func(which string) (out []string) {
		found := answer[*elb.DescribeLoadBalancersOutput](t)(n.client.ELB.DescribeLoadBalancers(t.Context(), &elb.DescribeLoadBalancersInput{LoadBalancerArns: []string{*n.arn(which)}}))
		for _, z := range found.LoadBalancers[0].AvailabilityZones {
			out = append(out, *z.ZoneName)
		}
		return out
	}
	all := zones("internal")
	if len(all) != 2 || len(zones("internet_facing")) != 2 {
		t.Fatalf("zones %v", all)
	}
	// It keeps away from the addresses of machines.
	interfaces := answer[*ec2.DescribeNetworkInterfacesOutput](t)(n.client.EC2.DescribeNetworkInterfaces(t.Context(), &ec2.DescribeNetworkInterfacesInput{
		Filters: []ec2types.Filter{{Name: sdk.String("description"), Values: []string{"ELB net/kfs-demo-internal/*"}}}})).NetworkInterfaces
	if len(interfaces) != 2 || !strings.HasSuffix(*interfaces[0].PrivateIpAddress, ".9") || !strings.HasSuffix(*interfaces[1].PrivateIpAddress, ".9") {
		t.Errorf("interfaces %+v", interfaces)
	}
	one := n.config(values{"availability_zones": []any{all[0]}})
	n.nlb.must(one)
	n.nlb.settled(one)
	if got := zones("internal"); len(got) != 1 || got[0] != all[0] {
		t.Errorf("zones %v", got)
	}
	n.network.must(with(networkConfig(), values{"zone_count": 1}))
	mention(t, n.nlb.plan(n.config(values{"availability_zones": []any{all[1]}})).failure(), "no subnet in "+all[1])
}

// TestNLBRefusals checks what is refused while planning.
func TestNLBRefusals(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, nlb := c.instance("k8s_network"), c.instance("k8s_nlb")
	network.must(networkConfig())
	host := values{"name": "controller-0", "address": "203.0.113.8", "private_ip": "10.240.0.10", "host_key": publicKey(t)}
	config := values{"network": network.get("ref"), "controllers": []any{host}}
	mention(t, nlb.plan(config).failure(), "controller-0 is no EC2 instance", "use k8s_lb")
	ref := network.get("ref").(values)
	subnet := ref["subnets"].([]any)[0].(values)
	config["controllers"] = []any{with(host, values{"instance_id": "i-0123456789abcdef0", "role": "worker"})}
	mention(t, nlb.plan(config).failure(), "controller-0 has the role worker")
	config["controllers"] = []any{with(host, values{"instance_id": "i-0123456789abcdef0"})}
	config["network"] = with(ref, values{"subnets": []any{with(subnet, values{"public": false})}})
	mention(t, nlb.plan(config).failure(), "no subnet with a route to an internet gateway", "public = false")
	config["network"] = with(ref, values{"subnets": []any{with(subnet, values{"availability_zone": nil}), with(subnet, values{"id": "subnet-2", "cidr": "10.240.1.0/24"})}})
	mention(t, nlb.plan(config).failure(), "each of several subnets needs its availability_zone")
	config["network"] = with(ref, values{"subnets": []any{with(subnet, values{"public": false})}})
	if said := nlb.plan(with(config, values{"public": false})); len(said.errors) > 0 {
		t.Error(said.failure())
	}
}
