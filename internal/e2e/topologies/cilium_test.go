package topologies_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// onThisHost are values for machines that are containers, on a host of which cgroup2 is not the only
// hierarchy. No process may have the capability SYS_RESOURCE there, which the chart gives to the agent and
// which no kernel since 5.11 needs for BPF.
const onThisHost = `
cgroup: {hostRoot: %s}
securityContext:
  capabilities:
    ciliumAgent: [CHOWN, KILL, NET_ADMIN, NET_RAW, IPC_LOCK, SYS_MODULE, SYS_ADMIN, DAC_OVERRIDE, FOWNER, SETGID, SETUID, SYSLOG, PERFMON, BPF]
    cleanCiliumState: [NET_ADMIN, SYS_MODULE, SYS_ADMIN]
`

// onlyFriends lets only pods with a label reach harness.Web.
const onlyFriends = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: only-friends, namespace: default}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
  - from: [{podSelector: {matchLabels: {friend: "yes"}}}]
`

// client is a pod on a node, with the label friend if it is one.
const client = `
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: default, labels: {friend: "%[3]s"}}
spec:
  nodeName: %[2]s
  terminationGracePeriodSeconds: 0
  containers:
  - {name: sleep, image: "k8s-lab/toolbox:1", command: ["sleep", "infinity"]}
`

// kept is a pod on every node that a drain does not end, with a port of the host.
const kept = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: kept, namespace: default}
spec:
  selector: {matchLabels: {app: kept}}
  template:
    metadata: {labels: {app: kept}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {name: sleep, image: "k8s-lab/toolbox:1", command: ["sleep", "infinity"], ports: [{containerPort: 8080, hostPort: 18080}]}
`

// cilium is a cluster whose network is Cilium, and what renders its chart.
type cilium struct {
	*harness.Cluster
	chart, helm string
}

func openCilium(t *testing.T, name string) cilium {
	t.Helper()
	out, err := suite.Lab(t.Context(), "artifacts", "--tool", "cilium")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c := cilium{Cluster: openAs(t, name, "cilium")}
	for line := range strings.Lines(out) {
		switch f := strings.Fields(line); {
		case len(f) == 2 && f[0] == "chart":
			c.chart = f[1]
		case len(f) == 2 && f[0] == "helm":
			c.helm = f[1]
		}
	}
	return c
}

// render writes cilium.yaml as the guide says, with further files of values and values of --set.
func (c cilium) render(t *testing.T, files []string, set ...string) {
	t.Helper()
	root := "/sys/fs/cgroup"
	if _, err := os.Stat(root + "/cgroup.controllers"); err != nil {
		root += "/unified"
	}
	here := filepath.Join(suite.Dir, "this-host.yaml")
	if err := os.WriteFile(here, fmt.Appendf(nil, onThisHost, root), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"template", "cilium", c.chart, "--namespace", "kube-system"}
	for _, name := range append([]string{"values.yaml"}, files...) {
		args = append(args, "--values", filepath.Join(suite.Root, "examples/cilium", name))
	}
	args = append(args, "--values", here)
	for _, s := range set {
		args = append(args, "--set", s)
	}
	var stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), c.helm, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("helm: %v\n%s", err, stderr.String())
	}
	if err := c.WS.WriteFile("cilium.yaml", string(out)); err != nil {
		t.Fatal(err)
	}
}

// network sets the variables of the example.
func (c cilium) network(t *testing.T, cni string, kubeProxy bool) {
	t.Helper()
	if err := c.WS.WriteFile("network.auto.tfvars", fmt.Sprintf("cni = %q\nkube_proxy = %t\n", cni, kubeProxy)); err != nil {
		t.Fatal(err)
	}
}

// clean waits until the agents of all nodes report that all is well, and that they reach each other's nodes and
// pods. An agent probes each address once in one to two minutes, so that a failure of its first minute is shown for
// long.
func (c cilium) clean(t *testing.T, routing string, nodes int) {
	t.Helper()
	harness.Eventually(t, 6*time.Minute, "cilium status is clean", func() error {
		pods := strings.Fields(c.Kubectl(t, "--namespace", "kube-system", "get", "pods", "--selector", "k8s-app=cilium", "--output", "name"))
		if len(pods) != nodes {
			return fmt.Errorf("agents: %v", pods)
		}
		for _, pod := range pods {
			status, err := suite.Kubectl(t.Context(), c.Kubeconfig, nil, "--namespace", "kube-system", "exec", pod, "--container", "cilium-agent", "--", "cilium-dbg", "status")
			if err != nil {
				return err
			}
			healthy, _, _ := strings.Cut(strings.TrimSpace(field(status, "Controller Status")), " ")
			done, all, _ := strings.Cut(healthy, "/")
			for name, want := range map[string]string{"Cilium": "Ok", "Kubernetes": "Ok", "KubeProxyReplacement": "True", "Routing": "Network: " + routing, "Cluster health": fmt.Sprintf("%d/%d reachable", nodes, nodes)} {
				if got := field(status, name); !strings.HasPrefix(got, want) {
					return fmt.Errorf("%s: %s is %q, wanted %q", pod, name, got, want)
				}
			}
			if done != all || !strings.Contains(status, "Degraded(0)") {
				return fmt.Errorf("%s:\n%s", pod, status)
			}
		}
		return nil
	})
}

// field returns a field of the output of cilium-dbg status.
func field(status, name string) string {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// gets returns why a pod does not get a page with some words.
func (c cilium) gets(t *testing.T, pod, url, words string) error {
	t.Helper()
	out, err := suite.Kubectl(t.Context(), c.Kubeconfig, nil, "exec", pod, "--", "timeout", "5", "wget", "-q", "-O", "-", url)
	if err == nil && !strings.Contains(out, words) {
		err = errors.New(out)
	}
	return err
}

// carries checks what the network is for, with harness.Web and its service.
func (c cilium) carries(t *testing.T) {
	t.Helper()
	workers := harness.Numbered("worker", 2)
	c.Kubectl(t, "scale", "deployment/web", "--replicas=0") // pods that are still there would count for the spread
	c.Kubectl(t, "wait", "pod", "--selector", "app=web", "--for=delete", "--timeout=60s")
	c.Kubectl(t, "scale", "deployment/web", "--replicas=2")
	c.Kubectl(t, "rollout", "status", "deployment/web", "--timeout=120s")
	c.PodEgress(t, workers...)
	for i, worker := range workers {
		for name, friend := range map[string]string{"friend": "yes", "stranger": "no"} {
			c.Create(t, fmt.Sprintf(client, fmt.Sprintf("%s-%d", name, i), worker, friend))
		}
	}
	c.Kubectl(t, "wait", "pod", "--all", "--for=condition=Ready", "--timeout=60s")
	gets := func(pod, url string) error { return c.gets(t, pod, url, "served by web-") }
	ips := strings.Fields(c.Kubectl(t, "get", "pods", "--selector", "app=web", "--output", "jsonpath={.items[*].status.podIP}"))
	urls := []string{"http://web", "http://web.default.svc.cluster.local"}
	for _, ip := range ips {
		urls = append(urls, "http://"+ip+":8080")
	}
	both := func(pod string, want bool) {
		for i := range workers {
			for _, url := range urls {
				if err := gets(fmt.Sprintf("%s-%d", pod, i), url); (err == nil) != want {
					t.Errorf("%s-%d asks %s, wanted %t: %v", pod, i, url, want, err)
				}
			}
		}
	}
	both("stranger", true)
	c.Create(t, onlyFriends)
	harness.Eventually(t, 30*time.Second, "a stranger is denied", func() error {
		if err := errors.Join(gets("stranger-0", urls[0]), gets("stranger-1", urls[0])); err == nil {
			return errors.New("it still gets the page")
		}
		return nil
	})
	both("stranger", false)
	both("friend", true)
	c.Kubectl(t, "delete", "networkpolicy/only-friends")
	c.Kubectl(t, "delete", "pod", "--selector", "friend", "--force")
	asksWebhook(t, c.Cluster)
}

// TestCilium makes a cluster with Cilium from the beginning: VXLAN and then native routing.
func TestCilium(t *testing.T) {
	inSoak(t)
	c := openCilium(t, "cilium")
	step := harness.Steps(t)
	step("apply", func(t *testing.T) {
		c.render(t, nil, "routingMode=tunnel", "tunnelProtocol=vxlan")
		c.Apply(t)
		c.Learn(t)
	})
	step("second plan is empty", c.NoChanges)
	step("VXLAN", func(t *testing.T) {
		c.Create(t, harness.Web)
		c.Create(t, webService)
		c.Create(t, string(harness.Must[[]byte](t)(os.ReadFile(filepath.Join(suite.Root, "examples/cilium/metadata.yaml")))))
		installWebhook(t, c.Cluster)
		c.clean(t, "Tunnel [vxlan]", 2)
		c.carries(t)
	})
	step("no kube-proxy", func(t *testing.T) { c.noKubeProxy(t) })
	step("pods do not reach the metadata service", func(t *testing.T) {
		installRoles(t, c.Cluster)
		noMetadata(t, c.Cluster)
	})
	step("native routing", func(t *testing.T) {
		c.render(t, nil)
		c.Apply(t)
		c.Kubectl(t, "--namespace", "kube-system", "rollout", "status", "daemonset/cilium", "--timeout=180s")
		c.clean(t, "Native", 2)
		c.carries(t)
	})
	step("a kube-proxy that somebody starts is drift", func(t *testing.T) {
		c.Sh(t, "worker-0", `printf '[Service]\nExecStart=/usr/bin/sleep infinity\n' > /etc/systemd/system/kube-proxy.service && systemctl daemon-reload && systemctl start kube-proxy`)
		changes, text, err := c.WS.Plan(t.Context())
		if err != nil || !changes {
			t.Fatalf("changes %t, %v", changes, err)
		}
		harness.Says(t, text, "module.cluster.k8s_worker_pool.this", "unit kube-proxy.service: running, wanted none")
		c.Apply(t)
		c.NoChanges(t)
		c.noKubeProxy(t)
	})
	step("the controller becomes a node", func(t *testing.T) {
		if err := c.WS.WriteFile("nodes.auto.tfvars", "controller_nodes = true\n"); err != nil {
			t.Fatal(err)
		}
		c.Apply(t)
		c.NoChanges(t)
		c.Create(t, edge)
		c.Kubectl(t, "rollout", "status", "daemonset/edge", "--timeout=180s")
		c.clean(t, "Native", 3)
		ip := strings.TrimSpace(c.Kubectl(t, "get", "pods", "--selector", "app=edge", "--output", "jsonpath={.items[*].status.podIP}"))
		harness.Eventually(t, time.Minute, "a pod on a worker reaches one on the controller", func() error {
			return c.gets(t, "deployment/web", "http://"+ip+":8080/", "served by edge-")
		})
		c.carries(t) // also a webhook, from an API server that has Cilium on its machine now
	})
	step("destroy leaves nothing", c.Destroy)
}

// noKubeProxy checks that nothing of a kube-proxy and of the bridge is on the workers.
func (c cilium) noKubeProxy(t *testing.T) {
	t.Helper()
	for _, worker := range harness.Numbered("worker", 2) {
		if out := c.Sh(t, worker, `systemctl is-active kube-proxy pod-egress; ls -d /usr/local/bin/kube-proxy /etc/kubernetes/*proxy* /etc/kubernetes/pki/*proxy* /etc/kubernetes/pod-egress.nft `+
			`/etc/systemd/system/kube-proxy.service /etc/cni/net.d/10-bridge.conflist /sys/class/net/cni0 2>/dev/null; nft list tables 2>/dev/null | grep -e kube-proxy -e pod-egress -e cni_hostport; :`); strings.Trim(out, "\n") != "inactive\ninactive" {
			t.Errorf("%s has %q", worker, out)
		}
	}
}

// outageWanted is how long the service may be silent while its pods move from node to node.
const outageWanted = 10 * time.Second

// TestCiliumMigration moves a running cluster from the bridge network and kube-proxy to Cilium, node by node, as the
// guide says.
func TestCiliumMigration(t *testing.T) {
	inSoak(t)
	c := openCilium(t, "cilium-migration")
	step := harness.Steps(t)
	step("apply", func(t *testing.T) {
		c.network(t, "bridge", true)
		c.Apply(t)
		c.Learn(t)
		c.Create(t, harness.Web)
		c.Create(t, webService)
		c.Create(t, kept)
		installWebhook(t, c.Cluster)
		c.Kubectl(t, "rollout", "status", "deployment/web", "--timeout=120s")
		c.Kubectl(t, "rollout", "status", "daemonset/kept", "--timeout=120s")
		for _, worker := range harness.Numbered("worker", 2) {
			c.Sh(t, worker, "nft list table ip cni_hostport | grep -w 18080")
		}
	})
	step("agents wait while the bridge is there", func(t *testing.T) {
		c.render(t, []string{"migration.yaml"})
		c.Apply(t)
		harness.Eventually(t, 2*time.Minute, "the agents wait", func() error {
			out := c.Kubectl(t, "--namespace", "kube-system", "get", "pods", "--selector", "k8s-app=cilium", "--output",
				`jsonpath={range .items[*]}{range .status.initContainerStatuses[?(@.name=="wait-for-the-end-of-the-bridge")]}{.state.running.startedAt}{"\n"}{end}{end}`)
			if len(strings.Fields(out)) != 2 {
				return fmt.Errorf("waiting since: %q", out)
			}
			return nil
		})
		c.PodEgress(t, harness.Numbered("worker", 2)...)
	})
	step("node by node", func(t *testing.T) {
		api := harness.Client(t, c.Kubeconfig)
		traffic := c.Requests(t, 100*time.Millisecond, func(ctx context.Context, _ int) error {
			_, err := api.CoreV1().Services("default").ProxyGet("http", "web", "http", "/", nil).DoRaw(ctx)
			return err
		})
		time.Sleep(3 * time.Second) // of undisturbed traffic
		began := time.Now()
		c.network(t, "none", true)
		c.Apply(t)
		moved := time.Since(began)
		c.network(t, "none", false)
		c.Apply(t)
		time.Sleep(3 * time.Second)
		gap := traffic.Gap(t)
		t.Logf("figures: bridge to Cilium: two nodes in %s, longest gap of a service %s", moved.Round(time.Second), gap.Round(100*time.Millisecond))
		if gap > outageWanted {
			t.Errorf("the service was silent for %s", gap)
		}
		c.noKubeProxy(t)
		c.Kubectl(t, "delete", "daemonset/kept")
	})
	step("the end of the migration", func(t *testing.T) {
		c.render(t, nil)
		c.Apply(t)
		c.NoChanges(t)
		c.Create(t, string(harness.Must[[]byte](t)(os.ReadFile(filepath.Join(suite.Root, "examples/cilium/metadata.yaml")))))
		c.Kubectl(t, "--namespace", "kube-system", "rollout", "status", "daemonset/cilium", "--timeout=180s")
		c.clean(t, "Native", 2)
		c.carries(t)
	})
	step("destroy leaves nothing", c.Destroy)
}
