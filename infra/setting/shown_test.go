package setting

import "testing"

// TestShown finds names that no program has: the settings that they were meant for would be hidden.
func TestShown(t *testing.T) {
	t.Parallel()
	for program, kinds := range shown {
		for kind, names := range kinds {
			for _, name := range names {
				if _, known := Of(program)[kind][name]; !known {
					t.Errorf("%s has no %s %s", program, kind, name)
				}
			}
		}
	}
	for _, test := range []struct {
		program string
		kind    Kind
		name    string
		want    bool
	}{
		{"kube-apiserver", Flag, "authorization-mode", true}, {"kube-apiserver", Flag, "oidc-issuer-url", false},
		{"etcd", Flag, "discovery-password", false}, {"kubelet", Field, "evictionHard.memory.available", true},
		{"kubelet", Field, "evictionHardly", false}, {"kubelet", Field, "staticPodURLHeader", false}, {"unknown", Field, "x", false},
	} {
		if got := Shown(test.program, test.kind, test.name); got != test.want {
			t.Errorf("%s %s %s: %t", test.program, test.kind, test.name, got)
		}
	}
}
