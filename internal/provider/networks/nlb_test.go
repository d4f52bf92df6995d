package networks_test

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

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

func newNLBCluster(t *testing.T, networkConfig providertest.Values) *providertest.NLBCluster {
	t.Helper()
	n := &providertest.NLBCluster{Cloud: providertest.NewCloud(t)}
	n.Network, n.NLB = n.Instance("k8s_network"), n.Instance("k8s_nlb")
	n.Network.Must(networkConfig)
	for i := range 2 {
		machine := n.Instance("k8s_machine")
		machine.Must(providertest.Values{"name": fmt.Sprintf("controller-%d", i), "role": "controller", "network": n.Network.Get("ref")})
		n.Controllers = append(n.Controllers, machine)
	}
	return n
}

// TestNLB: the load balancers have a name each, are changed in place, and what somebody else does to them is
// drift and is repaired.
func TestNLB(t *testing.T) {
	t.Parallel()
	n := newNLBCluster(t, providertest.With(providertest.NetworkConfig(), providertest.Values{"zone_count": 2}))
	config := n.Config(providertest.Values{"tags": providertest.Values{"room": "12"}})
	planned := providertest.Plain(n.NLB.Plan(config).Planned).(providertest.Values)
	if planned["id"] != "demo" || planned["endpoint"] != providertest.Unknown {
		t.Errorf("planned %v", planned)
	}
	n.NLB.Must(config)
	n.Cloud = n.Ends(t)
	n.NLB, n.Network = n.Taken(n.NLB), n.Taken(n.Network)
	n.NLB.Converged(config)

	internal, facing := n.NLB.Get("internal").(providertest.Values), n.NLB.Get("internet_facing").(providertest.Values)
	ref := n.NLB.Get("ref").(providertest.Values)
	if want := fmt.Sprintf("https://%s:6443", facing["dns_name"]); n.NLB.Get("endpoint") != want || ref["endpoint"] != want {
		t.Errorf("endpoint %v, wanted %s", n.NLB.Get("endpoint"), want)
	}
	if want := fmt.Sprintf("https://%s:6443", internal["dns_name"]); n.NLB.Get("private_endpoint") != want || internal["dns_name"] == facing["dns_name"] {
		t.Errorf("private endpoint %v, wanted %s", n.NLB.Get("private_endpoint"), want)
	}
	if names := fmt.Sprint(ref["names"]); names != fmt.Sprint([]any{facing["dns_name"], internal["dns_name"]}) {
		t.Errorf("names %s", names)
	}
	if ids := n.Ids(); !slices.Equal(n.Targets(t, "internal"), ids) || !slices.Equal(n.Targets(t, "internet_facing"), ids) {
		t.Errorf("targets %v and %v, wanted %v", n.Targets(t, "internal"), n.Targets(t, "internet_facing"), ids)
	}

	t.Run("drift", func(t *testing.T) {
		api, ctx, group := n.Client.ELB, t.Context(), n.Group(t, "internal")
		providertest.Answer[*elb.DeregisterTargetsOutput](t)(api.DeregisterTargets(ctx, &elb.DeregisterTargetsInput{TargetGroupArn: group.TargetGroupArn, Targets: []types.TargetDescription{{Id: &n.Ids()[0]}}}))
		providertest.Answer[*elb.ModifyTargetGroupOutput](t)(api.ModifyTargetGroup(ctx, &elb.ModifyTargetGroupInput{TargetGroupArn: group.TargetGroupArn, HealthCheckPath: sdk.String("/livez")}))
		providertest.Answer[*elb.ModifyTargetGroupAttributesOutput](t)(api.ModifyTargetGroupAttributes(ctx, &elb.ModifyTargetGroupAttributesInput{TargetGroupArn: group.TargetGroupArn,
			Attributes: []types.TargetGroupAttribute{{Key: sdk.String("preserve_client_ip.enabled"), Value: sdk.String("true")}}}))
		providertest.Answer[*elb.ModifyLoadBalancerAttributesOutput](t)(api.ModifyLoadBalancerAttributes(ctx, &elb.ModifyLoadBalancerAttributesInput{LoadBalancerArn: n.Arn("internal"),
			Attributes: []types.LoadBalancerAttribute{{Key: sdk.String("load_balancing.cross_zone.enabled"), Value: sdk.String("false")}}}))
		workers := n.Network.Get("security_group_ids").(providertest.Values)["worker"].(string)
		providertest.Answer[*elb.SetSecurityGroupsOutput](t)(api.SetSecurityGroups(ctx, &elb.SetSecurityGroupsInput{LoadBalancerArn: n.Arn("internet_facing"), SecurityGroups: []string{workers}}))
		providertest.Answer[*elb.RemoveTagsOutput](t)(api.RemoveTags(ctx, &elb.RemoveTagsInput{ResourceArns: []string{*n.Arn("internet_facing")}, TagKeys: []string{"room"}}))
		listeners := providertest.Answer[*elb.DescribeListenersOutput](t)(api.DescribeListeners(ctx, &elb.DescribeListenersInput{LoadBalancerArn: n.Arn("internet_facing")})).Listeners
		providertest.Answer[*elb.DeleteListenerOutput](t)(api.DeleteListener(ctx, &elb.DeleteListenerInput{ListenerArn: listeners[0].ListenerArn}))

		n.NLB.Refresh()
		drift := fmt.Sprint(n.NLB.Get("drift"))
		providertest.Mention(t, drift, "internal load balancer", "public load balancer", "target "+n.Ids()[0]+": not registered", "HTTPS /livez", "attribute preserve_client_ip.enabled: found true, wanted false",
			"attribute load_balancing.cross_zone.enabled: found false, wanted true", "security groups: found "+workers, "tag room: missing", "listener on port 6443: missing")
		n.NLB.Must(config)
		n.NLB.Converged(config)
		if n.NLB.Get("endpoint") != ref["endpoint"] {
			t.Error("a repair has changed the endpoint")
		}
	})

	t.Run("another controller", func(t *testing.T) {
		one := providertest.With(config, providertest.Values{"controllers": config["controllers"].([]any)[1:]})
		n.NLB.Must(one)
		if got := n.Targets(t, "internal"); len(got) != 1 || got[0] != n.Controllers[1].Get("id") {
			t.Errorf("targets %v", got)
		}
		n.NLB.Must(config)
		n.NLB.Converged(config)
	})

	t.Run("private", func(t *testing.T) {
		private := providertest.With(config, providertest.Values{"public": false})
		said := n.NLB.Plan(private)
		if len(said.Warnings) != 1 || !strings.Contains(said.Warnings[0].Summary, fmt.Sprintf("The load balancer %s is deleted", facing["dns_name"])) {
			t.Errorf("warnings %v", said.Warnings)
		}
		n.NLB.Must(private)
		n.NLB.Converged(private)
		if n.NLB.Get("endpoint") != n.NLB.Get("private_endpoint") || n.NLB.Get("internet_facing") != nil || len(n.Account.Cloud.Overview().LoadBalancers) != 1 {
			t.Errorf("endpoint %v, %v", n.NLB.Get("endpoint"), n.Account.Cloud.Overview().LoadBalancers)
		}
		n.NLB.Must(config)
		n.NLB.Converged(config)
	})

	t.Run("deleted by somebody", func(t *testing.T) {
		before := n.NLB.Get("private_endpoint")
		providertest.Answer[*elb.DeleteLoadBalancerOutput](t)(n.Client.ELB.DeleteLoadBalancer(t.Context(), &elb.DeleteLoadBalancerInput{LoadBalancerArn: n.Arn("internal")}))
		n.NLB.Refresh()
		providertest.Mention(t, fmt.Sprint(n.NLB.Get("drift")), "missing; an apply makes another, and the endpoint changes")
		if planned := providertest.Plain(n.NLB.Plan(config).Planned).(providertest.Values); planned["private_endpoint"] != providertest.Unknown || planned["endpoint"] == providertest.Unknown {
			t.Errorf("planned %v and %v", planned["private_endpoint"], planned["endpoint"])
		}
		n.NLB.Must(config)
		n.NLB.Converged(config)
		if n.NLB.Get("private_endpoint") == before {
			t.Error("the endpoint has the name of the load balancer that was deleted")
		}
	})

	t.Run("import", func(t *testing.T) {
		before := n.NLB.State
		n.NLB.Imports("demo")
		n.NLB.Must(config)
		n.NLB.Converged(config)
		for _, name := range []string{"endpoint", "private_endpoint", "claim", "ref"} {
			if was := providertest.Plain(before).(providertest.Values)[name]; fmt.Sprint(n.NLB.Get(name)) != fmt.Sprint(was) {
				t.Errorf("%s was %v and is %v", name, was, n.NLB.Get(name))
			}
		}
	})

	t.Run("a colleague", func(t *testing.T) {
		other := n.Process(t).Instance("k8s_nlb")
		if providertest.Mention(t, other.Attempt(config), "belongs to another state", "`adopt = true`"); !other.State.IsNull() {
			t.Error("it is in the second state")
		}
	})

	n.Fatal(n.NLB.Dismiss().Errors)
	if o := n.Account.Cloud.Overview(); len(o.LoadBalancers)+len(o.TargetGroups) > 0 {
		t.Errorf("left: %v %v", o.LoadBalancers, o.TargetGroups)
	}
}

// TestNLBZones: the load balancers leave a zone before the network does, and come back to the subnet that is given
// for it.
func TestNLBZones(t *testing.T) {
	t.Parallel()
	n := newNLBCluster(t, providertest.With(providertest.NetworkConfig(), providertest.Values{"zone_count": 2}))
	n.NLB.Must(n.Config(nil))
	zones := func(which string) (out []string) {
		found := providertest.Answer[*elb.DescribeLoadBalancersOutput](t)(n.Client.ELB.DescribeLoadBalancers(t.Context(), &elb.DescribeLoadBalancersInput{LoadBalancerArns: []string{*n.Arn(which)}}))
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
	interfaces := providertest.Answer[*ec2.DescribeNetworkInterfacesOutput](t)(n.Client.EC2.DescribeNetworkInterfaces(t.Context(), &ec2.DescribeNetworkInterfacesInput{
		Filters: []ec2types.Filter{{Name: sdk.String("description"), Values: []string{"ELB net/kfs-demo-internal/*"}}}})).NetworkInterfaces
	if len(interfaces) != 2 || !strings.HasSuffix(*interfaces[0].PrivateIpAddress, ".9") || !strings.HasSuffix(*interfaces[1].PrivateIpAddress, ".9") {
		t.Errorf("interfaces %+v", interfaces)
	}
	one := n.Config(providertest.Values{"availability_zones": []any{all[0]}})
	n.NLB.Must(one)
	n.NLB.Converged(one)
	if got := zones("internal"); len(got) != 1 || got[0] != all[0] {
		t.Errorf("zones %v", got)
	}
	n.Network.Must(providertest.With(providertest.NetworkConfig(), providertest.Values{"zone_count": 1}))
	providertest.Mention(t, n.NLB.Plan(n.Config(providertest.Values{"availability_zones": []any{all[1]}})).Failure(), "no subnet in "+all[1])
}

// TestNLBRefusals checks what is refused while planning.
func TestNLBRefusals(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, nlb := c.Instance("k8s_network"), c.Instance("k8s_nlb")
	network.Must(providertest.NetworkConfig())
	host := providertest.Values{"name": "controller-0", "address": "203.0.113.8", "private_ip": "10.240.0.10", "host_key": providertest.PublicKey(t)}
	config := providertest.Values{"network": network.Get("ref"), "controllers": []any{host}}
	providertest.Mention(t, nlb.Plan(config).Failure(), "controller-0 is not an EC2 instance", "use k8s_lb")
	ref := network.Get("ref").(providertest.Values)
	subnet := ref["subnets"].([]any)[0].(providertest.Values)
	config["controllers"] = []any{providertest.With(host, providertest.Values{"instance_id": "i-0123456789abcdef0", "role": "worker"})}
	providertest.Mention(t, nlb.Plan(config).Failure(), "controller-0 has the role worker")
	config["controllers"] = []any{providertest.With(host, providertest.Values{"instance_id": "i-0123456789abcdef0"})}
	config["network"] = providertest.With(ref, providertest.Values{"subnets": []any{providertest.With(subnet, providertest.Values{"public": false})}})
	providertest.Mention(t, nlb.Plan(config).Failure(), "no subnet with a route to an internet gateway", "public = false")
	config["network"] = providertest.With(ref, providertest.Values{"subnets": []any{providertest.With(subnet, providertest.Values{"availability_zone": nil}), providertest.With(subnet, providertest.Values{"id": "subnet-2", "cidr": "10.240.1.0/24"})}})
	providertest.Mention(t, nlb.Plan(config).Failure(), "each of several subnets needs its availability_zone")
	config["network"] = providertest.With(ref, providertest.Values{"subnets": []any{providertest.With(subnet, providertest.Values{"public": false})}})
	if said := nlb.Plan(providertest.With(config, providertest.Values{"public": false})); len(said.Errors) > 0 {
		t.Error(said.Failure())
	}
}
