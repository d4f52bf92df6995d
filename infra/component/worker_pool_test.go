package component

import (
	"strings"
	"testing"
)

// TestFieldsOfNodes: the fields that differ by node are the node's own, unless the user has set them, if only
// to null. Nodes of a pool do not share them.
func TestFieldsOfNodes(t *testing.T) {
	other := worker0
	other.Name = "worker-9"
	for _, tt := range []struct {
		name              string
		kubelet, proxy    map[string]any
		wantID, wantNames [2]string // of worker0 and other
	}{
		{"by default", nil, nil, [2]string{"providerID: aws:///a/i-0\n", "providerID: aws:///a/i-9\n"}, [2]string{"hostnameOverride: " + worker0.Name + "\n", "hostnameOverride: worker-9\n"}},
		{"set", map[string]any{"providerID": "x"}, map[string]any{"hostnameOverride": "z"}, [2]string{"providerID: x\n", "providerID: x\n"}, [2]string{"hostnameOverride: z\n", "hostnameOverride: z\n"}},
		{"set to nothing", map[string]any{"providerID": ""}, map[string]any{"hostnameOverride": ""}, [2]string{"providerID: \"\"\n", "providerID: \"\"\n"}, [2]string{"hostnameOverride: \"\"\n", "hostnameOverride: \"\"\n"}},
		{"set to null", map[string]any{"providerID": nil}, map[string]any{"hostnameOverride": nil}, [2]string{"providerID: null\n", "providerID: null\n"}, [2]string{"hostnameOverride: null\n", "hostnameOverride: null\n"}},
	} {
		spec := workerSpec(t)
		spec.Kubelet.ProviderIDs = map[string]string{worker0.Name: "aws:///a/i-0", other.Name: "aws:///a/i-9"}
		spec.Kubelet.Config, spec.KubeProxy.Config = tt.kubelet, tt.proxy
		machine := Workers(spec)
		for i, n := range []Node{worker0, other} {
			for _, f := range must(t)(machine(n)).State.Files {
				if f.Path == KubeletConfigPath && !strings.Contains(string(f.Content), tt.wantID[i]) {
					t.Errorf("%s: %s lacks %q:\n%s", tt.name, n.Name, tt.wantID[i], f.Content)
				}
				if f.Path == KubeProxyConfigPath && !strings.Contains(string(f.Content), tt.wantNames[i]) {
					t.Errorf("%s: %s lacks %q:\n%s", tt.name, n.Name, tt.wantNames[i], f.Content)
				}
			}
		}
	}
}
