package topologies_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// TestNLB moves a running cluster from HAProxy to Network Load Balancers and back while clients write and
// read, and loses a controller in between. In make test the cluster has them from the beginning.
func TestNLB(t *testing.T) {
	c := open(t, "nlb")
	step := harness.Steps(t)
	api, balancers := ec2.NewFromConfig(suite.AWS()), elb.NewFromConfig(suite.AWS())
	step("apply", func(t *testing.T) {
		if everything {
			endpoint(t, c, "lb", "")
		}
		c.Apply(t)
		c.Learn(t)
	})
	step("second plan is empty", c.NoChanges)
	step("the endpoint moves to load balancers of AWS", func(t *testing.T) {
		inSoak(t)
		moved(t, c, "lb", "nlb")
		if _, there := c.Addresses["lb-0"]; there {
			t.Error("lb-0 is still there")
		}
		if out := harness.Must[*ec2.DescribeAddressesOutput](t)(api.DescribeAddresses(t.Context(), &ec2.DescribeAddressesInput{})); len(out.Addresses) > 0 {
			t.Errorf("Elastic IPs: %d", len(out.Addresses))
		}
	})
	step("machines reach the API through the internal load balancer", func(t *testing.T) {
		for _, worker := range harness.Numbered("worker", 2) {
			if config := c.Sh(t, worker, "grep server: /etc/kubernetes/kubelet.kubeconfig"); !strings.Contains(config, "https://kfs-demo-internal-") {
				t.Errorf("%s has %s", worker, config)
			}
		}
		// A controller is one of its own targets: connections to itself come about too.
		for range 12 {
			if out := c.Sh(t, "controller-0", "curl -sk -m 5 -o /dev/null -w '%{http_code}' "+private(t, c)+"/readyz"); out != "200" {
				t.Fatalf("controller-0 gets %s", out)
			}
		}
	})
	step("damage is found and repaired", func(t *testing.T) {
		group := group(t, balancers, "kfs-demo-internal")
		targets := harness.Must[*elb.DescribeTargetHealthOutput](t)(balancers.DescribeTargetHealth(t.Context(), &elb.DescribeTargetHealthInput{TargetGroupArn: &group})).TargetHealthDescriptions
		harness.Must[*elb.DeregisterTargetsOutput](t)(balancers.DeregisterTargets(t.Context(), &elb.DeregisterTargetsInput{TargetGroupArn: &group, Targets: []elbtypes.TargetDescription{*targets[0].Target}}))
		changes, text, err := c.WS.Plan(t.Context())
		if err != nil || !changes {
			t.Fatalf("changes %t, %v", changes, err)
		}
		harness.Says(t, text, "module.cluster.k8s_nlb.this[0]", "target "+*targets[0].Target.Id+": not registered")
		c.Apply(t)
		c.NoChanges(t)
	})
	step("API servers that would refuse health checks", func(t *testing.T) {
		inSoak(t)
		refusing(t, c, balancers)
	})
	step("a controller is lost", func(t *testing.T) {
		inSoak(t)
		healthy(t, balancers, 3)
		traffic := c.Traffic(t, c.Kubeconfig)
		time.Sleep(5 * time.Second) // of undisturbed traffic
		id := instance(t, c, "controller-0")
		harness.Must[*ec2.TerminateInstancesOutput](t)(api.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{id}}))
		healthy(t, balancers, 2)
		time.Sleep(10 * time.Second)
		gap := traffic.Gap(t)
		t.Logf("figures: controller behind load balancers lost: longest gap of the API %s", gap.Round(100*time.Millisecond))
		if gap > gapWanted {
			t.Errorf("the API was silent for %s", gap)
		}
		if lost, err := nodesLost(t, c); err != nil || len(lost) > 0 {
			t.Errorf("nodes are lost: %v, %v", lost, err)
		}
		c.Apply(t)
		c.NoChanges(t)
		c.LearnMachines(t)
	})
	step("the endpoint moves to HAProxy", func(t *testing.T) {
		inSoak(t)
		moved(t, c, "nlb", "lb")
		if out := harness.Must[*elb.DescribeLoadBalancersOutput](t)(balancers.DescribeLoadBalancers(t.Context(), &elb.DescribeLoadBalancersInput{})); len(out.LoadBalancers) > 0 {
			t.Errorf("load balancers: %d", len(out.LoadBalancers))
		}
	})
	step("destroy leaves nothing", c.Destroy)
}

// refusing has API servers read a file with which they refuse health checks. Each apply stops at the first controller, from which the load
// balancers take their clients, and clients go on with the other two.
func refusing(t *testing.T, c *harness.Cluster, balancers *elb.Client) {
	t.Helper()
	controllers := harness.Numbered("controller", 3)
	args := c.RefuseHealthChecks(t, controllers...)
	override := filepath.Join(suite.Dir, "modules", "cluster", "refusing_override.tf")
	if err := os.WriteFile(override, []byte("resource \"k8s_control_plane\" \"this\" {\n  extra_args = "+args+"\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(override) //nolint:errcheck // it is removed below
	started := func(m string) string {
		return c.Sh(t, m, "systemctl show --property=ActiveEnterTimestampMonotonic kube-apiserver.service")
	}
	was := []string{started(controllers[1]), started(controllers[2])}
	traffic := c.Traffic(t, c.Kubeconfig)
	for range 2 {
		_, err := c.WS.Apply(t.Context())
		harness.Refused(t, err, "machine controller-0", "ask the API server as the load balancer's health checks do", "GET /readyz without credentials: 403 Forbidden")
		healthy(t, balancers, 2)
	}
	if is := []string{started(controllers[1]), started(controllers[2])}; !slices.Equal(was, is) {
		t.Errorf("other API servers have restarted: %q, and before %q", is, was)
	}
	gap := traffic.Gap(t)
	t.Logf("figures: API server that refuses the health checks of load balancers: longest gap of the API %s", gap.Round(100*time.Millisecond))
	if gap > refusedGap {
		t.Errorf("the API was silent for %s", gap)
	}
	if err := os.Remove(override); err != nil {
		t.Fatal(err)
	}
	c.Apply(t)
	c.NoChanges(t)
	healthy(t, balancers, 3)
}

// refusedGap is how long clients may wait for an answer when an API server behind load balancers restarts.
const refusedGap = 5 * time.Second

// endpoint writes what carries the endpoint, and what has carried it before.
func endpoint(t *testing.T, c *harness.Cluster, now, before string) {
	t.Helper()
	vars := fmt.Sprintf("endpoint = %q\n", now)
	if before != "" {
		vars += fmt.Sprintf("endpoint_before = %q\n", before)
	}
	if err := c.WS.WriteFile("endpoint.auto.tfvars", vars); err != nil {
		t.Fatal(err)
	}
}

// moved moves the endpoint in two applies. In the first one clients use the old endpoint, and in the second
// one the new one.
func moved(t *testing.T, c *harness.Cluster, from, to string) {
	t.Helper()
	for _, before := range []string{from, ""} {
		endpoint(t, c, to, before)
		var text string
		result := recorded(t, c, func() { text = c.Apply(t) })
		t.Logf("figures: endpoint from %s to %s, apply %d: %s", from, to, map[string]int{from: 1, "": 2}[before], result)
		if !result.Whole() || result.Gap > movingGap {
			t.Errorf("acknowledged writes are lost, the history is not linearizable, or clients waited for more than %s: %s", movingGap, result)
		}
		if strings.Contains(text, "Warning: Workers cannot reach the API") {
			t.Error("the apply warns of an outage")
		}
		c.NoChanges(t)
		c.Learn(t)
		if lost, err := nodesLost(t, c); err != nil || len(lost) > 0 {
			t.Errorf("nodes are lost: %v, %v", lost, err)
		}
	}
}

// movingGap is how long clients may wait for an answer while the endpoint moves: as long as a new connection
// takes.
const movingGap = 5 * time.Second

// private returns the private endpoint, as controller-0 reaches it.
func private(t *testing.T, c *harness.Cluster) string {
	t.Helper()
	raw := c.Sh(t, "worker-0", "grep server: /etc/kubernetes/kubelet.kubeconfig")
	return strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(raw), "server:"))
}

func group(t *testing.T, api *elb.Client, name string) string {
	t.Helper()
	return *harness.Must[*elb.DescribeTargetGroupsOutput](t)(api.DescribeTargetGroups(t.Context(), &elb.DescribeTargetGroupsInput{Names: []string{name}})).TargetGroups[0].TargetGroupArn
}

// healthy waits until both load balancers have so many healthy targets.
func healthy(t *testing.T, api *elb.Client, want int) {
	t.Helper()
	for _, name := range []string{"kfs-demo-internal", "kfs-demo-public"} {
		arn := group(t, api, name)
		harness.Eventually(t, time.Minute, fmt.Sprintf("%s has %d healthy targets", name, want), func() error {
			out, err := api.DescribeTargetHealth(t.Context(), &elb.DescribeTargetHealthInput{TargetGroupArn: &arn})
			if err != nil {
				return err
			}
			well := slices.DeleteFunc(out.TargetHealthDescriptions, func(d elbtypes.TargetHealthDescription) bool {
				return d.TargetHealth.State != elbtypes.TargetHealthStateEnumHealthy
			})
			if len(well) != want {
				return fmt.Errorf("%d are healthy", len(well))
			}
			return nil
		})
	}
}

// instance returns the id of a machine.
func instance(t *testing.T, c *harness.Cluster, name string) string {
	t.Helper()
	for _, m := range c.Machines(t) {
		if m.Host.Name == name {
			return m.ID
		}
	}
	t.Fatalf("no machine %s", name)
	return ""
}
