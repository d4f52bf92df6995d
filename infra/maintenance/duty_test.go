package maintenance

import (
	"slices"
	"testing"
)

// TestNamedBy finds the files that a kubeconfig of a component names.
func TestNamedBy(t *testing.T) {
	got := namedBy([]byte(`apiVersion: v1
kind: Config
clusters:
- name: demo
  cluster:
    certificate-authority: /etc/kubernetes/pki/ca.crt
    server: https://10.240.0.40:6443
users:
- name: system:node:worker-0
  user:
    client-certificate: /etc/kubernetes/pki/kubelet.crt
    client-key: /etc/kubernetes/pki/kubelet.key
contexts:
- name: default
  context: {cluster: demo, user: "system:node:worker-0"}
current-context: default
`))
	want := []string{"/etc/kubernetes/pki/ca.crt", "/etc/kubernetes/pki/kubelet.crt", "/etc/kubernetes/pki/kubelet.key"}
	if !slices.Equal(got, want) {
		t.Errorf("named: %q, wanted %q", got, want)
	}
	for _, text := range []string{"", "clusters: [", "kind: Config"} {
		if got := namedBy([]byte(text)); len(got) > 0 {
			t.Errorf("%q names %q", text, got)
		}
	}
}
