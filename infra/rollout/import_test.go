package rollout

import (
	"errors"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
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

// TestReadRole checks that a role gets the settings found on a machine, and that a machine without
// the role is an error.
func TestReadRole(t *testing.T) {
	found := foundIn(map[string][]byte{"/etc/haproxy/haproxy.cfg": []byte("frontend kubernetes\n    bind *:7443\n"), "/usr/sbin/haproxy": []byte("HAProxy version 2.6.12-1")},
		[]string{"/usr/sbin/haproxy", "/usr/sbin/other"})
	if len(found.Files) != 1 || len(found.Releases) != 1 || found.Releases["/usr/sbin/haproxy"] != "2.6.12-1" {
		t.Errorf("found %v", found)
	}
	lb, err := ReadRole(LoadBalancer{Targets: []fleet.Target{{}}}, component.Node{}, found)
	if err != nil || lb.Spec.Port != 7443 || len(lb.Targets) != 1 {
		t.Errorf("recalled %v, %v", lb, err)
	}
	var nothing *component.NothingFoundError
	if _, err := ReadRole(Etcd{}, component.Node{}, found); !errors.As(err, &nothing) {
		t.Errorf("an etcd member on a load balancer: %v", err)
	}
	if _, _, err := (&Engine{}).Inspect(t.Context(), LoadBalancer{}); !errors.Is(err, ErrNoMachines) {
		t.Errorf("no machines: %v", err)
	}
}
