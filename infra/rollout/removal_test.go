package rollout

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet/fleettest"
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
	target := fleet.Target{Host: machine.Host, Node: component.Node{Name: "worker-1", InstanceID: "i-1"}}
	start := func(rec Record) *Operation {
		return &Operation{Fleet: engine.Fleet, role: Definition{Name: "worker", Dirs: []string{"/var/lib/kubelet"}}, Access: engine.Fleet.Access(ref(t)), record: rec.clone()}
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
	raw, err := json.Marshal(o.Record())
	if err != nil || strings.Contains(string(raw), "secret") {
		t.Fatalf("the record is %s, %v", raw, err)
	}
	var rec Record
	if err := json.Unmarshal(raw, &rec); err != nil || len(rec.Left) != 1 || rec.Left["worker-1"].Target.Node.InstanceID != "i-1" {
		t.Fatalf("the record is %s, %v", raw, err)
	}
	var away Report
	start(rec).observeLeft(t.Context(), &away)
	if away.Left["worker-1"] == nil || len(away.Findings) > 0 || len(away.Record.Left) != 1 {
		t.Errorf("while it is away: %+v", away)
	}
	o = start(rec)
	if err := o.removeLeft(t.Context()); err != nil || len(o.Record().Left) != 1 || len(removed) > 0 {
		t.Errorf("while it is away: %v, %v", err, o.Record().Left)
	}

	machine.Return()
	var back Report
	start(rec).observeLeft(t.Context(), &back)
	if len(back.Findings) != 1 || back.Findings[0].Kind != finding.Leftover || len(back.Left) > 0 {
		t.Errorf("when it is back: %+v", back)
	}
	o = start(rec)
	if err := o.removeLeft(t.Context()); err != nil || len(o.Record().Left) > 0 {
		t.Errorf("when it is back: %v, %v", err, o.Record().Left)
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
		if err := o.removeLeft(t.Context()); err != nil || len(o.Record().Left) > 0 {
			t.Errorf("%v, %v", err, o.Record().Left)
		}
	})
	t.Run("wanted again", func(t *testing.T) {
		o := start(rec)
		o.Machines = []*Machine{{Machine: engine.Fleet.Machine(target)}}
		removed = nil
		if err := o.removeLeft(t.Context()); err != nil || len(o.Record().Left)+len(removed) > 0 {
			t.Errorf("%v, %v, %d scripts", err, o.Record().Left, len(removed))
		}
	})
}

func otherKey(t *testing.T) string {
	t.Helper()
	return remotetest.New(t, "other", nil).Host.HostKeys[0]
}

// ref is a reference to keys that are not needed.
func ref(t *testing.T) pki.Ref { t.Helper(); return pki.Ref{Cluster: "demo"} }

// TestLeftoverOfAName: a machine that was left over stays so when another machine gets its name,
// and is no leftover any more when it is wanted again under any name.
func TestLeftoverOfAName(t *testing.T) {
	t.Parallel()
	s := fleettest.NewAPIServers(t, fleettest.Serves)
	removed := 0
	away := remotetest.New(t, "worker-1", func(script string) (string, int) {
		if strings.Contains(script, "remove_units") {
			removed++
		}
		return "", 0
	})
	other := remotetest.New(t, "worker-1", nil)
	at := func(name string, m *remotetest.Machine) fleet.Target {
		return fleet.Target{Host: m.Host, Node: component.Node{Name: name}}
	}
	rec := Record{Left: map[string]Leftover{"worker-1": {Target: at("worker-1", away)}}}
	start := func(wanted fleet.Target) *Operation {
		return &Operation{Fleet: s.Fleet, role: Definition{Name: "worker"}, record: rec.clone(), Machines: []*Machine{{Machine: s.Fleet.Machine(wanted)}}}
	}
	away.Leave()
	o := start(at("worker-1", other))
	if err := o.removeLeft(t.Context()); err != nil || o.Record().Left["worker-1 at 127.0.0.1"].Target.Name() == "" || len(o.Record().Left) != 1 {
		t.Errorf("while it is away: %v, %v", err, o.Record().Left)
	}
	away.Return()
	o = start(at("worker-7", away))
	if err := o.removeLeft(t.Context()); err != nil || len(o.Record().Left) > 0 || removed > 0 {
		t.Errorf("wanted under another name: %v, %v, removed %d times", err, o.Record().Left, removed)
	}
	o = start(at("worker-1", other))
	if err := o.removeLeft(t.Context()); err != nil || len(o.Record().Left) > 0 || removed != 1 {
		t.Errorf("when it is back: %v, %v, removed %d times", err, o.Record().Left, removed)
	}
}
