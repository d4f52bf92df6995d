package topologies_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/builtin"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// edge runs a web server on every controller.
const edge = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: edge, namespace: default}
spec:
  selector: {matchLabels: {app: edge}}
  template:
    metadata: {labels: {app: edge}}
    spec:
      nodeSelector: {node-role.kubernetes.io/control-plane: ""}
      tolerations: [{key: node-role.kubernetes.io/control-plane, effect: NoSchedule}]
      terminationGracePeriodSeconds: 1
      containers:
      - name: web
        image: k8s-lab/toolbox:1
        command: ["sh", "-c", "mkdir -p /www && echo served by $HOSTNAME > /www/index.html && exec httpd -f -p 8080 -h /www"]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
`

// onController makes a Deployment run on controllers.
const onController = `{"spec":{"template":{"spec":{"nodeSelector":{"node-role.kubernetes.io/control-plane":""},"tolerations":[{"key":"node-role.kubernetes.io/control-plane","effect":"NoSchedule"}]}}}}`

// TestControllerNodes runs pods on controllers.
func TestControllerNodes(t *testing.T) {
	inSoak(t)
	c := open(t, "controller-nodes")
	step := harness.Steps(t)
	controllers, workers := harness.Numbered("controller", 3), harness.Numbered("worker", 2)
	step("apply", func(t *testing.T) {
		c.Apply(t)
		c.Learn(t)
	})
	step("second plan is empty", c.NoChanges)
	step("pods without the toleration stay on workers", func(t *testing.T) {
		c.Create(t, harness.Web)
		c.Kubectl(t, "rollout", "status", "deployment/web", "--timeout=120s")
		c.PodEgress(t, workers...)
	})
	step("a pod on every controller is reached from everywhere", func(t *testing.T) {
		c.Create(t, edge)
		reached(t, c, append(controllers, workers...)...)
	})
	step("API servers reach an aggregated API on a controller", func(t *testing.T) { testAggregated(t, c) })
	step("SSH and etcd are closed to workers and their pods", func(t *testing.T) {
		// What a security group lets in answers, if only with an error. Anything else is not answered.
		probe := func(request string) string {
			return fmt.Sprintf("for port in 22 2379 2380 6443; do %s http://%s:$port/ >/dev/null 2>&1; case $? in 28 | 124 | 143) ;; *) echo $port ;; esac; done", request, privateIP(t, c, "controller-0"))
		}
		for from, open := range map[string]string{
			"worker-0": c.Sh(t, "worker-0", probe("curl -s -m 3")),
			"a pod":    c.Kubectl(t, "exec", "deployment/web", "--", "sh", "-c", probe("timeout 3 wget -q -O -")),
		} {
			if got := strings.Fields(open); len(got) != 1 || got[0] != "6443" {
				t.Errorf("from %s the ports %v are open", from, got)
			}
		}
	})
	step("a controller is replaced, as a node too", func(t *testing.T) {
		c.Apply(t, "-replace=module.cluster.k8s_machine.controller[1]")
		c.NoChanges(t)
		c.LearnMachines(t)
		reached(t, c, "controller-1", "worker-0")
	})
	step("damage is found and repaired", func(t *testing.T) {
		c.Sh(t, "controller-0", "systemctl stop kubelet; rm /etc/cni/net.d/10-bridge.conflist")
		changes, text, err := c.WS.Plan(t.Context())
		if err != nil || !changes {
			t.Fatalf("changes %t, %v", changes, err)
		}
		harness.Says(t, text, "module.cluster.k8s_worker_pool.controllers[0]", "10-bridge.conflist", "kubelet.service: stopped, wanted running")
		c.Apply(t)
		c.NoChanges(t)
	})
	step("a running cluster without nodes on controllers, and with them again", func(t *testing.T) {
		main, err := os.ReadFile(filepath.Join(c.WS.Dir, "main.tf"))
		if err != nil {
			t.Fatal(err)
		}
		without := strings.Replace(string(main), "controller_nodes = true", "controller_nodes = false", 1)
		if err := c.WS.WriteFile("main.tf", without); err != nil {
			t.Fatal(err)
		}
		c.Apply(t)
		c.NoChanges(t)
		if nodes := strings.Fields(c.Kubectl(t, "get", "nodes", "-o", "name")); len(nodes) != 2 {
			t.Errorf("nodes %v", nodes)
		}
		if err := c.WS.WriteFile("main.tf", string(main)); err != nil {
			t.Fatal(err)
		}
		c.Apply(t)
		c.NoChanges(t)
		reached(t, c, "controller-0", "worker-1")
	})
	step("destroy leaves nothing", c.Destroy)
}

// reached checks that the pods of edge, one on each controller, answer at their addresses to machines, and
// to pods on workers.
func reached(t *testing.T, c *harness.Cluster, machines ...string) {
	t.Helper()
	c.Kubectl(t, "rollout", "status", "daemonset/edge", "--timeout=120s")
	pods := strings.Fields(c.Kubectl(t, "get", "pods", "-l", "app=edge", "-o", "jsonpath={.items[*].status.podIP}"))
	if len(pods) != 3 {
		t.Fatalf("pods %v", pods)
	}
	script := "for ip in " + strings.Join(pods, " ") + "; do "
	for _, machine := range machines {
		if out := c.Sh(t, machine, script+"curl -sSf -m 5 http://$ip:8080/; done"); strings.Count(out, "served by edge-") != 3 {
			t.Errorf("%s got %s", machine, out)
		}
	}
	if out := c.Kubectl(t, "exec", "deployment/web", "--", "sh", "-c", script+"timeout 5 wget -q -O - http://$ip:8080/; done"); strings.Count(out, "served by edge-") != 3 {
		t.Errorf("a pod on a worker got %s", out)
	}
}

// testAggregated runs metrics-server on a controller. The API servers, which are no pods, reach it at its
// pod's address, and it reaches the kubelets of all nodes.
func testAggregated(t *testing.T, c *harness.Cluster) {
	t.Helper()
	createMetricsServer(t, c)
	c.Kubectl(t, "--namespace=kube-system", "patch", "deployment/metrics-server", "--patch", onController)
	c.Kubectl(t, "--namespace=kube-system", "rollout", "status", "deployment/metrics-server", "--timeout=180s")
	if node := c.Kubectl(t, "--namespace=kube-system", "get", "pods", "-l", "k8s-app=metrics-server", "-o", "jsonpath={.items[*].spec.nodeName}"); !strings.HasPrefix(node, "controller-") {
		t.Fatalf("metrics-server runs on %s", node)
	}
	harness.Eventually(t, 2*time.Minute, "metrics of all nodes", func() error {
		out, err := suite.Kubectl(t.Context(), c.Kubeconfig, nil, "top", "nodes", "--no-headers")
		if err == nil && (strings.Count(out, "controller-") != 3 || strings.Count(out, "worker-") != 2 || strings.Contains(out, "unknown")) {
			err = fmt.Errorf("got %s", out)
		}
		return err
	})
}

// privateIP returns the private address of a machine, by the name that every machine knows.
func privateIP(t *testing.T, c *harness.Cluster, machine string) string {
	t.Helper()
	return strings.TrimSpace(c.Kubectl(t, "get", "node", machine, "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`))
}

// createMetricsServer creates the objects of metrics-server.
func createMetricsServer(t *testing.T, c *harness.Cluster) {
	t.Helper()
	objects, err := builtin.Addon{Name: "metrics-server"}.Objects(component.Cluster{})
	if err != nil {
		t.Fatal(err)
	}
	var manifests strings.Builder
	for _, o := range objects {
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&manifests, "%s\n---\n", text)
	}
	c.Create(t, manifests.String())
}
