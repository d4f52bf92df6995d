package rolls_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// auditPolicy is a policy that differs from the built-in one.
const auditPolicy = `yamlencode({ apiVersion = "audit.k8s.io/v1", kind = "Policy", rules = [{ level = "Metadata" }] })`

// squat occupies the API server's port as soon as it is free.
const squat = `import socket, time
while True:
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        s.bind(("0.0.0.0", 6443))
        s.listen()
        break
    except OSError:
        s.close()
        time.sleep(0.002)
while True:
    time.sleep(60)
`

// testFailsOnSecond changes the audit policy while a program on the second controller waits for the
// API server's port. The roll stops there.
func (w *world) testFailsOnSecond(t *testing.T) {
	w.arguments["k8s_control_plane"]["audit_policy"] = auditPolicy
	want := map[string][]string{"k8s_control_plane.this": {"/etc/kubernetes/audit-policy.yaml"}}
	if got := w.plannedFiles(t); !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("the plan changes %q, wanted %q", got, want)
	}
	w.Sh(t, controllers[1], "cat >/run/squat.py <<'END'\n"+squat+"END\nsystemd-run --quiet --unit=squat python3 /run/squat.py")
	was := suite.Units(t, machines...)
	traffic := w.Traffic(t, w.Kubeconfig)
	_, err := w.WS.Apply(t.Context())
	harness.Refused(t, err, controllers[1], "kube-apiserver", "6443: bind: address already in use", "journalctl --unit kube-apiserver",
		"not touched: "+controllers[2]+". Remove the cause")
	traffic.Unbroken(t)
	now := suite.Units(t, machines...)
	for _, unit := range harness.Restarted(was, now) {
		machine, name, _ := strings.Cut(unit, "/")
		if machine == controllers[2] || !slices.Contains(controllers, machine) || name == "etcd" {
			t.Errorf("%s was restarted", unit)
		}
	}
	if now[controllers[0]+"/kube-apiserver"] == was[controllers[0]+"/kube-apiserver"] {
		t.Error("the first API server was not restarted: the roll has not begun")
	}
	if _, up := now[controllers[1]+"/kube-apiserver"]; up {
		t.Error("the second API server runs: nothing has failed")
	}
}

// testResumed removes the cause and applies again.
func (w *world) testResumed(t *testing.T) {
	was := suite.Units(t, machines...)
	w.Sh(t, controllers[1], "systemctl stop squat; rm /run/squat.py") // systemd may start the API server before the apply does
	traffic := w.Traffic(t, w.Kubeconfig)
	w.apply(t)
	traffic.Unbroken(t)
	now := wantRestarted(t, was, harness.On(controllers[1:], "kube-apiserver")...)
	harness.OneByOne(t, now, harness.On(controllers, "kube-apiserver"))
	w.NoChanges(t)
	for _, c := range controllers {
		if policy := w.Sh(t, c, "cat /etc/kubernetes/audit-policy.yaml"); !strings.Contains(policy, "rules:\n- level: Metadata\n") {
			t.Errorf("%s has the audit policy\n%s", c, policy)
		}
	}
}

// testUnbalanced has the API servers read a file with which they refuse health checks. The roll stops at the first
// one, and again in the next apply. The others serve. testSettings repairs it.
func (w *world) testUnbalanced(t *testing.T) {
	w.arguments["k8s_control_plane"]["extra_args"] = w.RefuseHealthChecks(t, controllers...)
	w.write(t)
	was := suite.Units(t, machines...)
	traffic := w.Traffic(t, w.Kubeconfig)
	for _, spared := range []string{controllers[1] + ", " + controllers[2], ""} {
		_, err := w.WS.Apply(t.Context())
		want := []string{"machine " + controllers[0], "ask the API server as the load balancer's health checks do", "GET /readyz without credentials: 403 Forbidden"}
		if spared != "" {
			want = append(want, "not touched: "+spared)
		}
		harness.Refused(t, err, want...)
		wantRestarted(t, was, controllers[0]+"/kube-apiserver")
	}
	traffic.Unbroken(t)
	delete(w.arguments["k8s_control_plane"], "extra_args") // the next step applies
}

// Flags that testSettings sets, each program's in extra_args.
const (
	schedulerArgs = `kube_scheduler = { v = "1" }`
	managerArgs   = `kube_controller_manager = { concurrent-deployment-syncs = "6" }`
	proxyArgs     = `kube_proxy = { v = "1" }`
)

// testSettings changes one setting of every component. The change restarts only these components,
// behind the same health checks.
func (w *world) testSettings(t *testing.T) {
	maps.Copy(w.arguments["k8s_control_plane"], arguments{
		"admission_plugins": `{ PodSecurity = {
			apiVersion = "pod-security.admission.config.k8s.io/v1", kind = "PodSecurityConfiguration",
			defaults = { enforce = "privileged", warn = "baseline" } } }`,
		"extra_args": "{ " + schedulerArgs + ", " + managerArgs + " }",
	})
	maps.Copy(w.arguments["k8s_worker_pool"], arguments{
		"kubelet_config": `merge(var.elsewhere.kubelet_config, { maxPods = 50, protectKernelDefaults = true })`,
		"extra_args":     "{ " + proxyArgs + " }",
	})
	const units = "/etc/systemd/system/"
	want := map[string][]string{
		"k8s_control_plane.this": {"/etc/kubernetes/admission.yaml",
			units + "kube-apiserver.service", units + "kube-controller-manager.service", units + "kube-scheduler.service"},
		"k8s_worker_pool.this": {"/etc/kubernetes/kubelet.yaml", units + "kube-proxy.service"},
	}
	if got := w.plannedFiles(t); !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("the plan changes %q, wanted %q", got, want)
	}
	restart := [][]string{harness.On(controllers, "kube-apiserver"), harness.On(controllers, "kube-controller-manager"), harness.On(controllers, "kube-scheduler"),
		harness.On(workers, "kubelet"), harness.On(workers, "kube-proxy")}
	was := suite.Units(t, machines...)
	traffic := w.Traffic(t, w.Kubeconfig)
	w.apply(t)
	traffic.Unbroken(t)
	now := wantRestarted(t, was, slices.Concat(restart...)...)
	for _, units := range restart {
		harness.OneByOne(t, now, units)
	}
	if closed := traffic.Cordoned; !slices.Equal(closed, []string{""}) {
		t.Errorf("nodes were closed to new pods: %q", closed)
	}
	for _, m := range workers { // what the kubelet compares is there at the next boot too
		if set := w.Sh(t, m, "cat /etc/sysctl.d/*vm.overcommit_memory* /etc/sysctl.d/*kernel.panic.conf"); !strings.Contains(set, "vm.overcommit_memory = 1") || !strings.Contains(set, "kernel.panic = 10") {
			t.Errorf("%s has at the next boot:\n%s", m, set)
		}
	}
	w.NoChanges(t)
}

// testUnknownFlag checks that an unknown flag is found before anything is stopped.
func (w *world) testUnknownFlag(t *testing.T) {
	was := suite.Units(t, machines...)
	const value = ` = { no-such-flag = "1" }`
	for _, tt := range []badValue{
		{"API server", "k8s_control_plane", "extra_args", "{ kube_apiserver" + value + ", " + schedulerArgs + ", " + managerArgs + " }", []string{"machine controller-", "kube-apiserver"}},
		{"scheduler", "k8s_control_plane", "extra_args", "{ kube_scheduler" + value + ", " + managerArgs + " }", []string{"machine controller-", "kube-scheduler"}},
		{"kubelet", "k8s_worker_pool", "extra_args", "{ kubelet" + value + ", " + proxyArgs + " }", []string{"machine worker-", "kubelet"}},
	} {
		w.with(t, tt, func() {
			began := time.Now()
			_, err := w.WS.Apply(t.Context())
			harness.Refused(t, err, append(tt.want, "unknown flag: --no-such-flag", "nothing has been stopped or changed")...)
			t.Logf("%s: refused after %s", tt.name, time.Since(began).Round(time.Second))
		})
	}
	wantRestarted(t, was)
	w.NoChanges(t)
}

// runtime returns changed settings of containerd.
func runtime(oomScore int, drainTimeout string) arguments {
	return arguments{
		"containerd_config": fmt.Sprintf(`merge(var.elsewhere.containerd_config, { oom_score = %d })`, oomScore),
		"max_unavailable":   "2",
		"drain_timeout":     strconv.Quote(drainTimeout),
	}
}

// testDrainBounded changes containerd's settings while no pod may be evicted.
func (w *world) testDrainBounded(t *testing.T) {
	w.Kubectl(t, "patch", "pdb", "web", "--type=merge", "--patch", `{"spec":{"minAvailable":2}}`)
	maps.Copy(w.arguments["k8s_worker_pool"], runtime(-998, "10s"))
	was := suite.Units(t, machines...)
	w.write(t)
	_, err := w.WS.Apply(t.Context())
	harness.Refused(t, err, "drain", "pods left: default/web-", "disruption budget web needs 2 healthy pods and has 2 currently", "kubectl get pods --all-namespaces --field-selector spec.nodeName=worker-")
	for _, unit := range harness.Restarted(was, suite.Units(t, machines...)) {
		// One of the first two nodes may have had no pod of the application.
		if !strings.HasSuffix(unit, "/containerd") || len(w.podsOn(t, strings.TrimSuffix(unit, "/containerd"))) > 0 {
			t.Errorf("%s was restarted", unit)
		}
	}
	if closed := w.Kubectl(t, "get", "nodes", "-o", `jsonpath={.items[?(@.spec.unschedulable==true)].metadata.name}`); closed != "" {
		t.Errorf("still closed to new pods: %s", closed)
	}
	w.Kubectl(t, "patch", "pdb", "web", "--type=merge", "--patch", `{"spec":{"minAvailable":1}}`)
}

// podsOn returns the pods of the application on a node.
func (w *world) podsOn(t *testing.T, node string) []string {
	t.Helper()
	return strings.Fields(w.Kubectl(t, "get", "pods", "-l", "app=web", "--field-selector", "spec.nodeName="+node, "-o", "name"))
}

// everywhere runs a pod on each node that cannot be evicted.
const everywhere = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: everywhere, namespace: default}
spec:
  selector: {matchLabels: {app: everywhere}}
  template:
    metadata: {labels: {app: everywhere}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: sleeper, image: "k8s-lab/toolbox:1", command: ["sleep", "infinity"]}
`

// containers returns the ids and restart counts of the containers of everywhere.
func (w *world) containers(t *testing.T) string {
	t.Helper()
	return w.Kubectl(t, "get", "pods", "-l", "app=everywhere", "--sort-by=.spec.nodeName", "-o",
		`jsonpath={range .items[*]}{.spec.nodeName} {.status.containerStatuses[0].containerID} restarted {.status.containerStatuses[0].restartCount} times{"\n"}{end}`)
}

// testTwoAtATime upgrades containerd on three nodes, two of which may be down. Pods that cannot
// move to another node keep running.
func (w *world) testTwoAtATime(t *testing.T) {
	w.Create(t, everywhere)
	w.Kubectl(t, "rollout", "status", "daemonset/everywhere", "--timeout=120s")
	running := w.containers(t)
	w.containerd = containerdAfter
	w.arguments["k8s_worker_pool"]["containerd_version"] = strconv.Quote(w.containerd)
	maps.Copy(w.arguments["k8s_worker_pool"], runtime(-997, "120s"))
	was := suite.Units(t, machines...)
	traffic := w.Traffic(t, w.Kubeconfig)
	w.apply(t)
	traffic.Unbroken(t)
	wantRestarted(t, was, harness.On(workers, "containerd")...)
	most := 0
	for _, set := range traffic.Cordoned {
		if set != "" {
			most = max(most, strings.Count(set, "+")+1)
		}
	}
	if most != 2 {
		t.Errorf("at most %d nodes were closed to new pods at a time, as they followed one another: %q", most, traffic.Cordoned)
	}
	t.Logf("closed to new pods: %q", traffic.Cordoned)
	if traffic.Fewest < 1 {
		t.Error("the PodDisruptionBudget was not respected: no pod was ready at one time")
	}
	if now := w.containers(t); now != running {
		t.Errorf("containers were not left alone:\n%sbefore:\n%s", now, running)
	}
	for _, pod := range strings.Fields(w.Kubectl(t, "get", "pods", "-l", "app=everywhere", "-o", "name")) { // the new release manages the containers that the earlier one has started
		if out := w.Kubectl(t, "exec", pod, "--", "echo", "at your service"); out != "at your service\n" {
			t.Errorf("%s answers %q", pod, out)
		}
	}
	const runtimes = `jsonpath={range .items[*]}{.status.nodeInfo.containerRuntimeVersion}{"\n"}{end}`
	harness.Eventually(t, time.Minute, "the nodes tell of the new release", func() error { // with their next status report
		if got := w.Kubectl(t, "get", "nodes", "-o", runtimes); got != strings.Repeat("containerd://"+containerdAfter+"\n", len(workers)) {
			return errors.New(got)
		}
		return nil
	})
	w.NoChanges(t)
}
