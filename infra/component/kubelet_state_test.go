package component

import (
	"slices"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

// TestEmptyNodeFields: a change of how pods are placed needs an empty node. Other changes, and other spellings of
// the same values, do not.
func TestEmptyNodeFields(t *testing.T) {
	static := map[string]any{"cpuManagerPolicy": "static"}
	with := func(more map[string]any) map[string]any {
		return mergeMaps(static, more)
	}
	for _, tt := range []struct {
		name        string
		before, now map[string]any
		want        string
	}{
		{"nothing", nil, nil, ""},
		{"most pods", nil, map[string]any{"maxPods": 50}, ""},
		{"static", nil, static, "cpuManagerPolicy"},
		{"and back", static, nil, "cpuManagerPolicy"},
		{"and back, in words", static, map[string]any{"cpuManagerPolicy": "none"}, "cpuManagerPolicy"},
		{"the default in words", nil, map[string]any{"cpuManagerPolicy": "none", "memoryManagerPolicy": "None", "topologyManagerPolicy": "none"}, ""},
		{"memory", nil, map[string]any{"memoryManagerPolicy": "Static", "reservedMemory": []any{map[string]any{"numaNode": 0, "limits": map[string]any{"memory": "500Mi"}}}},
			"memoryManagerPolicy, reservedMemory"},
		{"topology", nil, map[string]any{"topologyManagerPolicy": "restricted", "topologyManagerScope": "pod"}, "topologyManagerPolicy, topologyManagerScope"},
		{"reserved for the machine, of whole processors", static, with(map[string]any{"kubeReserved": map[string]any{"cpu": "1"}}), "kubeReserved"},
		{"the same in another unit", static, with(map[string]any{"kubeReserved": map[string]any{"cpu": "0.06", "memory": "250Mi"}}), ""},
		{"reserved for the machine, of shared ones", nil, map[string]any{"kubeReserved": map[string]any{"cpu": "1"}}, ""},
		{"options", static, with(map[string]any{"cpuManagerPolicyOptions": map[string]any{"strict-cpu-reservation": "true"}}), "cpuManagerPolicyOptions"},
		{"named processors", static, with(map[string]any{"reservedSystemCPUs": "0"}), "reservedSystemCPUs"},
		{"user namespaces", nil, map[string]any{"userNamespaces": map[string]any{"idsPerPod": 131072}}, "userNamespaces.idsPerPod"},
		{"cgroups", nil, map[string]any{"cgroupRoot": "/pods"}, "cgroupRoot"},
	} {
		before, now := WorkerSpec{Kubelet: KubeletSpec{Config: tt.before}}, WorkerSpec{Kubelet: KubeletSpec{Config: tt.now}}
		if got := strings.Join(now.EmptyNodeFields(before), ", "); got != tt.want {
			t.Errorf("%s: %q, wanted %q", tt.name, got, tt.want)
		}
	}
}

// TestJudgeNode: what is on a machine counts, also what an interrupted roll or somebody else has left.
func TestJudgeNode(t *testing.T) {
	const none, static = "cpuManagerPolicy: none\n", "cpuManagerPolicy: static\n"
	state := func(policy string) string {
		return `{"policyName":"` + policy + `","defaultCpuSet":"0-1","checksum":1}`
	}
	for _, tt := range []struct {
		name                 string
		config, state, wants string
		want                 []string
	}{
		{"a new machine", "", "", static, nil},
		{"without a kubelet's notes", none, "", static, []string{"cpuManagerPolicy"}},
		{"to static", none, state("none"), static, []string{"cpuManagerPolicy"}},
		{"settled", static, state("static"), static + "maxPods: 50\n", nil},
		{"a configuration that somebody has changed, with its notes", none, state("static"), none, []string{`cpu_manager_state has the policy "static"`}},
		{"notes that are no JSON", none, "gone", none, []string{`cpu_manager_state has the policy ""`}},
		{"a configuration that is no YAML", ": :", state("none"), none, nil},
	} {
		found := Found{Files: map[string][]byte{}}
		for path, text := range map[string]string{KubeletConfigPath: tt.config, kubeletStateFiles[0]: tt.state} {
			if text != "" {
				found.Files[path] = []byte(text)
			}
		}
		got, _, err := found.JudgeNode(desired.State{Files: []desired.File{{Path: KubeletConfigPath, Content: []byte(tt.wants)}}})
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, %v; wanted %q", tt.name, got, err, tt.want)
		}
	}
}
