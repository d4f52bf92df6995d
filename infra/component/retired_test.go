package component

import (
	"net/netip"
	"os/exec"
	"slices"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

// TestRetiredSettings checks that a machine without a setting ends all units and deletes all files that the
// setting brings, as a failed apply may have left them before the setting was taken out again.
func TestRetiredSettings(t *testing.T) {
	allowed := networks("10.240.0.0/24")
	es, cs, ws, ls := etcdSpec(t), controlPlaneSpec(t), workerSpec(t), loadBalancerSpec()
	build := map[string]func() Machine{
		"etcd":          func() Machine { return must(t)(Etcd(es, controllers[0])) },
		"control plane": func() Machine { return must(t)(ControlPlane(cs, controllers[0])) },
		"worker":        func() Machine { return must(t)(Workers(ws)(worker0)) },
		"load balancer": func() Machine { return must(t)(LoadBalancer(ls, lb0)) },
	}
	without := map[string]Machine{}
	for role, of := range build {
		without[role] = of()
	}
	es.AllowedCIDRs, cs.AllowedCIDRs, ws.AllowedCIDRs, ls.AllowedCIDRs = allowed, allowed, allowed, allowed
	cs.Cluster, ws.Cluster = routedCluster(), routedCluster()
	ls.VirtualIP, ls.Machines = netip.MustParseAddr("10.240.0.9"), []Node{lb0, lb1}
	for role, of := range build {
		before, after := of().State, without[role].State
		if len(before.Retired) > 0 {
			t.Errorf("%s: with all settings %s is retired", role, before.Retired[0].Unit)
		}
		if len(after.Retired) != len(before.Units)-len(after.Units) {
			t.Errorf("%s: %d units are retired of %d", role, len(after.Retired), len(before.Units)-len(after.Units))
		}
		paths := after.Paths()
		for _, r := range after.Retired {
			paths = append(paths, r.Paths...)
			if len(r.Restarts) > 0 {
				t.Errorf("%s: the end of %s restarts %v", role, r.Unit, r.Restarts)
			}
			if out, err := exec.CommandContext(t.Context(), "sh", "-nc", r.Cleanup).CombinedOutput(); err != nil {
				t.Errorf("%s: %s: %v\n%s", r.Unit, r.Cleanup, err, out)
			}
			if !slices.ContainsFunc(before.Units, func(u desired.Unit) bool { return u.Name == r.Unit && u.Undoes }) {
				t.Errorf("%s: a stop of %s undoes nothing", role, r.Unit)
			}
		}
		for _, p := range before.Paths() {
			if !slices.Contains(paths, p) {
				t.Errorf("%s: nothing deletes %s", role, p)
			}
		}
	}
}
