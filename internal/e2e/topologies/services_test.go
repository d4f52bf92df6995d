package topologies_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// one is one pod that logs who asks it.
const one = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: one, namespace: default}
spec:
  selector: {matchLabels: {app: one}}
  template:
    metadata: {labels: {app: one}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: web, image: "k8s-lab/toolbox:1", command: [sh, -c, "mkdir -p /www && echo one > /www/index.html && exec httpd -f -vv -p 8080 -h /www"]}
`

// TestServices has an Ingress controller behind a load balancer, and Services of type LoadBalancer. They are reached from outside, also
// after a pause, a manager that starts makes no calls that write, and a destroy with Services leaves nothing.
func TestServices(t *testing.T) {
	inSoak(t)
	c := &ingress{Cluster: openAs(t, "services", "ingress")}
	step := harness.Steps(t)
	managers := []string{"delete", "pods", "-n", "kube-system", "-l", "k8s-app=cloud-controller-manager", "--force"}
	step("apply", func(t *testing.T) {
		suite.MachineRole(t, "k8s-worker", "demo", suite.ClusterPolicy(t, "service-load-balancers", "demo"))
		if err := c.WS.WriteFile("node.auto.tfvars", "node_profile = \"k8s-worker\"\n"); err != nil {
			t.Fatal(err)
		}
		c.write(t, "traefik.yaml")
		c.write(t, "websites.yaml")
		c.Apply(t)
		c.Learn(t)
	})
	step("second plan is empty", c.NoChanges)
	var vars struct {
		AdminCIDRs []string `json:"admin_cidrs"`
	}
	if err := json.Unmarshal(harness.Must[[]byte](t)(os.ReadFile(filepath.Join(c.WS.Dir, "lab.auto.tfvars.json"))), &vars); err != nil || len(vars.AdminCIDRs) == 0 {
		t.Fatalf("the operator's address: %v", err)
	}
	client := strings.TrimSuffix(vars.AdminCIDRs[0], "/32")
	step("an Ingress leads hosts to their applications", c.testHosts)
	step("a NodePort answers whom nodeport_cidrs has", func(t *testing.T) { c.testNodePort(t, client) })
	step("the Ingress controller follows a change", c.testChange)
	step("pods of the Ingress controller end", c.testKill)
	step("a pause keeps Nodes and load balancers", c.testPause)
	step("an Ingress ends", c.testEnd)
	answers := func(t *testing.T, service, what string) {
		t.Helper()
		host := c.BalancerOf(t, service)
		harness.Eventually(t, time.Minute, service+" answers "+what, func() error {
			_, err := harness.FromOutside(t.Context(), host)
			return err
		})
	}
	patch := func(t *testing.T, service, spec string) {
		t.Helper()
		c.Kubectl(t, "patch", "service", service, "-p", `{"spec": `+spec+`}`)
	}
	step("three Services at once", func(t *testing.T) {
		c.Create(t, harness.Web+"---"+one+harness.BalancedService("web", "web", "")+harness.BalancedService("local", "one", ", externalTrafficPolicy: Local")+
			harness.BalancedService("narrow", "web", `, loadBalancerSourceRanges: ["`+client+`/32"]`))
		for _, service := range []string{"web", "local", "narrow"} {
			answers(t, service, "from outside")
		}
		if said := c.Kubectl(t, "logs", "deployment/one"); !strings.Contains(said, client+"]:") {
			t.Errorf("the pod was not asked by %s:\n%s", client, said)
		}
		patch(t, "narrow", `{"loadBalancerSourceRanges": ["192.0.2.0/24"]}`)
		host := c.BalancerOf(t, "narrow")
		harness.Eventually(t, time.Minute, "narrow is closed to an address that is not in its source ranges", func() error {
			if body, err := harness.FromOutside(t.Context(), host); err == nil {
				return errors.New(body)
			}
			return nil
		})
		answers(t, "web", "still")
		c.ForServices(t, 4)
	})
	step("the load balancer follows the only pod to another node", func(t *testing.T) {
		node := c.Kubectl(t, "get", "pods", "-l", "app=one", "-o", "jsonpath={.items[0].spec.nodeName}")
		began := time.Now()
		c.Kubectl(t, "cordon", node)
		c.Kubectl(t, "delete", "pods", "-l", "app=one")
		c.Kubectl(t, "rollout", "status", "deployment/one", "--timeout=60s")
		answers(t, "local", "from another node")
		t.Logf("figures: the only pod behind a load balancer moved: answers after %s", time.Since(began).Round(time.Second))
		c.Kubectl(t, "uncordon", node)
	})
	step("Services change", func(t *testing.T) {
		patch(t, "narrow", `{"loadBalancerSourceRanges": null, "ports": [{"port": 80, "$patch": "delete"}, {"port": 81, "targetPort": 8080}]}`)
		patch(t, "local", `{"externalTrafficPolicy": "Cluster"}`)
		host, api := c.BalancerOf(t, "narrow"), elb.NewFromConfig(suite.AWS())
		harness.Eventually(t, time.Minute, "narrow answers on another port, and local has another health check", func() error {
			for _, g := range harness.Must[*elb.DescribeTargetGroupsOutput](t)(api.DescribeTargetGroups(t.Context(), &elb.DescribeTargetGroupsInput{})).TargetGroups {
				if g.HealthCheckProtocol != elbtypes.ProtocolEnumTcp {
					return fmt.Errorf("%s is checked by %s", *g.TargetGroupName, g.HealthCheckProtocol)
				}
			}
			_, err := harness.FromOutside(t.Context(), host+":81")
			return err
		})
		c.ForServices(t, 4)
	})
	step("rules are no drift", c.NoChanges)
	step("managers that start write nothing", func(t *testing.T) {
		if err := suite.Control(t.Context(), "POST", "/_lab/reset-calls", nil, nil); err != nil {
			t.Fatal(err)
		}
		c.Kubectl(t, managers...)
		calls := map[string]int{}
		look := func() error {
			return suite.Control(t.Context(), "GET", "/_lab/calls", nil, &calls)
		}
		harness.Eventually(t, time.Minute, "a manager has looked at all Services", func() error {
			if err := look(); err != nil || calls["DescribeTargetHealth"] < 5 {
				return errors.Join(fmt.Errorf("calls: %v", calls), err)
			}
			return nil
		})
		time.Sleep(10 * time.Second) // it writes after it has looked
		if err := look(); err != nil {
			t.Fatal(err)
		}
		var said []string
		for _, action := range slices.Sorted(maps.Keys(calls)) {
			said = append(said, fmt.Sprintf("%d %s", calls[action], action))
			if !strings.HasPrefix(action, "Describe") {
				t.Errorf("%d calls of %s", calls[action], action)
			}
		}
		t.Logf("figures: calls of managers that start with four Services: %s", strings.Join(said, ", "))
	})
	step("a Service that ends leaves nothing", func(t *testing.T) {
		c.Kubectl(t, "delete", "service", "narrow", "--timeout=60s")
		c.ForServices(t, 3)
	})
	step("destroy with three Services leaves nothing", func(t *testing.T) {
		c.Destroy(t)
		c.ForServices(t, 0)
	})
}
