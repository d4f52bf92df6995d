package rolls_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// badValue is an argument with a valid form and an invalid value.
type badValue struct {
	name, resource, argument, value string
	want                            []string
}

// testRefusedValues sets, for every component, a value that only its program refuses. It must be
// refused before anything is stopped: by the plan if the provider knows the rule, by the program
// itself otherwise.
func (w *world) testRefusedValues(t *testing.T) {
	harness.Long(t) // package flags rehearses with each program
	was := suite.Units(t, machines...)
	for _, tt := range []badValue{
		{"audit policy of another kind", "k8s_control_plane", "audit_policy", `yamlencode({ apiVersion = "v1", kind = "ConfigMap" })`,
			[]string{"audit_policy", `wanted kind Policy of audit.k8s.io/v1, found "ConfigMap" of "v1"`}},
		{"eviction threshold", "k8s_worker_pool", "kubelet_config", `{ evictionHard = { "memory.available" = "some" } }`,
			[]string{"kubelet_config", `evictionHard: memory.available: "some" is neither a quantity such as 500Mi nor a percentage`}},
		{"a flag that nothing reads", "k8s_worker_pool", "extra_args", `{ kube_proxy = { proxy-mode = "ipvs" } }`,
			[]string{"extra_args", "use the argument kube_proxy_config instead"}},
	} {
		t.Run("plan: "+tt.name, func(t *testing.T) {
			w.with(t, tt, func() {
				_, _, err := w.WS.Plan(t.Context(), "-refresh=false")
				harness.Refused(t, err, tt.want...)
			})
		})
	}
	for _, tt := range []badValue{
		{"etcd", "k8s_etcd_cluster", "extra_args", `{ etcd = { election-timeout = "100" } }`,
			[]string{"machine controller-", "etcd.service would not start: --election-timeout[100ms] should be at least as 5 times as --heartbeat-interval"}},
		{"admission plugin", "k8s_control_plane", "admission_plugins", `{ PodSecurity = {
			apiVersion = "pod-security.admission.config.k8s.io/v1", kind = "PodSecurityConfiguration", defaults = { enforce = "basline" } } }`,
			[]string{"machine controller-", "kube-apiserver.service would not start:", "PodSecurity configuration error: enforce: must be one of privileged, baseline, restricted"}},
		{"controller manager", "k8s_control_plane", "extra_args", `{ kube_controller_manager = { controllers = "*,no-such-controller" }, ` + schedulerArgs + " }",
			[]string{"machine controller-", `kube-controller-manager.service would not start: "no-such-controller" is not in the list of known controllers`}},
		{"scheduler", "k8s_control_plane", "scheduler_config", `{ percentageOfNodesToScore = 200 }`,
			[]string{"machine controller-", "kube-scheduler.service would not start: percentageOfNodesToScore: Invalid value: 200"}},
		{"kubelet", "k8s_worker_pool", "kubelet_config", `merge(var.elsewhere.kubelet_config, { maxPods = -1 })`,
			[]string{"machine worker-", "kubelet.service would not start:", "maxPods (--max-pods) -1 must not be a negative number"}},
		{"kube-proxy", "k8s_worker_pool", "kube_proxy_config", `{ mode = "foo" }`,
			[]string{"machine worker-", `kube-proxy.service would not start: failed validate: KubeProxyConfiguration.Mode.ProxyMode: Invalid value: "foo"`}},
		{"containerd", "k8s_worker_pool", "containerd_config",
			`{ plugins = { "io.containerd.cri.v1.images" = { snapshotter = 3 } } }`,
			[]string{"machine worker-", "containerd.service would not start:", "cannot decode TOML integer into struct field config.ImageConfig.Snapshotter"}},
		{"a key that nothing reads", "k8s_worker_pool", "containerd_config", `{ plugins = { "io.containerd.cri.v1.images" = { snapshoter = "native" } } }`,
			[]string{"machine worker-", `containerd.service would start, but nothing reads its key plugins."io.containerd.cri.v1.images".snapshoter`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.with(t, tt, func() {
				planned := w.plannedFiles(t)
				if len(planned[tt.resource+".this"]) == 0 {
					t.Errorf("the plan changes %q, wanted files of %s", planned, tt.resource)
				}
				began := time.Now()
				_, err := w.WS.Apply(t.Context())
				harness.Refused(t, err, append(tt.want, "rehearse the new configuration", "nothing has been stopped or changed")...)
				t.Logf("refused after %s", time.Since(began).Round(time.Second))
				if again := w.plannedFiles(t); !maps.EqualFunc(again, planned, slices.Equal) {
					t.Errorf("after the refusal the plan changes %q, before it %q", again, planned)
				}
			})
		})
	}
	wantRestarted(t, was)
	for _, m := range machines {
		if left := w.Sh(t, m, "ls -d /run/k8s-rehearsal/* /run/systemd/system/k8s-rehearsal* 2>/dev/null; grep k8s-rehearsal /proc/mounts; systemctl list-units --all --no-legend 'k8s-rehearsal*'"); left != "" {
			t.Errorf("a rehearsal left on %s:\n%s", m, left)
		}
	}
	w.write(t)
	w.NoChanges(t)
}

// with configures a value while f runs, and restores the configuration.
func (w *world) with(t *testing.T, v badValue, f func()) {
	t.Helper()
	args := w.arguments[v.resource]
	before := maps.Clone(args)
	args[v.argument] = v.value
	w.write(t)
	f()
	w.arguments[v.resource] = before
	w.write(t)
}
