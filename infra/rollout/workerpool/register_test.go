package workerpool

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet/fleettest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote/remotetest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// nodeAPI is an API server with the Node object worker-0 while there is one, and a pod on it until it is evicted. It notes
// all other requests. The first answer to the creation of a Node object is an error.
func nodeAPI(node string, there func() bool, note func(string)) http.HandlerFunc {
	var evicted, refused atomic.Bool
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			note(r.Method + " " + r.URL.Path)
		}
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api/v1/nodes":
			switch {
			case r.Method == http.MethodPost && !refused.Swap(true):
				w.WriteHeader(http.StatusServiceUnavailable)
			case r.Method == http.MethodPost:
				_, _ = w.Write([]byte(node))
			case there():
				_, _ = fmt.Fprintf(w, `{"kind":"NodeList","apiVersion":"v1","items":[%s]}`, node)
			default:
				_, _ = w.Write([]byte(`{"kind":"NodeList","apiVersion":"v1","items":[]}`))
			}
		case "/api/v1/nodes/worker-0":
			_, _ = w.Write([]byte(node))
		case "/api/v1/pods":
			pods := `{"metadata":{"name":"web","namespace":"default","uid":"1"}}`
			if evicted.Load() {
				pods = ""
			}
			_, _ = fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","items":[%s]}`, pods)
		case "/api/v1/namespaces/default/pods/web/eviction":
			evicted.Store(true)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Success"}`))
		}
	}
}

// What is done to the node worker-0.
const (
	stops    = "stop"
	restarts = "restart"
	cordon   = "PATCH /api/v1/nodes/worker-0"
	evict    = "POST /api/v1/namespaces/default/pods/web/eviction"
	deletion = "DELETE /api/v1/nodes/worker-0"
	creation = "POST /api/v1/nodes"
)

// nodeWorld is an operation on a pool with the instance i-1 as worker-0, and notes what is done.
type nodeWorld struct {
	*operation
	mu   sync.Mutex
	done []string
}

// newNodeWorld makes a world whose Node object has a provider ID; "-" for no such object until the kubelet restarts.
func newNodeWorld(t *testing.T, providerID string, old bool) *nodeWorld {
	t.Helper()
	w := &nodeWorld{}
	var restarted atomic.Bool
	note := func(what string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.done = append(w.done, what)
	}
	node := fmt.Sprintf(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"worker-0"},"spec":{"providerID":%q},
		"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, strings.Trim(providerID, "-"))
	s := fleettest.NewAPIServers(t, nodeAPI(node, func() bool { return providerID != "-" || restarted.Load() }, note))
	machine := remotetest.New(t, "worker-0", func(script string) (string, int) {
		switch {
		case strings.Contains(script, "systemctl restart"):
			restarted.Store(true)
			note(restarts)
		case strings.Contains(script, "systemctl stop"):
			note(stops)
		}
		return "", 0
	})
	on := component.Node{Name: "worker-0", PrivateIP: netip.MustParseAddr("192.0.2.20"), Zone: "us-east-1a", InstanceID: "i-1", PodCIDR: netip.MustParsePrefix("10.200.0.0/24")}
	want := poolOf(t, s.API.PKI, fleet.Target{Host: machine.Host, Node: on})
	var prior rollout.Role
	if old {
		prior = want
	}
	base, err := rollout.NewOperation(s.Fleet, want, prior, rollout.Record{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { base.Access.Close() })
	w.operation, err = want.operate(t.Context(), base)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// expect compares what was done with what is wanted. Repetitions count once.
func (w *nodeWorld) expect(t *testing.T, want []string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(slices.Compact(w.done), want) {
		t.Errorf("done: %q, wanted %q", w.done, want)
	}
}

// TestRegisterAgain: a running kubelet whose Node object is gone restarts. A kubelet that is to start finds no Node
// object of an earlier instance, which an API server may still call Ready. Other Node objects stay.
func TestRegisterAgain(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, kubelet, containerd, providerID string
		added                                 bool // the machine was not in the pool
		want                                  []string
	}{
		{"gone", "active", "active", "-", false, []string{restarts}},
		{"as wanted", "active", "active", "aws:///us-east-1a/i-1", false, nil},
		{"as wanted, after a stop", "inactive", "active", "aws:///us-east-1a/i-1", false, nil},
		{"without an identity", "inactive", "", "", false, nil},
		{"not made yet", "", "", "-", true, nil},
		{"of an earlier instance", "", "", "aws:///us-east-1a/i-0", false, []string{cordon, evict, deletion}},
		{"of an earlier instance, after a failure", "failed", "failed", "aws:///us-east-1a/i-0", false, []string{cordon, evict, deletion}},
		// These are made anew when the pool is as wanted.
		{"of a node that was there before the pool", "", "", "aws:///us-east-1a/i-0", true, nil},
		{"of an earlier instance, while the kubelet starts", "activating", "", "aws:///us-east-1a/i-0", false, nil},
		{"of an earlier instance, with a kubelet", "active", "active", "aws:///us-east-1a/i-0", false, nil},
		{"with a wrong identity, with containers", "failed", "active", "aws:///us-east-1a/i-0", false, nil},
		{"in another zone", "failed", "failed", "aws:///us-east-1b/i-1", false, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newNodeWorld(t, tt.providerID, !tt.added)
			w.Machines[0].Seen.Units = map[string]host.Unit{component.KubeletUnit: {ActiveState: tt.kubelet}, component.ContainerdUnit: {ActiveState: tt.containerd}}
			if err := w.registerAgain(patience.With(t.Context(), 30)); err != nil {
				t.Fatal(err)
			}
			w.expect(t, tt.want)
		})
	}
}

// TestRemake: the kubelet stops before its Node object is deleted, and runs when there is a new one, whatever the API
// server answers in between. Pods leave only if there is another node for them.
func TestRemake(t *testing.T) {
	t.Parallel()
	made := []string{stops, deletion, creation, deletion, creation, restarts}
	for _, tt := range []struct {
		name   string
		others bool
		want   []string
	}{
		{"another node", true, append([]string{cordon, evict}, made...)},
		{"no other node", false, made},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newNodeWorld(t, "aws:///us-east-1a/i-0", true)
			if err := w.remake(patience.With(t.Context(), 30), w.Machines[0], "aws:///us-east-1a/i-0", tt.others); err != nil {
				t.Fatal(err)
			}
			w.expect(t, tt.want)
		})
	}
	t.Run("at the end of an apply", func(t *testing.T) {
		t.Parallel()
		w := newNodeWorld(t, "aws:///us-east-1a/i-0", true)
		ctx, cancel := context.WithCancel(patience.With(t.Context(), 30))
		cancel()
		if err := w.remake(ctx, w.Machines[0], "aws:///us-east-1a/i-0", false); err == nil {
			t.Error("an apply that is over made a Node object anew")
		}
		w.expect(t, nil)
	})
}
