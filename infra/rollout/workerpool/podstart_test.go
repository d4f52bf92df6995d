package workerpool

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet/fleettest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

func TestNodeProof(t *testing.T) {
	with := func(content string) *rollout.Machine {
		return &rollout.Machine{Want: component.Machine{State: desired.State{Files: []desired.File{{Path: "/etc/a", Content: []byte(content)}}}}}
	}
	runs := nodeRuns{boot: "b", units: "1.2"}
	note := runs.proof(with("x"))
	if again := runs.proof(with("x")); again != note {
		t.Errorf("the same state gives %q and %q", note, again)
	}
	if other := runs.proof(with("y")); other == note || !runs.proves(other) {
		t.Errorf("another file with the same units gives %q, before %q", other, note)
	}
	for _, later := range []nodeRuns{{units: "1.3"}, {units: "1"}, {units: "1.22"}, {units: ""}} {
		if later.proves(note) {
			t.Errorf("%q proves what runs as %q", note, later.units)
		}
	}
}

// TestGateConditions checks when the other nodes have to be Ready before one is taken down.
func TestGateConditions(t *testing.T) {
	for _, tt := range []struct {
		network       string
		ready         []bool
		changes       []host.Change // of b
		waits         bool
		registered    bool // is enough
		whatItIsAbout string
	}{
		{component.CNIBridge, []bool{false, false}, nil, true, false, "a network of ours"},
		{component.CNINone, []bool{false, false}, nil, true, true, "a network that nobody has installed yet"},
		{component.CNINone, []bool{true, false}, nil, true, false, "a network that works on one node"},
		{component.CNIBridge, []bool{false, false}, []host.Change{change(finding.File, "kubelet.yaml")}, false, false, "two broken nodes"},
		{component.CNIBridge, []bool{false, true}, []host.Change{change(finding.File, "kubelet.yaml")}, true, false, "a broken node and one that works"},
		{component.CNIBridge, []bool{true, false}, []host.Change{change(finding.File, "kubelet.yaml")}, true, false, "a node that works and a broken one"},
	} {
		o := &operation{Operation: &rollout.Operation{}, ready: map[string]bool{}, want: Pool{Spec: component.WorkerSpec{CNI: component.CNISpec{Network: tt.network}}}}
		for n, ready := range tt.ready {
			m := &fleet.Machine{Target: fleet.Target{Node: component.Node{Name: string(rune('a' + n))}}}
			o.ready[m.Name()] = ready
			o.Machines = append(o.Machines, &rollout.Machine{Machine: m})
		}
		o.Machines[1].Changes = tt.changes
		got := o.gateConditions("a", map[string]bool{"a": true})
		if tt.waits != (len(got) == 1) || tt.waits && (got[0].Name != "b" || got[0].Registered != tt.registered) {
			t.Errorf("%s: %+v", tt.whatItIsAbout, got)
		}
	}
}

// TestProveNetwork checks when the test pod needs a network of pods.
func TestProveNetwork(t *testing.T) {
	for _, tt := range []struct {
		network string
		ready   bool
		host    bool
	}{
		{component.CNIBridge, false, false},
		{component.CNIBridge, true, false},
		{component.CNINone, false, true}, // the network is installed afterwards
		{component.CNINone, true, false},
	} {
		var made atomic.Value
		s := fleettest.NewAPIServers(t, func(w http.ResponseWriter, r *http.Request) {
			if !strings.Contains(r.URL.Path, "/pods") {
				fleettest.Serves(w, r)
				return
			}
			if r.Method == http.MethodPost {
				body, _ := io.ReadAll(r.Body)
				object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
				if pod, ok := object.(*corev1.Pod); ok {
					made.Store(pod.Spec.HostNetwork)
				} else {
					t.Errorf("%T, %v", object, err)
				}
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x","uid":"1"},"status":{"phase":"Failed","reason":"OutOfpods"}}`))
		})
		a := s.Fleet.Access(s.API.PKI)
		defer a.Close()
		c, err := a.API(t.Context(), s.API.Endpoint)
		if err != nil {
			t.Fatal(err)
		}
		o := &operation{Operation: &rollout.Operation{Fleet: s.Fleet}, api: c, ready: map[string]bool{"worker-0": tt.ready}, want: Pool{Spec: component.WorkerSpec{CNI: component.CNISpec{Network: tt.network}}}}
		m := &rollout.Machine{Machine: s.Fleet.Machine(fleet.Target{Node: component.Node{Name: "worker-0"}})}
		if err := o.prove(t.Context(), m, nodeRuns{units: "1.2"}); err != nil {
			t.Fatal(err)
		}
		if made.Load() != tt.host {
			t.Errorf("%s, Ready before %t: the pod is in the host's network: %v, wanted %t", tt.network, tt.ready, made.Load(), tt.host)
		}
	}
}

// TestProveFullNode checks that a node without room for the test pod gets no note.
func TestProveFullNode(t *testing.T) {
	var noted atomic.Bool
	s := fleettest.NewAPIServers(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPatch:
			noted.Store(true)
			fleettest.Fails(http.StatusNotFound, "NotFound")(w, r)
		case strings.Contains(r.URL.Path, "/pods"):
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x","uid":"1"},"status":{"phase":"Failed","reason":"OutOfpods"}}`))
		default:
			fleettest.Serves(w, r)
		}
	})
	var said []string
	s.Fleet.Progress = func(_, what string) { said = append(said, what) }
	a := s.Fleet.Access(s.API.PKI)
	defer a.Close()
	c, err := a.API(t.Context(), s.API.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	o := &operation{Operation: &rollout.Operation{Fleet: s.Fleet}, api: c}
	m := &rollout.Machine{Machine: s.Fleet.Machine(fleet.Target{Node: component.Node{Name: "worker-0"}})}
	if err := o.prove(t.Context(), m, nodeRuns{units: "1.2"}); err != nil {
		t.Fatal(err)
	}
	if noted.Load() || !slices.Equal(said, []string{"node: not tried: the node is full"}) {
		t.Errorf("noted %v, said %q", noted.Load(), said)
	}
}
