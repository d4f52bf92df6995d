package version

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProblems(t *testing.T) {
	for _, tt := range []struct {
		set  map[string]string
		want []string
	}{
		{nil, []string{}},
		{map[string]string{ControlPlane: "1.36.4", Workers: "1.35.2", Etcd: "3.6.16", Containerd: "2.3.7", ControlPlaneNow: "1.35.2", EtcdNow: "3.6.11"}, []string{}},
		{map[string]string{ControlPlane: "1.36.4", Workers: "1.37.0"}, []string{
			"workers: kubelet 1.37.0 is newer than the API server 1.36.4: upgrade the control plane first."}},
		{map[string]string{ControlPlane: "1.37.0", ControlPlaneNow: "1.35.0"}, []string{
			"control_plane: cannot go from 1.35.0 to 1.37.0 in one step: a control plane moves one minor version at a time, go to 1.36 first."}},
		{map[string]string{ControlPlane: "1.20.0", Etcd: "3.4.0", EtcdNow: "3.6.0", Containerd: "1.6.0"}, []string{
			"control_plane: version 1.20.0 is not supported: the supported minors of Kubernetes are 1.35, 1.36 and 1.37.",
			"etcd: ", "etcd: cannot go from 3.6.0 back to 3.4.0: the minor version of etcd cannot be lowered.", "containerd: "}},
	} {
		set := map[string]Version{}
		for name, text := range tt.set {
			v, err := Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			set[name] = v
		}
		got, err := Problems(set)
		if err != nil {
			t.Error(err)
		}
		for i, w := range tt.want { // a name alone is the beginning of another test's sentence
			if i < len(got) && strings.HasSuffix(w, ": ") && strings.HasPrefix(got[i], w) {
				got[i] = w
			}
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%v: %s", tt.set, d)
		}
	}
	if _, err := Problems(map[string]Version{"kubelet": {}}); err == nil || !strings.Contains(err.Error(), `"kubelet": want control_plane, workers`) {
		t.Errorf("an unknown name: %v", err)
	}
}
