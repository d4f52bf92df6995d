package rollout

import (
	"testing"
)

func TestRelease(t *testing.T) {
	for said, want := range map[string]string{
		"Kubernetes v1.36.4\n": "1.36.4",
		"etcd Version: 3.6.16\nGit SHA: 0123456\nGo Version: go1.26.0":              "3.6.16",
		"containerd github.com/containerd/containerd/v2 v2.2.0 abc":                 "2.2.0",
		"runc version 1.1.5+ds1\nspec: 1.0.2-dev":                                   "1.1.5+ds1",
		"CNI bridge plugin v1.9.1\nCNI protocol versions supported: 0.1.0, 1.0.0":   "1.9.1",
		"CNI bridge plugin version unknown\nCNI protocol versions supported: 0.1.0": "",
		"": "",
	} {
		if got := release([]byte(said)); got != want {
			t.Errorf("%q: release %q, wanted %q", said, got, want)
		}
	}
}

// TestFoundIn checks that what programs say is not taken for the content of files.
func TestFoundIn(t *testing.T) {
	found := foundIn(map[string][]byte{"/etc/haproxy/haproxy.cfg": nil, "/usr/sbin/haproxy": []byte("HAProxy version 2.6.12-1")},
		[]string{"/usr/sbin/haproxy", "/usr/sbin/other"})
	if len(found.Files) != 1 || len(found.Releases) != 1 || found.Releases["/usr/sbin/haproxy"] != "2.6.12-1" {
		t.Errorf("found %v", found)
	}
}
