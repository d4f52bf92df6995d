package rollout

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote/remotetest"
)

// TestLeftover: a machine that cannot be reached when its role is removed is recorded. It is
// reported while it is away, is a finding once it is back, and is then cleaned as it would have
// been before.
func TestLeftover(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var removed []string
	machine := remotetest.New(t, "worker-1", func(script string) (string, int) {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(script, "remove_units") {
			removed = append(removed, script)
		}
		return "", 0
	})
	pool := remote.NewPool(remote.Config{})
	defer pool.Close()
	engine := &Engine{Fleet: &fleet.Fleet{Pool: pool}}
	target := fleet.Target{Host: machine.Host, Node: component.Node{Name: "worker-1"}, ID: "i-1"}
	start := func(rec Record) *operation {
		return &operation{fleet: engine.Fleet, role: role{name: "worker", dirs: []string{"/var/lib/kubelet"}}, access: engine.Fleet.Access(ref(t)), record: rec.clone()}
	}
	state := desired.State{
		Files:   []desired.File{{Path: "/etc/kubernetes/kubelet.yaml", Content: []byte("secret"), Secret: true}},
		Units:   []desired.Unit{{Name: "kubelet.service", Enabled: true}},
		Retired: []desired.Retired{{Unit: "kube-proxy.service", Paths: []string{"/etc/kubernetes/pki/kube-proxy.key"}, Cleanup: "true"}},
		Sysctls: map[string]string{"net.ipv4.ip_forward": "1"},
	}

	machine.Leave()
	o := start(Record{})
	if err := o.removeFrom(t.Context(), engine.Fleet.Machine(target), state, false); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(o.result())
	if err != nil || strings.Contains(string(raw), "secret") {
		t.Fatalf("the record is %s, %v", raw, err)
	}
	var rec Record
	if err := json.Unmarshal(raw, &rec); err != nil || len(rec.Left) != 1 || rec.Left["worker-1"].Target.ID != "i-1" {
		t.Fatalf("the record is %s, %v", raw, err)
	}
	var away Report
	start(rec).observeLeft(t.Context(), &away)
	if away.Left["worker-1"] == nil || len(away.Findings) > 0 || len(away.Record.Left) != 1 {
		t.Errorf("while it is away: %+v", away)
	}
	o = start(rec)
	if err := o.removeLeft(t.Context()); err != nil || len(o.result().Left) != 1 || len(removed) > 0 {
		t.Errorf("while it is away: %v, %v", err, o.result().Left)
	}

	machine.Return()
	var back Report
	start(rec).observeLeft(t.Context(), &back)
	if len(back.Findings) != 1 || back.Findings[0].Kind != finding.Leftover || len(back.Left) > 0 {
		t.Errorf("when it is back: %+v", back)
	}
	o = start(rec)
	if err := o.removeLeft(t.Context()); err != nil || len(o.result().Left) > 0 {
		t.Errorf("when it is back: %v, %v", err, o.result().Left)
	}
	if len(removed) != 1 || !strings.Contains(removed[0], "kubelet.service") || !strings.Contains(removed[0], "/etc/kubernetes/kubelet.yaml") ||
		!strings.Contains(removed[0], "kube-proxy.service") || !strings.Contains(removed[0], "/etc/kubernetes/pki/kube-proxy.key") ||
		!strings.Contains(removed[0], "net.ipv4.ip_forward") || !strings.Contains(removed[0], "'/var/lib/kubelet'") {
		t.Errorf("%d scripts; the last is %q", len(removed), removed)
	}

	t.Run("another machine", func(t *testing.T) {
		other := rec.clone()
		l := other.Left["worker-1"]
		l.Target.Host.HostKeys = []string{otherKey(t)}
		other.Left["worker-1"] = l
		var seen Report
		o := start(other)
		o.observeLeft(t.Context(), &seen)
		if len(seen.Findings)+len(seen.Left)+len(seen.Record.Left) > 0 {
			t.Errorf("seen %+v", seen)
		}
		o = start(other)
		if err := o.removeLeft(t.Context()); err != nil || len(o.result().Left) > 0 {
			t.Errorf("%v, %v", err, o.result().Left)
		}
	})
	t.Run("wanted again", func(t *testing.T) {
		o := start(rec)
		o.machines = []*convergence{{Machine: engine.Fleet.Machine(target)}}
		removed = nil
		if err := o.removeLeft(t.Context()); err != nil || len(o.result().Left)+len(removed) > 0 {
			t.Errorf("%v, %v, %d scripts", err, o.result().Left, len(removed))
		}
	})
}

// TestLastCopyStays: hosts that leave an etcd cluster keep their data unless those that stay have
// it.
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
		{"no quorum", []etcd.ID{1, 4}, nil, "of the 3 voters that stay 1 are healthy, and a quorum is 2"},
		{"nobody is well", nil, nil, "0 are healthy"},
		{"the leaver serves another cluster", []etcd.ID{1, 2, 3}, []string{"x"}, "etcd on x is no member"},
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
	want := Etcd{Spec: component.EtcdSpec{Version: "3.6.16"}, Targets: []fleet.Target{{Node: component.Node{Name: "d"}}}}
	prior := Etcd{Spec: want.Spec, Targets: []fleet.Target{{Node: component.Node{Name: "a"}}}}
	pool := remote.NewPool(remote.Config{})
	defer pool.Close()
	o := want.operate(&operation{fleet: &fleet.Fleet{Pool: pool}}, prior)
	f, err := o.facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.wanted = []memberFacts{{name: "d", reachable: true}}
	var refused *fleet.GuardError
	if plan, err := planEtcd(f); !errors.As(err, &refused) {
		t.Errorf("planned %v, %v", plan, err)
	}
}

func otherKey(t *testing.T) string {
	t.Helper()
	return remotetest.New(t, "other", nil).Host.HostKeys[0]
}

// ref is a reference to keys that are not needed.
func ref(t *testing.T) pki.Ref { t.Helper(); return pki.Ref{Cluster: "demo"} }
