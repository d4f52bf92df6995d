package etcdcluster

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet/fleettest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote/remotetest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// TestLastCopyStays: hosts that leave an etcd cluster keep their data unless the hosts that stay
// have the data.
func TestLastCopyStays(t *testing.T) {
	t.Parallel()
	members := []etcd.Member{{ID: 1, Name: "a"}, {ID: 2, Name: "b"}, {ID: 3, Name: "c"}, {ID: 4, Name: "d", Learner: true}}
	for _, tt := range []struct {
		name    string
		healthy []etcd.ID
		serving []string
		refused string
	}{
		{"all are well", []etcd.ID{1, 2, 3, 4}, nil, ""},
		{"a quorum is well", []etcd.ID{1, 2}, nil, ""},
		{"no quorum", []etcd.ID{1, 4}, nil, "1 of the 3 remaining voters are healthy, and a quorum is 2"},
		{"nobody is well", nil, nil, "0 of the 3 remaining voters"},
		{"the leaver serves another cluster", []etcd.ID{1, 2, 3}, []string{"x"}, "etcd on x is not a member"},
	} {
		healthy := map[etcd.ID]bool{}
		for _, id := range tt.healthy {
			healthy[id] = true
		}
		err := checkCopies([]string{"x", "y"}, members, healthy, tt.serving)
		var refused *fleet.GuardError
		if (tt.refused == "") != (err == nil) || err != nil && (!errors.As(err, &refused) || !strings.Contains(err.Error(), tt.refused) || !strings.Contains(err.Error(), "x, y")) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}

	// Without a record that a cluster was formed, as after an import, new hosts in place of all
	// present ones would be started as another cluster, and the data of the present ones deleted.
	want := Cluster{Spec: component.EtcdSpec{Version: "3.6.16"}, Targets: []fleet.Target{{Node: component.Node{Name: "d"}}}}
	prior := []fleet.Target{{Node: component.Node{Name: "a"}}}
	pool := remote.NewPool(remote.Config{})
	defer pool.Close()
	o := want.operate(&rollout.Operation{Fleet: &fleet.Fleet{Pool: pool}, Prior: &rollout.Definition{Targets: prior}})
	f, err := o.facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.wanted = []memberFacts{{name: "d", reachable: true}}
	var refused *fleet.GuardError
	if plan, err := planNext(f); !errors.As(err, &refused) {
		t.Errorf("planned %v, %v", plan, err)
	}
}

// TestFormerMember: a former member of etcd whose name another machine gets is treated like a
// member that leaves: it is asked before its data are deleted.
func TestFormerMember(t *testing.T) {
	t.Parallel()
	s := fleettest.NewAPIServers(t, fleettest.Serves)
	at := func(ip string) []fleet.Target {
		return []fleet.Target{{Host: remotetest.New(t, "lb-0", nil).Host, Node: component.Node{Name: "lb-0", PrivateIP: netip.MustParseAddr(ip)}}}
	}
	former, next := at("192.0.2.20"), at("192.0.2.21")
	e := Cluster{Targets: next}.operate(&rollout.Operation{Fleet: s.Fleet, Prior: &rollout.Definition{Targets: former}})
	if len(e.leavers) > 0 || len(e.former) != 1 || e.former[0].Name() != "lb-0 at 127.0.0.1" {
		t.Errorf("leavers %v, former members %v", namesOf(e.leavers), namesOf(e.former))
	}
	err := e.guardCopies(t.Context())
	if err == nil || !strings.Contains(err.Error(), "delete the data of etcd on lb-0 at 127.0.0.1") {
		t.Errorf("the data of the former member may be deleted without asking: %v", err)
	}
}
