package component

import (
	"net/netip"
	"strings"
	"testing"
)

// TestFieldsOfNodes: the fields that differ by node are the node's own, unless the user has set them, if only
// to null. Nodes of a pool do not share them.
func TestFieldsOfNodes(t *testing.T) {
	other := worker0
	other.Name = "worker-9"
	for _, tt := range []struct {
		name  string
		proxy map[string]any
		want  [2]string // of worker0 and other
	}{
		{"by default", nil, [2]string{"hostnameOverride: " + worker0.Name + "\n", "hostnameOverride: worker-9\n"}},
		{"set", map[string]any{"hostnameOverride": "z"}, [2]string{"hostnameOverride: z\n", "hostnameOverride: z\n"}},
		{"set to nothing", map[string]any{"hostnameOverride": ""}, [2]string{"hostnameOverride: \"\"\n", "hostnameOverride: \"\"\n"}},
		{"set to null", map[string]any{"hostnameOverride": nil}, [2]string{"hostnameOverride: null\n", "hostnameOverride: null\n"}},
	} {
		spec := workerSpec(t)
		spec.KubeProxy.Config = tt.proxy
		machine := Workers(spec)
		for i, n := range []Node{worker0, other} {
			for _, f := range must(t)(machine(n)).State.Files {
				if f.Path == KubeProxyConfigPath && !strings.Contains(string(f.Content), tt.want[i]) {
					t.Errorf("%s: %s lacks %q:\n%s", tt.name, n.Name, tt.want[i], f.Content)
				}
			}
		}
	}
}

// TestMaxPodsByNetwork: a node takes no more pods than its pod network has addresses, also when the user says
// nothing, and an import does not take that for a setting.
func TestMaxPodsByNetwork(t *testing.T) {
	for _, tt := range []struct {
		pods, cni string
		config    map[string]any
		want      string // empty: not said
	}{
		{"10.200.1.0/24", "", nil, ""},
		{"10.200.1.0/25", "", nil, ""},
		{"10.200.1.0/26", "", nil, "maxPods: 61\n"},
		{"10.200.1.0/28", "", nil, "maxPods: 13\n"},
		{"10.200.1.0/28", "", map[string]any{"maxPods": nil}, "maxPods: 13\n"},
		{"10.200.1.0/28", "", map[string]any{"maxPods": 5}, "maxPods: 5\n"},
		{"10.200.1.0/28", CNINone, nil, ""},
	} {
		spec, n := workerSpec(t), worker0
		spec.Kubelet.Config, spec.CNI.Network, n.PodCIDR = tt.config, tt.cni, netip.MustParsePrefix(tt.pods)
		found := foundOf(must(t)(Workers(spec)(n)))
		if text := string(found.Files[KubeletConfigPath]); !strings.Contains(text, tt.want) || tt.want == "" && strings.Contains(text, "maxPods") {
			t.Errorf("%+v:\n%s", tt, text)
		}
		if read, err := workerSpec(t).Read(n, found); err != nil || tt.config == nil && read.Kubelet.Config["maxPods"] != nil {
			t.Errorf("%+v is read as %v, %v", tt, read.Kubelet.Config, err)
		}
	}
}
