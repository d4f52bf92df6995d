package rolls_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

func (w *world) testInstall(t *testing.T) {
	w.testImpossible(t)
	w.apply(t)
	w.Learn(t)
	if _, err := suite.Kubectl(t.Context(), w.Kubeconfig, strings.NewReader(harness.Web), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	w.Kubectl(t, "rollout", "status", "deployment/web", "--timeout=180s")
	w.wantEtcd(t, etcdBefore)
	w.NoChanges(t)
}

// testImpossible installs with a flag that the API server does not have. One controller says so before the
// control plane starts anything.
func (w *world) testImpossible(t *testing.T) {
	t.Helper()
	w.arguments["k8s_control_plane"]["extra_args"] = `{ kube_apiserver = { no-such-flag = "1" } }`
	w.write(t)
	_, err := w.WS.Apply(t.Context())
	harness.Refused(t, err, "machine controller-", "rehearse the new configuration", "kube-apiserver.service would not start: unknown flag: --no-such-flag", "nothing has been stopped or changed")
	for _, c := range controllers {
		if found := suite.Console(t, c, "ls /etc/systemd/system | grep kube- || :"); found != "" {
			t.Errorf("%s has units of the control plane: %s", c, found)
		}
	}
	w.plain()
}

// wantEtcd checks that every member is a voter of a release.
func (w *world) wantEtcd(t *testing.T, release string) {
	t.Helper()
	for _, c := range controllers {
		out := w.etcdctl(t, c, "endpoint status --write-out=json")
		var status []struct {
			Status struct {
				Version   string `json:"version"`
				IsLearner bool   `json:"isLearner"`
			} `json:"Status"`
		}
		if err := json.Unmarshal([]byte(out), &status); err != nil {
			t.Fatal(err)
		}
		if len(status) != 1 || status[0].Status.Version != release || status[0].Status.IsLearner {
			t.Errorf("%s: %s", c, out)
		}
	}
}

// etcdctl runs etcdctl against the member on a machine.
func (w *world) etcdctl(t *testing.T, machine, command string) string {
	t.Helper()
	return w.Sh(t, machine, harness.Etcdctl+command)
}

// testRefused plans changes that are impossible. The error must be on the attribute at fault.
func (w *world) testRefused(t *testing.T) {
	was := suite.Units(t, machines...)
	const (
		etcd         = `resource "k8s_etcd_cluster" "this"`
		controlPlane = `resource "k8s_control_plane" "this"`
		pool         = `resource "k8s_worker_pool" "this"`
	)
	for _, tt := range []struct {
		name, resource, argument, value string
		want                            []string
	}{
		{"etcd of another minor", "k8s_etcd_cluster", "version", `"3.5.21"`,
			[]string{etcd, `version = "3.5.21"`, "etcd 3.5.21 is not supported: the supported minors of etcd are 3.6 and 3.7"}},
		{"downgrade", "k8s_control_plane", "version", `"1.35.8"`,
			[]string{controlPlane, `version = "1.35.8"`, "cannot go from 1.36.4 back to 1.35.8: the minor version of a control plane cannot be lowered"}},
		{"audit policy that is not YAML", "k8s_control_plane", "audit_policy", `"{"`, []string{controlPlane, "audit_policy", "Unusable audit policy"}},
		{"audit policy with an unknown level", "k8s_control_plane", "audit_policy",
			`yamlencode({ apiVersion = "audit.k8s.io/v1", kind = "Policy", rules = [{ level = "All" }] })`,
			[]string{controlPlane, "audit_policy", `rules[0].level: Unsupported value: "All"`}},
		{"unknown admission plugin", "k8s_control_plane", "admission_plugins", `{ PodSecurtiy = {} }`,
			[]string{controlPlane, "admission_plugins", `kube-apiserver 1.36.4 has no admission plugin "PodSecurtiy"`}},
		{"unknown admission plugin in a flag", "k8s_control_plane", "extra_args", `{ kube_apiserver = { enable-admission-plugins = "NodeRestriction,podsecurity" } }`,
			[]string{controlPlane, "extra_args", `no admission plugin "podsecurity": did you mean PodSecurity?`}},
		{"health checks refused", "k8s_control_plane", "extra_args", `{ kube_apiserver = { authentication-config = null, anonymous-auth = "false" } }`,
			[]string{controlPlane, "extra_args", "use the argument authentication instead", "anonymous-auth", "with another value the cluster would break"}},
		{"unknown field of the scheduler", "k8s_control_plane", "scheduler_config", `{ leaderElect = true }`,
			[]string{controlPlane, "scheduler_config", `unknown field "leaderElect"`}},
		{"unknown field of the kubelet", "k8s_worker_pool", "kubelet_config", `{ maxpods = 50 }`,
			[]string{pool, "kubelet_config", `unknown field "maxpods"`}},
		{"unknown field of kube-proxy", "k8s_worker_pool", "kube_proxy_config", `{ conntrack = { max = 5 } }`,
			[]string{pool, "kube_proxy_config", `unknown field "conntrack.max"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.plain()
			w.arguments[tt.resource][tt.argument] = tt.value
			w.write(t)
			_, _, err := w.WS.Plan(t.Context(), "-refresh=false")
			harness.Refused(t, err, tt.want...)
		})
	}
	w.plain()
	w.write(t)
	t.Run("skipped minor", w.testSkippedMinor)
	wantRestarted(t, was)
}

// testSkippedMinor edits the state to an older release, and checks that a plan that skips a minor
// release is refused.
func (w *world) testSkippedMinor(t *testing.T) {
	now, err := w.WS.Run(t.Context(), "state", "pull")
	if err != nil {
		t.Fatal(err)
	}
	var state map[string]any
	if err := json.Unmarshal([]byte(now), &state); err != nil {
		t.Fatal(err)
	}
	push := func(edit func(attributes map[string]any)) {
		state["serial"] = state["serial"].(float64) + 1
		for _, r := range state["resources"].([]any) {
			if r := r.(map[string]any); r["type"] == "k8s_control_plane" {
				edit(r["instances"].([]any)[0].(map[string]any)["attributes"].(map[string]any))
			}
		}
		b, err := json.Marshal(state)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.WS.WriteFile("pushed.tfstate", string(b)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.WS.Run(t.Context(), "state", "push", "-force", "pushed.tfstate"); err != nil {
			t.Fatal(err)
		}
	}
	push(func(a map[string]any) { a["version"] = "1.34.9" })
	_, _, err = w.WS.Plan(t.Context(), "-refresh=false")
	harness.Refused(t, err, `resource "k8s_control_plane" "this"`, "version = var.kubernetes_version",
		"cannot go from 1.34.9 to 1.36.4 in one step: a control plane moves one minor version at a time, go to 1.35 first")
	push(func(a map[string]any) { a["version"] = harness.KubernetesVersion })
}

// testNoRoom leaves no room for the download on the last machine. Since all machines download
// before the first one restarts, nothing restarts.
func (w *world) testNoRoom(t *testing.T) {
	const cache = "/var/cache/k8s-from-scratch"
	last := controllers[2]
	w.Sh(t, last, "mkdir -p "+cache+" && mount -t tmpfs -o size=64k none "+cache)
	was := suite.Units(t, machines...)
	w.vars["etcd_version"] = etcdAfter
	w.write(t)
	_, err := w.WS.Apply(t.Context())
	harness.Refused(t, err, "machine "+last, "download etcd "+etcdAfter)
	wantRestarted(t, was)
	w.wantEtcd(t, etcdBefore)
	w.Sh(t, last, "umount "+cache)
}

// testRefusedByNext upgrades with a value that the next release refuses. That release is checked
// while it is still in its archive.
func (w *world) testRefusedByNext(t *testing.T) {
	was := suite.Units(t, machines...)
	w.arguments["k8s_etcd_cluster"]["extra_args"] = `{ etcd = { election-timeout = "100" } }`
	w.write(t)
	_, err := w.WS.Apply(t.Context())
	harness.Refused(t, err, "machine controller-", "etcd.service would not start: --election-timeout[100ms] should be at least as 5 times as --heartbeat-interval", "nothing has been stopped or changed")
	wantRestarted(t, was)
	w.wantEtcd(t, etcdBefore)
	for _, c := range controllers {
		if left := w.Sh(t, c, "ls -d /var/cache/k8s-from-scratch/*.unpacked 2>/dev/null; true"); left != "" {
			t.Errorf("a rehearsal left on %s:\n%s", c, left)
		}
	}
	w.plain()
}

// testEtcdUpgrade upgrades etcd under traffic. A downgrade to an earlier minor release is refused.
func (w *world) testEtcdUpgrade(t *testing.T) {
	w.vars["etcd_version"] = etcdAfter
	was := suite.Units(t, machines...)
	traffic := w.Traffic(t, w.Kubeconfig)
	w.apply(t)
	traffic.Unbroken(t)
	etcd := harness.On(controllers, "etcd")
	harness.OneByOne(t, wantRestarted(t, was, slices.Clone(etcd)...), etcd)
	w.wantEtcd(t, etcdAfter)
	w.NoChanges(t)
	if minor := func(v string) string { return v[:strings.LastIndex(v, ".")] }; minor(etcdBefore) == minor(etcdAfter) {
		return
	}
	if !t.Failed() {
		t.Logf("figures: etcd %s to %s: %s", etcdBefore, etcdAfter, traffic.Figures())
	}
	w.vars["etcd_version"] = etcdBefore
	w.write(t)
	_, _, err := w.WS.Plan(t.Context(), "-refresh=false")
	harness.Refused(t, err, `resource "k8s_etcd_cluster" "this"`, "cannot go from "+etcdAfter+" back to "+etcdBefore+": the minor version of etcd cannot be lowered")
	w.vars["etcd_version"] = etcdAfter
	w.write(t)
}
