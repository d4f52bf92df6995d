package rollout_test

import (
	"errors"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/etcdcluster"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/loadbalancer"
)

// TestReadRole checks that a role gets the settings found on a machine, and that a machine without
// the role is an error.
func TestReadRole(t *testing.T) {
	found := component.Found{Files: map[string][]byte{"/etc/haproxy/haproxy.cfg": []byte("frontend kubernetes\n    bind *:7443\n")},
		Releases: map[string]string{"/usr/sbin/haproxy": "2.6.12-1"}}
	lb, err := rollout.ReadRole(loadbalancer.LoadBalancer{Targets: []fleet.Target{{}}}, component.Node{}, found)
	if err != nil || lb.Spec.Port != 7443 || len(lb.Targets) != 1 {
		t.Errorf("recalled %v, %v", lb, err)
	}
	var nothing *component.NothingFoundError
	if _, err := rollout.ReadRole(etcdcluster.Cluster{}, component.Node{}, found); !errors.As(err, &nothing) {
		t.Errorf("an etcd member on a load balancer: %v", err)
	}
	if _, _, err := (&rollout.Engine{}).Inspect(t.Context(), loadbalancer.LoadBalancer{}); !errors.Is(err, rollout.ErrNoMachines) {
		t.Errorf("no machines: %v", err)
	}
}
