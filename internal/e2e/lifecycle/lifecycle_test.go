package lifecycle_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// TestLifecycle covers the life of one cluster. Its steps depend on one another.
func TestLifecycle(t *testing.T) {
	example := filepath.Join(suite.Root, "examples", "ha-cluster")
	source, err := os.ReadFile(filepath.Join(example, "main.tf"))
	if err != nil {
		t.Fatal(err)
	}
	ws := suite.Workspace(t, "lifecycle", suite.CLI, example)
	suite.Bind(t, ws, "demo")
	c := &cluster{Cluster: suite.Cluster(ws), main: string(source), vars: map[string]any{}, version: way[0]}
	step := harness.Steps(t)
	step("install", c.testInstall)
	step("two subnets", c.testTwoSubnets)
	step("a bastion of the cluster", c.testBastion)
	step("versions", c.testVersions)
	for _, next := range way[1:] {
		step("upgrade to "+next, func(t *testing.T) { c.testUpgrade(t, next) })
	}
	step("status", c.testStatus)
	step("a controller is gone", c.testLostController)
	step("two controllers at once", c.testTwoControllers)
	step("scale", c.testScale)
	step("replace the load balancer", c.testReplaceBalancer)
	step("destroy", c.testDestroy)
}

func (c *cluster) testInstall(t *testing.T) {
	c.adopt(t)
	for name, text := range map[string]string{"spare.tf": spare, "pools_override.tf": pools, "profile_override.tf": harness.ProfileOverride} {
		if err := c.WS.WriteFile(name, text); err != nil {
			t.Fatal(err)
		}
	}
	suite.KeepSnapshots(t)
	c.set(t, map[string]any{"kubernetes_version": c.version, "snapshot_bucket": harness.SnapshotBucket})
	c.Apply(t)
	c.Learn(t)
	c.wantVersions(t, 2)
	c.Create(t, harness.Web)
	c.Kubectl(t, "rollout", "status", "deployment/web", "--timeout=90s")
}

// wantVersions checks that the API server and this many nodes have the cluster's release.
func (c *cluster) wantVersions(t *testing.T, nodes int) {
	t.Helper()
	version := c.version
	if out := c.Kubectl(t, "version"); !strings.Contains(out, "Server Version: v"+version) {
		t.Errorf("API server: %s", out)
	}
	got := c.Kubectl(t, "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name} {.status.nodeInfo.kubeletVersion} {.status.conditions[?(@.type=="Ready")].status} {.spec.unschedulable}{"\n"}{end}`)
	want := ""
	for _, n := range harness.Numbered("worker", nodes) {
		want += n + " v" + version + " True \n"
	}
	if got != want {
		t.Errorf("nodes:\n%swanted:\n%s", got, want)
	}
}

// testVersions plans unsupported changes of the release.
func (c *cluster) testVersions(t *testing.T) {
	for version, words := range map[string][]string{
		"1.38.0": {"1.38.0 is not supported", "1.35, 1.36 and 1.37"},
		"1.34.1": {"1.34.1 is not supported"},
	} {
		c.set(t, map[string]any{"kubernetes_version": version})
		_, _, err := c.WS.Plan(t.Context())
		harness.Refused(t, err, append(words, "version = var.kubernetes_version")...)
	}
	c.set(t, map[string]any{"kubernetes_version": c.version})
	// Workers may be older than the control plane, but not newer.
	const pool = "resource \"k8s_worker_pool\" \"this\" {\n"
	main := strings.Replace(c.main, pool, pool+`  version = "`+way[1]+"\"\n", 1)
	if main == c.main {
		t.Fatal("the example has no worker pool any more")
	}
	if err := c.WS.WriteFile("main.tf", main); err != nil {
		t.Fatal(err)
	}
	_, _, err := c.WS.Plan(t.Context())
	harness.Refused(t, err, `resource "k8s_worker_pool" "this"`, `version = "`+way[1]+`"`, "kubelet "+way[1]+" is newer than the API server "+c.version, "upgrade the control plane first")
	if err := c.WS.WriteFile("main.tf", c.main); err != nil {
		t.Fatal(err)
	}
}

// testUpgrade upgrades control plane and workers to the next minor release in one apply.
func (c *cluster) testUpgrade(t *testing.T, next string) {
	controllers, workers := harness.Numbered("controller", 3), harness.Numbered("worker", 2)
	all := slices.Concat(controllers, workers, []string{"lb-0"})
	was := suite.Units(t, all...)
	traffic := c.Traffic(t, c.Kubeconfig)
	c.set(t, map[string]any{"kubernetes_version": next})
	c.Apply(t)
	before := c.version
	c.version = next
	traffic.Unbroken(t)
	if !suite.Logged(t, "controller-0", "took a snapshot before the upgrade of kube-apiserver") {
		t.Error("no snapshot was taken before the upgrade")
	}
	if !t.Failed() {
		t.Logf("figures: Kubernetes %s to %s: %s", before, next, traffic.Figures())
	}

	want := slices.Concat(harness.On(controllers, "kube-apiserver"), harness.On(controllers, "kube-controller-manager"), harness.On(controllers, "kube-scheduler"),
		harness.On(workers, "kubelet"), harness.On(workers, "kube-proxy"))
	now := suite.OnlyRestarted(t, was, all, want...)
	_, servers := harness.OneByOne(t, now, harness.On(controllers, "kube-apiserver"))
	for _, unit := range []string{"kube-controller-manager", "kube-scheduler"} {
		if first, _ := harness.OneByOne(t, now, harness.On(controllers, unit)); first < servers {
			t.Errorf("a %s went down at %d, before the last API server was up at %d", unit, first, servers)
		}
	}
	if first, _ := harness.OneByOne(t, now, harness.On(workers, "kubelet")); first < servers {
		t.Error("a kubelet went down before the last API server was up")
	}
	nodes := slices.DeleteFunc(slices.Clone(traffic.Cordoned), func(s string) bool { return s == "" })
	slices.Sort(nodes)
	if !slices.Equal(nodes, workers) {
		t.Errorf("nodes closed to new pods, as they followed one another: %q", traffic.Cordoned)
	}
	if traffic.Fewest < 1 {
		t.Error("the PodDisruptionBudget was not respected: no pod was ready at one time")
	}
	c.wantVersions(t, 2)
	c.NoChanges(t)
	c.set(t, map[string]any{"kubernetes_version": before})
	_, _, err := c.WS.Plan(t.Context())
	harness.Refused(t, err, "cannot go from "+next+" back to "+before, "version = var.kubernetes_version")
	c.set(t, map[string]any{"kubernetes_version": next})
}

// testStatus asks the status for the newest snapshot. An output of it would change with every hour, so
// it is planned and not applied.
func (c *cluster) testStatus(t *testing.T) {
	const name = "status.tf"
	if err := c.WS.WriteFile(name, `
data "k8s_cluster_status" "this" {
  control_plane = k8s_control_plane.this.ref
  controllers   = k8s_machine.controller[*].host
}

output "seen" {
  value = "healthy ${data.k8s_cluster_status.this.healthy}, ${data.k8s_cluster_status.this.newest_snapshot.revision > 100 ? "some" : "few"} changes"
}

output "problems" {
  value = data.k8s_cluster_status.this.problems
}
`); err != nil {
		t.Fatal(err)
	}
	// On a busy computer a server may be slow to answer so soon after the upgrade.
	harness.Eventually(t, time.Minute, "a healthy status", func() error {
		_, text, err := c.WS.Plan(t.Context())
		if err == nil && !strings.Contains(text, `= "healthy true, some changes"`) {
			err = errors.New(text)
		}
		return err
	})
	if err := os.Remove(filepath.Join(c.WS.Dir, name)); err != nil {
		t.Fatal(err)
	}
}

// testLostController terminates a controller outside Terraform. Terraform notices, a new controller
// takes its place, and the others, the data and the API stay available.
func (c *cluster) testLostController(t *testing.T) {
	const name = "controller-2"
	others := append(harness.Numbered("controller", 2), "worker-0", "worker-1", "lb-0")
	was, members := suite.Units(t, others...), c.Members(t)
	c.Kubectl(t, "create", "configmap", "kept", "--from-literal=a=b")
	traffic := c.Traffic(t, c.Kubeconfig)
	c.terminate(t, name)
	c.Apply(t)
	traffic.Answering(t)
	suite.OnlyRestarted(t, was, others)
	now := c.Members(t)
	if len(now) != 3 || now[name] == members[name] {
		t.Errorf("members: %v, before: %v", now, members)
	}
	for _, o := range others[:2] {
		if now[o] != members[o] {
			t.Errorf("%s is member %s now, before it was %s", o, now[o], members[o])
		}
	}
	if !suite.Logged(t, name, "etcd: added as learner "+now[name]) {
		t.Errorf("%s did not join as a learner", name)
	}
	c.Kubectl(t, "get", "configmap", "kept")
	harness.Eventually(t, time.Minute, "the new API server is ready", func() error {
		out, err := suite.TryConsole(t.Context(), name, "curl -s --cacert /etc/kubernetes/pki/ca.crt https://127.0.0.1:6443/readyz")
		if err == nil && out != "ok" {
			err = errors.New(out)
		}
		return err
	})
	c.NoChanges(t)
}

// testTwoControllers checks that a plan that would cost etcd its quorum is refused.
func (c *cluster) testTwoControllers(t *testing.T) {
	_, _, err := c.WS.Plan(t.Context(), `-replace=k8s_machine.controller[0]`, `-replace=k8s_machine.controller[2]`)
	harness.Refused(t, err, "controller-0, controller-2", "quorum", "one machine at a time")
	if n := len(c.Members(t)); n != 3 {
		t.Errorf("%d members", n)
	}
	c.NoChanges(t)
}

// spare is a second pool, without nodes at first. The last workers are in it.
const spare = `
variable "spare" {
  type    = number
  default = 0
}
locals {
  first = var.workers - var.spare
}
resource "k8s_worker_pool" "spare" {
  name              = "spare"
  hosts             = slice(k8s_machine.worker[*].host, local.first, var.workers)
  control_plane     = k8s_control_plane.this.ref
  registries        = var.elsewhere.registries
  kubelet_config    = var.elsewhere.kubelet_config
  kube_proxy_config = var.elsewhere.kube_proxy_config
  containerd_config = var.elsewhere.containerd_config
}
`

const pools = `
resource "k8s_worker_pool" "this" {
  hosts = slice(k8s_machine.worker[*].host, 0, local.first)
}
`

// testScale adds a worker, in a pool that had none, and two controllers, takes them and one more worker away, and adds
// a worker while a setting of the kubelets changes. At last a worker moves to another pool.
func (c *cluster) testScale(t *testing.T) {
	controllers := append(harness.Numbered("controller", 3), "lb-0")
	two := append(harness.Numbered("worker", 2), controllers...)
	one := append(harness.Numbered("worker", 1), controllers...)
	was, members := suite.Units(t, two...), c.Members(t)
	traffic := c.Traffic(t, c.Kubeconfig)
	c.set(t, map[string]any{"workers": 3, "spare": 1, "controllers": 5})
	c.Apply(t)
	if n := len(c.Members(t)); n != 5 {
		t.Errorf("%d members", n)
	}
	c.wantVersions(t, 3)
	c.NoChanges(t)

	c.set(t, map[string]any{"workers": 1, "spare": 0, "controllers": 3})
	c.Apply(t)
	traffic.Answering(t)
	if now := c.Members(t); fmt.Sprint(now) != fmt.Sprint(members) {
		t.Errorf("members: %v, before: %v", now, members)
	}
	// The API servers have etcd's members in a flag, so they are rolled, and nothing else is.
	suite.OnlyRestarted(t, was, one, harness.On(harness.Numbered("controller", 3), "kube-apiserver")...)
	c.wantVersions(t, 1)
	c.Kubectl(t, "rollout", "status", "deployment/web", "--timeout=60s")
	c.NoChanges(t)

	// A new worker gets packages, modules and sysctls while another one is rolled.
	was = suite.Units(t, one...)
	if err := c.WS.WriteFile("rolled_override.tf", rolled); err != nil {
		t.Fatal(err)
	}
	traffic = c.Traffic(t, c.Kubeconfig)
	c.set(t, map[string]any{"workers": 2})
	c.Apply(t)
	traffic.Unbroken(t)
	suite.OnlyRestarted(t, was, one, "worker-0/kubelet")
	c.wantVersions(t, 2)
	c.NoChanges(t)

	was = suite.Units(t, two...)
	nodes := c.Kubectl(t, "get", "nodes", "-o", "jsonpath={.items[*].metadata.uid}")
	traffic = c.Traffic(t, c.Kubeconfig)
	c.set(t, map[string]any{"spare": 1})
	c.Apply(t)
	traffic.Unbroken(t)
	suite.OnlyRestarted(t, was, two)
	if now := c.Kubectl(t, "get", "nodes", "-o", "jsonpath={.items[*].metadata.uid}"); now != nodes {
		t.Errorf("the nodes were %s, and are %s", nodes, now)
	}
	c.wantVersions(t, 2)
	c.NoChanges(t)
}

// rolled is a changed setting of the kubelets.
const rolled = `
resource "k8s_worker_pool" "this" {
  kubelet_config = merge(var.elsewhere.kubelet_config, { maxPods = 99 })
}
resource "k8s_worker_pool" "spare" {
  kubelet_config = merge(var.elsewhere.kubelet_config, { maxPods = 99 })
}
`

func (c *cluster) testReplaceBalancer(t *testing.T) {
	others := append(harness.Numbered("controller", 3), "worker-0", "worker-1")
	was := suite.Units(t, others...)
	c.Apply(t, `-replace=k8s_machine.lb`)
	var endpoint string
	if err := c.WS.Output(t.Context(), "endpoint", &endpoint); err != nil || endpoint != c.Endpoint {
		t.Errorf("the endpoint is %s (%v), it was %s", endpoint, err, c.Endpoint)
	}
	suite.OnlyRestarted(t, was, others)
	// The nodes could not report meanwhile, and nothing in the apply waits for them.
	c.Kubectl(t, "wait", "--for=condition=Ready", "nodes", "--all", "--timeout=3m")
	c.wantVersions(t, 2)
	c.NoChanges(t)
}
