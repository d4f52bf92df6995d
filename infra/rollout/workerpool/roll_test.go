package workerpool

import (
	"slices"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
)

func retired(unit string, restarts ...string) host.Change {
	c := change(finding.Unit, unit, restarts...)
	c.Problem = finding.NotWanted
	return c
}

func TestWorkerChanges(t *testing.T) {
	for _, tt := range []struct {
		name         string
		changes      []host.Change
		rolls, drain bool
	}{
		{"kubelet configuration", []host.Change{change(finding.File, "kubelet.yaml", component.KubeletUnit)}, true, false},
		{"kube-proxy upgrade", []host.Change{change(finding.Binary, "kube-proxy", component.KubeProxyUnit)}, true, false},
		{"kubelet upgrade", []host.Change{change(finding.Binary, "kubelet", component.KubeletUnit)}, true, true},
		{"containerd configuration", []host.Change{change(finding.File, "config.toml", component.ContainerdUnit)}, true, true},
		{"runc", []host.Change{change(finding.Binary, "runc")}, true, false},
		{"registry mirrors", []host.Change{change(finding.File, "hosts.toml")}, false, false},
		{"no kube-proxy any more", []host.Change{retired(component.KubeProxyUnit)}, true, false},
		{"no network of ours any more", []host.Change{retired(component.PodEgressUnit, component.ContainerdUnit)}, true, true},
		{"nothing", nil, false, false},
	} {
		if rolls, drain := rollsNode(tt.changes), disturbsPods(tt.changes); rolls != tt.rolls || drain != tt.drain {
			t.Errorf("%s: rolls %v, drains %v", tt.name, rolls, drain)
		}
	}
}

// TestSplitReloads: a list that a unit only reads again takes no node down. If the unit restarts
// anyway, or does not keep what it has set up, the list is a change like any other.
func TestSplitReloads(t *testing.T) {
	const routes, list, script = "routes.service", "/etc/routes", "/usr/local/sbin/routes"
	units := []desired.Unit{
		{Name: routes, Active: true, RestartOn: []string{script}, ReloadOn: []string{list}, Undoes: true},
		{Name: "server.service", Active: true, ReloadOn: []string{"/etc/server.yaml"}},
	}
	kubelet := change(finding.File, "kubelet.yaml", component.KubeletUnit)
	for _, tt := range []struct {
		name    string
		changes []host.Change
		want    []string
	}{
		{"the list", []host.Change{change(finding.File, list, routes)}, []string{list}},
		{"beside a restart of others", []host.Change{kubelet, change(finding.File, list, routes)}, []string{list}},
		{"with the script", []host.Change{change(finding.File, list, routes), change(finding.File, script, routes)}, nil},
		{"with the unit, which is not there yet", []host.Change{change(finding.File, list, routes), change(finding.Unit, routes)}, nil},
		{"lost routes", []host.Change{change(finding.Unit, routes, routes)}, nil},
		{"a list of a unit that undoes nothing", []host.Change{change(finding.File, "/etc/server.yaml", "server.service")}, nil},
		{"a list that restarts something too", []host.Change{change(finding.File, list, routes, component.KubeletUnit)}, nil},
		{"nothing to read", []host.Change{change(finding.File, "hosts.toml")}, nil},
	} {
		reloads, rest := splitReloads(units, tt.changes)
		if got := targetsOf(reloads); !slices.Equal(got, tt.want) || len(reloads)+len(rest) != len(tt.changes) {
			t.Errorf("%s: %q, and %q; wanted %q", tt.name, got, targetsOf(rest), tt.want)
		}
	}
}

func change(kind finding.Kind, target string, restarts ...string) host.Change {
	return host.Change{Finding: finding.Finding{Kind: kind, Target: target}, Restarts: restarts}
}

func targetsOf(changes []host.Change) []string {
	var out []string
	for _, c := range changes {
		out = append(out, c.Target)
	}
	return out
}
