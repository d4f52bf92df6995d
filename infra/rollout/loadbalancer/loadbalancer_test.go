package loadbalancer

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet/fleettest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote/remotetest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// TestSuperseded: when another machine gets a name, the role is removed from the former machine of
// that name, and not from the new one.
func TestSuperseded(t *testing.T) {
	t.Parallel()
	s := fleettest.NewAPIServers(t, fleettest.Serves)
	var mu sync.Mutex
	var removed []string
	machine := func(what string) *remotetest.Machine {
		return remotetest.New(t, "lb-0", func(script string) (string, int) {
			if strings.Contains(script, "remove_units") {
				mu.Lock()
				defer mu.Unlock()
				removed = append(removed, what)
			}
			return "", 0
		})
	}
	at := func(m *remotetest.Machine, ip string) []fleet.Target {
		return []fleet.Target{{Host: m.Host, Node: component.Node{Name: "lb-0", PrivateIP: netip.MustParseAddr(ip)}}}
	}
	former, next := at(machine("the former"), "192.0.2.20"), at(machine("the next"), "192.0.2.21")
	x := LoadBalancer{Targets: next, Spec: component.LoadBalancerSpec{Cluster: component.Cluster{Name: "demo", PKI: s.API.PKI},
		Backends: []component.Node{{Name: "controller-0", PrivateIP: netip.MustParseAddr("192.0.2.10")}}}}
	prior := x
	prior.Targets = former
	o, err := rollout.NewOperation(s.Fleet, x, prior, rollout.Record{Machines: map[string]rollout.MachineRecord{"lb-0": {}}})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Access.Close()
	if err := o.RemoveLeaving(t.Context()); err != nil || !slices.Equal(removed, []string{"the former"}) || len(o.Record().Machines) != 1 {
		t.Errorf("removed from %q, %v, record %v", removed, err, o.Record())
	}
}
