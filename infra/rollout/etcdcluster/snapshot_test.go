package etcdcluster

import (
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// TestUpheaval says before which changes a snapshot is taken.
func TestUpheaval(t *testing.T) {
	change := func(kind finding.Kind, problem finding.Problem, target string, restarts ...string) host.Change {
		return host.Change{Finding: finding.Finding{Kind: kind, Problem: problem, Target: target}, Restarts: restarts}
	}
	for _, tt := range []struct {
		want    string
		changes []host.Change
	}{
		{"", nil},
		{"", []host.Change{change(finding.File, finding.Content, "/etc/systemd/system/etcd.service", "etcd.service")}},
		{"", []host.Change{change(finding.Binary, finding.Missing, "/usr/local/bin/etcd", "etcd.service")}},
		{"", []host.Change{change(finding.Binary, finding.Version, "/usr/local/bin/etcdctl")}},
		{"", []host.Change{change(finding.File, finding.Missing, component.EtcdCAPath, "etcd.service")}},
		{"", []host.Change{change(finding.File, finding.Mode, component.EtcdCAPath), change(finding.Binary, finding.Truncated, "/usr/local/bin/etcd", "etcd.service")}},
		{"the upgrade of etcd", []host.Change{change(finding.Unit, finding.Activity, "x"), change(finding.Binary, finding.Version, "/usr/local/bin/etcd", "etcd.service")}},
		{"the rotation of keys", []host.Change{change(finding.File, finding.Content, component.EtcdCAPath, "etcd.service")}},
	} {
		if got := rollout.Upheaval(tt.changes, component.EtcdUnit, "etcd", keyFiles); got != tt.want {
			t.Errorf("%v: %q, wanted %q", tt.changes, got, tt.want)
		}
	}
}
