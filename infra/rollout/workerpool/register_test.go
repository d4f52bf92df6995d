package workerpool

import (
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
// all other requests.
func nodeAPI(node string, there func() bool, note func(string)) http.HandlerFunc {
	var evicted atomic.Bool
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			note(r.Method + " " + r.URL.Path)
		}
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api/v1/nodes":
			items := node
			if !there() {
				items = ""
			}
			_, _ = fmt.Fprintf(w, `{"kind":"NodeList","apiVersion":"v1","items":[%s]}`, items)
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

// TestRegisterAgain: a running kubelet whose Node object is gone restarts. A kubelet that is to start finds no Node
// object of an earlier instance, which an API server may still call Ready. Other Node objects stay.
func TestRegisterAgain(t *testing.T) {
	t.Parallel()
	const restart, evict, deletion = "restart", "POST /api/v1/namespaces/default/pods/web/eviction", "DELETE /api/v1/nodes/worker-0"
	for _, tt := range []struct {
		name, kubelet, containerd, providerID string // providerID of the Node object; "-" for no such object
		want                                  []string
	}{
		{"gone", "active", "active", "-", []string{restart}},
		{"as wanted", "active", "active", "aws:///us-east-1a/i-1", nil},
		{"as wanted, after a stop", "inactive", "active", "aws:///us-east-1a/i-1", nil},
		{"without an identity", "inactive", "", "", nil},
		{"not made yet", "", "", "-", nil},
		{"of an earlier instance", "", "", "aws:///us-east-1a/i-0", []string{"PATCH /api/v1/nodes/worker-0", evict, deletion}},
		{"of an earlier instance, after a failure", "failed", "failed", "aws:///us-east-1a/i-0", []string{"PATCH /api/v1/nodes/worker-0", evict, deletion}},
		// These are made anew when the pool is as wanted.
		{"of an earlier instance, while the kubelet starts", "activating", "", "aws:///us-east-1a/i-0", nil},
		{"of an earlier instance, with a kubelet", "active", "active", "aws:///us-east-1a/i-0", nil},
		{"with a wrong identity, with containers", "failed", "active", "aws:///us-east-1a/i-0", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var done []string
			var restarted atomic.Bool
			note := func(what string) {
				mu.Lock()
				defer mu.Unlock()
				done = append(done, what)
			}
			node := fmt.Sprintf(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"worker-0"},"spec":{"providerID":%q},
				"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, strings.Trim(tt.providerID, "-"))
			s := fleettest.NewAPIServers(t, nodeAPI(node, func() bool { return tt.providerID != "-" || restarted.Load() }, note))
			machine := remotetest.New(t, "worker-0", func(script string) (string, int) {
				if strings.Contains(script, "restart") {
					restarted.Store(true)
					note(restart)
				}
				return "", 0
			})
			on := component.Node{Name: "worker-0", PrivateIP: netip.MustParseAddr("192.0.2.20"), Zone: "us-east-1a", InstanceID: "i-1", PodCIDR: netip.MustParsePrefix("10.200.0.0/24")}
			target := fleet.Target{Host: machine.Host, Node: on}
			want := poolOf(t, s.API.PKI, target)
			base, err := rollout.NewOperation(s.Fleet, want, want, rollout.Record{})
			if err != nil {
				t.Fatal(err)
			}
			defer base.Access.Close()
			o, err := want.operate(t.Context(), base)
			if err != nil {
				t.Fatal(err)
			}
			o.Machines[0].Seen.Units = map[string]host.Unit{component.KubeletUnit: {ActiveState: tt.kubelet}, component.ContainerdUnit: {ActiveState: tt.containerd}}
			if err := o.registerAgain(patience.With(t.Context(), 30)); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(slices.Compact(done), tt.want) {
				t.Errorf("done: %q, wanted %q", done, tt.want)
			}
		})
	}
}
