package component

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

// TestStagedIsWhatRolesInstall checks that machines fetch ahead exactly the downloads and packages
// of their roles, so that nothing is fetched twice or in vain.
func TestStagedIsWhatRolesInstall(t *testing.T) {
	all := Releases{Kubernetes: "1.36.4", Etcd: "3.6.16"}
	staged := func(get func(Releases, *artifact.Catalog) ([]artifact.Artifact, error), packages ...string) desired.State {
		return Staged(artifacts(t, func(c *artifact.Catalog) ([]artifact.Artifact, error) { return get(all, c) }), packages)
	}
	etcd, control := must(t)(Etcd(etcdSpec(t), controllers[0])).State, must(t)(ControlPlane(controlPlaneSpec(t), controllers[0])).State
	worker, lb := must(t)(Workers(workerSpec(t))(worker0)).State, must(t)(LoadBalancer(loadBalancerSpec(), lb0)).State
	for _, tt := range []struct {
		name   string
		staged desired.State
		roles  []desired.State
	}{
		{"controller", staged(Releases.Controller), []desired.State{etcd, control}},
		{"worker", staged(Releases.Worker, WorkerPackages()...), []desired.State{worker}},
		{"load balancer", Staged(nil, LoadBalancerPackages()), []desired.State{lb}},
	} {
		have, wanted := map[string]desired.Binary{}, map[string]desired.Binary{}
		for _, b := range tt.staged.Binaries {
			have[b.URL] = b
		}
		var packages []string
		for _, s := range tt.roles {
			packages = append(packages, s.Packages...)
			for _, b := range s.Binaries {
				wanted[b.URL] = b
			}
		}
		if d := cmp.Diff(wanted, have); d != "" {
			t.Errorf("%s (-installed +staged):\n%s", tt.name, d)
		}
		if d := cmp.Diff(packages, tt.staged.Packages); d != "" {
			t.Errorf("%s: packages (-installed +staged):\n%s", tt.name, d)
		}
	}
	if got := staged(Releases.Controller).Binaries[0].Name; got != artifact.Etcd {
		t.Errorf("%s is fetched before etcd, which starts first", got)
	}
	all = Releases{}
	for _, s := range []desired.State{staged(Releases.Controller), staged(Releases.Worker)} {
		if len(s.Binaries) > 0 {
			t.Errorf("downloads of releases that nobody named: %v", s.Binaries)
		}
	}
}
