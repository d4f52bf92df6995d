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

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet/fleettest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote/remotetest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// poolOf is a worker pool that a test can remove.
func poolOf(t *testing.T, ref pki.Ref, targets ...fleet.Target) Pool {
	t.Helper()
	catalog, err := artifact.NewCatalog("", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	programs, _ := catalog.WorkerSet("1.36.4", "", "", "", true)
	return Pool{Targets: targets, Endpoint: "https://192.0.2.1:6443", Spec: component.WorkerSpec{
		Cluster: component.Cluster{Name: "demo", Domain: "cluster.local", PKI: ref, DNSIP: netip.MustParseAddr("10.32.0.10"),
			PodCIDR: netip.MustParsePrefix("10.200.0.0/16"), ServiceCIDR: netip.MustParsePrefix("10.32.0.0/24")},
		Version: "1.36.4", ControlPlaneEndpoint: "https://192.0.2.1:6443", Artifacts: programs}}
}

// TestSuperseded: when another machine gets the name of a worker, the role is removed from the
// former one, which is known by its address and host key. Its node is deleted first, and only if it
// still belongs to that machine.
func TestSuperseded(t *testing.T) {
	t.Parallel()
	const old, now = "192.0.2.20", "192.0.2.21"
	for _, tt := range []struct {
		name, nodeAt, id string
		away             bool
		want             []string
		left             string
	}{
		{"it answers", old, "", false, []string{"PATCH /api/v1/nodes/worker-0", "POST /api/v1/namespaces/default/pods/web/eviction", "removed", "DELETE /api/v1/nodes/worker-0"}, ""},
		{"it does not", old, "", true, []string{"PATCH /api/v1/nodes/worker-0", "POST /api/v1/namespaces/default/pods/web/eviction", "DELETE /api/v1/nodes/worker-0"}, "worker-0 at 127.0.0.1"},
		{"the new one has the node already", now, "", false, []string{"removed"}, ""}, // and its pods stay
		{"an instance, which ends otherwise", old, "i-1", false, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var done []string
			note := func(what string) {
				mu.Lock()
				defer mu.Unlock()
				done = append(done, what)
			}
			object := fmt.Sprintf(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"worker-0"},"status":{"addresses":[{"type":"InternalIP","address":%q}],
				"conditions":[{"type":"Ready","status":"True"}]}}`, tt.nodeAt)
			s := fleettest.NewAPIServers(t, nodeAPI(object, func() bool { return true }, note))
			machine := func(what string) *remotetest.Machine {
				return remotetest.New(t, "worker-0", func(script string) (string, int) {
					if strings.Contains(script, "remove_units") {
						note(what)
					}
					return "", 0
				})
			}
			former, next := machine("removed"), machine("removed from the new one")
			node := component.Node{Name: "worker-0", PrivateIP: netip.MustParseAddr(old), PodCIDR: netip.MustParsePrefix("10.200.0.0/24")}
			was := fleet.Target{Host: former.Host, Node: node}
			was.Node.InstanceID = tt.id
			node.PrivateIP = netip.MustParseAddr(now)
			prior, want := poolOf(t, s.API.PKI, was), poolOf(t, s.API.PKI, fleet.Target{Host: next.Host, Node: node})
			if tt.away {
				former.Leave()
			}
			base, err := rollout.NewOperation(s.Fleet, want, prior, rollout.Record{Machines: map[string]rollout.MachineRecord{"worker-0": {}}})
			if err != nil {
				t.Fatal(err)
			}
			defer base.Access.Close()
			o, err := want.operate(t.Context(), base)
			if err != nil {
				t.Fatal(err)
			}
			if err := o.removeNodes(patience.With(t.Context(), 30), fleet.Superseded(want.Targets, prior.Targets)); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(slices.Compact(done), tt.want) {
				t.Errorf("done: %q, wanted %q", done, tt.want)
			}
			rec := o.Record()
			if _, kept := rec.Machines["worker-0"]; !kept {
				t.Error("the record of the machine that has the name was dropped")
			}
			if l, ok := rec.Left[tt.left]; len(rec.Left) > 1 || ok != (tt.left != "") || ok && l.Target.Name() != tt.left {
				t.Errorf("left over: %v, wanted %q", rec.Left, tt.left)
			}
		})
	}
}

// TestTakenMeanwhile: another pool claims a machine while it leaves this one. Its Node object stays, since it may be the other
// pool's already, and it is open to pods again.
func TestTakenMeanwhile(t *testing.T) {
	t.Parallel()
	const removal = "removal"
	for _, tt := range []struct {
		name, at string // what is done when it is claimed
		refused  bool   // evictions are
		want     []string
	}{
		{"never", "", false, []string{cordon, evict, removal, deletion}},
		{"while it is drained", evict, false, []string{cordon, evict, cordon}},
		{"while its drain fails", evict, true, []string{cordon, evict, cordon}},
		{"when it is empty", removal, false, []string{cordon, evict, removal, cordon}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var done []string
			var claimed atomic.Bool
			note := func(what string) {
				mu.Lock()
				defer mu.Unlock()
				done = append(done, what)
				if what == tt.at {
					claimed.Store(true)
				}
			}
			api := nodeAPI(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"worker-0","annotations":{"k8s-from-scratch/cordoned":"true"}},
				"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, func() bool { return true }, note)
			s := fleettest.NewAPIServers(t, func(w http.ResponseWriter, r *http.Request) {
				if tt.refused && strings.HasSuffix(r.URL.Path, "/eviction") {
					note(evict)
					fleettest.Fails(http.StatusForbidden, "Forbidden")(w, r)
					return
				}
				api(w, r)
			})
			machine := remotetest.New(t, "worker-0", func(script string) (string, int) {
				switch {
				case strings.Contains(script, "\nread_files '") && claimed.Load():
					return "/var/lib/k8s-from-scratch/claims/worker\x00another\n\x00", 0
				case strings.Contains(script, "\nunless_claimed '") && claimed.Load():
					return "claimed\x00", 0
				case strings.Contains(script, "\nunless_claimed '"):
					note(removal)
				}
				return "", 0
			})
			prior := poolOf(t, s.API.PKI, fleet.Target{Host: machine.Host, Node: component.Node{Name: "worker-0", PrivateIP: netip.MustParseAddr("192.0.2.20"), PodCIDR: netip.MustParsePrefix("10.200.0.0/24")}})
			want := poolOf(t, s.API.PKI)
			base, err := rollout.NewOperation(s.Fleet, want, prior, rollout.Record{Claim: "mine"})
			if err != nil {
				t.Fatal(err)
			}
			defer base.Access.Close()
			o, err := want.operate(t.Context(), base)
			if err != nil {
				t.Fatal(err)
			}
			if err := o.removeNodes(patience.With(t.Context(), 30), prior.Targets); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if done = slices.Compact(done); !slices.Equal(done, tt.want) {
				t.Errorf("done: %q, wanted %q", done, tt.want)
			}
		})
	}
}

// TestSuccessorIsSilent: while the machine that takes a name does not answer, the machine that has
// the name is left as it is.
func TestSuccessorIsSilent(t *testing.T) {
	t.Parallel()
	asked := func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the API was asked: %s %s", r.Method, r.URL.Path)
	}
	s := fleettest.NewAPIServers(t, asked)
	former := remotetest.New(t, "worker-0", func(script string) (string, int) { t.Errorf("the former machine ran %s", script); return "", 0 })
	next := remotetest.New(t, "worker-0", nil)
	next.Leave()
	node := component.Node{Name: "worker-0", PrivateIP: netip.MustParseAddr("192.0.2.20"), PodCIDR: netip.MustParsePrefix("10.200.0.0/24")}
	was := fleet.Target{Host: former.Host, Node: node}
	node.PrivateIP = netip.MustParseAddr("192.0.2.21")
	prior, want := poolOf(t, s.API.PKI, was), poolOf(t, s.API.PKI, fleet.Target{Host: next.Host, Node: node})
	base, err := rollout.NewOperation(s.Fleet, want, prior, rollout.Record{})
	if err != nil {
		t.Fatal(err)
	}
	defer base.Access.Close()
	err = want.Apply(t.Context(), base, prior)
	if err == nil || !strings.Contains(err.Error(), "replace the machine at "+was.Host.Address+", on which nothing has been changed") {
		t.Error(err)
	}
}
