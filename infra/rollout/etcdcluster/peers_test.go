package etcdcluster

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// TestNeedsPeers checks how many other members a new one must reach, while some have rules that still shut it
// out.
func TestNeedsPeers(t *testing.T) {
	rules := host.Change{Finding: finding.Finding{Kind: finding.File, Target: "/etc/k8s-etcd-firewall.nft", Problem: finding.Content}}
	gone := host.Change{Finding: finding.Finding{Kind: finding.Unit, Target: "k8s-etcd-firewall.service", Problem: finding.NotWanted}}
	other := host.Change{Finding: finding.Finding{Kind: finding.File, Target: "/etc/systemd/system/etcd.service", Problem: finding.Content}}
	words := func(n *rollout.Need) string {
		if n == nil {
			return "nothing"
		}
		return fmt.Sprint(*n)
	}
	for name, tt := range map[string]struct {
		changes []host.Change // of each member; the last one is new
		want    string
	}{
		"alone":                         {[]host.Change{other}, "nothing"},
		"no rules":                      {[]host.Change{other, other, other}, "{the other etcd members [10.240.0.10:2380 10.240.0.11:2380] 1}"},
		"rules of one change":           {[]host.Change{rules, other, other, other, other}, "{the other etcd members [10.240.0.11:2380 10.240.0.12:2380 10.240.0.13:2380] 1}"},
		"rules of all old ones":         {[]host.Change{rules, rules, rules, rules, rules}, "nothing"},
		"rules that go":                 {[]host.Change{gone, other, other}, "nothing"},
		"its own rules change for none": {[]host.Change{other, other, rules}, "{the other etcd members [10.240.0.10:2380 10.240.0.11:2380] 1}"},
	} {
		o := &operation{Operation: &rollout.Operation{}}
		for i, c := range tt.changes {
			n := component.Node{Name: fmt.Sprintf("m%d", i), PrivateIP: netip.AddrFrom4([4]byte{10, 240, 0, byte(10 + i)})}
			o.Machines = append(o.Machines, &rollout.Machine{Machine: &fleet.Machine{Target: fleet.Target{Node: n}}, Changes: []host.Change{c}})
		}
		if got := words(o.needsPeers(o.Machines[len(o.Machines)-1])); got != tt.want {
			t.Errorf("%s: %s, wanted %s", name, got, tt.want)
		}
	}
}

// TestQuietChanges: what a member needs before others join is applied without a restart of etcd.
func TestQuietChanges(t *testing.T) {
	rules := host.Change{Finding: finding.Finding{Kind: finding.File, Target: "/etc/k8s-etcd-firewall.nft"}, Restarts: []string{"k8s-etcd-firewall.service"}}
	flags := host.Change{Finding: finding.Finding{Kind: finding.File, Target: "/etc/systemd/system/etcd.service"}, Restarts: []string{"etcd.service"}}
	others := host.Change{Finding: finding.Finding{Kind: finding.File, Target: "/etc/chrony/chrony.conf"}, Restarts: []string{"chrony.service"}}
	m := &rollout.Machine{Changes: []host.Change{flags, rules, others}, State: desired.State{Units: []desired.Unit{{Name: "chrony.service", Foreign: true}, {Name: "etcd.service"}}}}
	if got := quietChanges(m); len(got) != 1 || got[0].Target != rules.Target {
		t.Errorf("got %v", got)
	}
}
