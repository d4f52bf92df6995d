package component

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// said returns errors as text, one a line: field|problem|error.
func said(errs invalid.Fields) []string {
	var out []string
	for _, e := range errs {
		missing := ""
		if e.Missing {
			missing = "|missing"
		}
		out = append(out, fmt.Sprintf("%s|%s|%s%s", e.Field, e.Problem, e.Err, missing))
	}
	return out
}

// TestCheckSettings checks that each mistake is reported on its field, whatever else is set.
func TestCheckSettings(t *testing.T) {
	cp := ControlPlaneSpec{Version: "1.37.1",
		APIServer: APIServerSpec{AuditPolicy: []byte("{}"), AdmissionPlugins: map[string]map[string]any{"podSecurity": nil, "PodSecurity": {}},
			Args: Args{"enable-admission-plugins": {"Foo"}, "runtime-config": {"scheduling.k8s.io/v1alpha2=true"}}},
		Scheduler: SchedulerSpec{Config: map[string]any{"percentage": 5}, Args: Args{"v": {"2"}}},
	}
	worker := WorkerSpec{Version: "1.35.8",
		Kubelet: KubeletSpec{Labels: map[string]string{"a b": "c"}, Taints: []Taint{{Key: "a", Effect: "Never"}},
			Config: map[string]any{"maxpods": 5, "defaultPodSysctls": map[string]any{}}},
		KubeProxy: KubeProxySpec{Config: map[string]any{"mod": "ipvs"}},
	}
	fields := func(errs invalid.Fields) []string {
		var out []string
		for _, e := range errs {
			out = append(out, e.Field)
		}
		slices.Sort(out)
		return out
	}
	var unknown ControlPlaneSpec
	unknown.APIServer, unknown.Scheduler = cp.APIServer, cp.Scheduler
	noRelease := worker
	noRelease.Version, noRelease.Kubelet.Config = "", map[string]any{"defaultPodSysctls": map[string]any{}}
	for _, tt := range []struct {
		name string
		errs invalid.Fields
		want []string
	}{
		{"control plane", cp.Check(), []string{`admission_plugins["podSecurity"]`, "audit_policy", `extra_args.kube_apiserver["enable-admission-plugins"]`,
			`extra_args.kube_apiserver["runtime-config"]`, "scheduler_config"}},
		{"control plane of an unknown release", unknown.Check(), []string{"audit_policy", "scheduler_config"}},
		{"worker", worker.Check(), []string{"kube_proxy_config", "kubelet_config", "labels", "taints"}},
		{"worker of an unknown release", noRelease.Check(), []string{"kube_proxy_config", "labels", "taints"}},
		{"etcd", EtcdSpec{Version: "3.7.3", Quota: 1}.Check(), []string{"quota_mib"}},
		{"nothing", slices.Concat(ControlPlaneSpec{}.Check(), WorkerSpec{}.Check(), EtcdSpec{}.Check()), nil},
	} {
		if diff := cmp.Diff(tt.want, fields(tt.errs)); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}
