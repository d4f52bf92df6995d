package rollout

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// manyServers are API servers behind one endpoint. They get connections in turn.
type manyServers struct {
	engine  *Engine
	ref     pki.Ref
	asked   atomic.Int32
	servers []*httptest.Server
}

func newServers(t *testing.T, handlers ...http.HandlerFunc) *manyServers {
	t.Helper()
	store := pki.NewMemoryStore(nil)
	ref, err := pki.Bootstrap(t.Context(), store, "demo", time.Now(), rand.Reader, pki.Options{Store: pki.StoreSSM})
	if err != nil {
		t.Fatal(err)
	}
	s := &manyServers{ref: ref}
	s.engine = &Engine{Fleet: &fleet.Fleet{Pool: remote.NewPool(remote.Config{}), Store: func(pki.Ref) (pki.Store, error) { return store, nil }}}
	pair, err := s.engine.Fleet.Keys(ref).Issue(t.Context(), pki.KubernetesCA,
		pki.Request{CommonName: "kube-apiserver", IPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range handlers {
		server := httptest.NewUnstartedServer(h)
		server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
		server.EnableHTTP2 = true
		server.StartTLS()
		t.Cleanup(func() {
			server.CloseClientConnections() // discovery would otherwise wait for its timeout
			server.Close()
		})
		s.servers = append(s.servers, server)
	}
	s.engine.Fleet.Dial = func(string) kube.DialFunc {
		return func(ctx context.Context, network, _ string) (net.Conn, error) {
			server := s.servers[int(s.asked.Add(1)-1)%len(s.servers)]
			return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
		}
	}
	return s
}

func (s *manyServers) api() API { return API{Endpoint: "https://192.0.2.1:6443", PKI: s.ref} }

func hangs(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// serves is an API server with one ConfigMap, exactly as wanted, and one node.
func serves(w http.ResponseWriter, r *http.Request) {
	const configMap = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"default"}}`
	answers := map[string]string{
		"/readyz": "ok",
		"/api":    `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis":   `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
		"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"configmaps","namespaced":true,"kind":"ConfigMap","verbs":["get","patch"]}]}`,
		"/api/v1/namespaces/default/configmaps/a": configMap,
		"/api/v1/nodes": `{"kind":"NodeList","apiVersion":"v1","items":[{"metadata":{"name":"worker-0"}}]}`,
	}
	body, ok := answers[r.URL.Path]
	w.Header().Set("Content-Type", "application/json")
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		body = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
	}
	_, _ = w.Write([]byte(body))
}

// hangsAfterReady reports ready and answers nothing else, as a server does whose etcd has just lost
// its quorum.
func hangsAfterReady(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/readyz" {
		hangs(w, r)
	}
}

// fails answers every request with a status.
func fails(code int, reason string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"reason":%q,"code":%d}`, reason, reason, code)
	}
}

func configMaps(names ...string) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, name := range names {
		out = append(out, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": "default"}}})
	}
	return out
}

// TestPlanAsksAnother checks that another API server is asked when one does not answer, and that an
// unanswered question gives a warning and plans nothing.
func TestPlanAsksAnother(t *testing.T) {
	for _, tt := range []struct {
		name    string
		servers []http.HandlerFunc
		limit   time.Duration // what the caller gives
		within  time.Duration
		warning string // empty: a server answered
	}{
		{"all well", []http.HandlerFunc{serves}, time.Minute, fleet.AnswerShare, ""},
		{"one hangs", []http.HandlerFunc{hangs, serves}, time.Minute, 2*fleet.AnswerShare + time.Second, ""},
		{"one hangs once it has said that it is ready", []http.HandlerFunc{hangsAfterReady, serves}, time.Minute, 2*fleet.AnswerShare + time.Second, ""},
		{"one fails", []http.HandlerFunc{fails(503, "ServiceUnavailable"), serves}, time.Minute, fleet.AnswerShare + 2*time.Second, ""},
		{"all hang", []http.HandlerFunc{hangs}, time.Second, 2 * time.Second, "gave no answer: context deadline exceeded"},
		{"all hang once they have said that they are ready", []http.HandlerFunc{hangsAfterReady}, time.Second, 2 * time.Second, "gave no answer: context deadline exceeded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newServers(t, tt.servers...)
			judge := func(what string, start time.Time, r Report, err error) {
				t.Helper()
				if took := time.Since(start); took > tt.within {
					t.Errorf("%s: took %s, %s at most", what, took, tt.within)
				}
				warning := finding.Words(r.Unjudged)
				switch {
				case err != nil:
					t.Errorf("%s: %v", what, err)
				case tt.warning == "" && warning != "", !strings.Contains(warning, tt.warning):
					t.Errorf("%s: warning %q, want %q", what, warning, tt.warning)
				case tt.warning != "" && len(r.Findings) > 0:
					t.Errorf("%s: drift %v of what could not be seen", what, r.Findings)
				case tt.warning == "" && len(r.Findings) != 1:
					t.Errorf("%s: drift %v, want one", what, r.Findings)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), tt.limit)
			defer cancel()
			start := time.Now()
			r, err := s.engine.ObserveObjects(ctx, Addon{API: s.api(), Name: "a", Objects: configMaps("a", "missing")}, nil)
			judge("addon", start, r, err)

			ctx, cancel = context.WithTimeout(t.Context(), tt.limit)
			defer cancel()
			start = time.Now()
			r = newReport()
			want := Workers{Endpoint: s.api().Endpoint, Targets: []fleet.Target{
				{Node: component.Node{Name: "worker-0"}}, {Node: component.Node{Name: "worker-1"}}}}
			a := s.engine.Fleet.Access(s.ref)
			defer a.Close()
			if err := nodeDrift(ctx, a, want, &r); err != nil {
				r.unjudged(finding.Nodes, "", err)
			}
			judge("nodes", start, r, nil)
		})
	}
}

// TestSharedObject: two addons with one common object both converge, and the one that was applied
// last has it. Only the claim's holder removes it, and the other one misses it then.
func TestSharedObject(t *testing.T) {
	const path = "/api/v1/namespaces/default/configmaps/a"
	var mu sync.Mutex
	var live map[string]any
	s := newServers(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == path && r.Method == http.MethodPatch {
			body, _ := io.ReadAll(r.Body)
			var now map[string]any
			if err := json.Unmarshal(body, &now); err != nil {
				t.Error(err)
			}
			if r.URL.Query().Get("dryRun") == "" {
				live = now
			}
			_ = json.NewEncoder(w).Encode(now)
			return
		}
		if r.URL.Path != path || live == nil {
			if r.URL.Path == path {
				r.URL.Path = "/missing"
			}
			serves(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(live)
		if r.Method == http.MethodDelete {
			live = nil
		}
	})
	addon := func(claim string) Addon {
		return Addon{API: s.api(), Name: claim, Claim: claim, Objects: configMaps("a")}
	}
	inventory := kube.RefsOf(configMaps("a"))
	drift := func(a Addon) string {
		t.Helper()
		r, err := s.engine.ObserveObjects(t.Context(), a, inventory)
		if err != nil || len(r.Unjudged) > 0 {
			t.Fatal(err, r.Unjudged)
		}
		return finding.Words(r.Findings)
	}
	first, second := addon("first"), addon("second")
	for _, a := range []Addon{first, second} {
		if got := drift(a); a.Claim == "first" && !strings.Contains(got, "missing") {
			t.Errorf("before it is applied: %q", got)
		}
		if _, err := s.engine.ApplyObjects(t.Context(), a, nil); err != nil {
			t.Fatal(err)
		}
	}
	if got := drift(first) + drift(second); got != "" {
		t.Errorf("the drift of both is %q", got)
	}
	changed := addon("first")
	changed.Objects[0].Object["data"] = map[string]any{"x": "y"}
	if got := drift(changed); !strings.Contains(got, "data") || !strings.Contains(got, "claim") {
		t.Errorf("the drift of what differs otherwise is %q", got)
	}
	for _, claim := range []any{nil, ""} {
		mu.Lock()
		metadata := live["metadata"].(map[string]any) //nolint:forcetypeassert // it was applied so
		had := metadata["annotations"]
		metadata["annotations"] = map[string]any{claimAnnotation: claim, "other": "x"}
		if claim == nil {
			delete(metadata, "annotations")
		}
		mu.Unlock()
		if got := drift(first); got == "" {
			t.Errorf("no drift without a claim (%v)", claim)
		}
		mu.Lock()
		metadata["annotations"] = had
		mu.Unlock()
	}
	// The one that was replaced is removed after the new one was applied.
	if kept, err := s.engine.RemoveObjects(t.Context(), first, inventory); err != nil || len(kept) != 1 || live == nil {
		t.Errorf("kept %v, %v", kept, err)
	}
	if kept, err := s.engine.RemoveObjects(t.Context(), second, inventory); err != nil || len(kept) != 0 || live != nil {
		t.Errorf("kept %v, %v", kept, err)
	}
	if got := drift(first); !strings.Contains(got, "missing") {
		t.Errorf("after the removal by the other one: %q", got)
	}
}

// TestAddonRefused checks that an answer that would be the same from every server is an error, not
// a warning.
func TestAddonRefused(t *testing.T) {
	s := newServers(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/a") {
			fails(400, "BadRequest")(w, r)
			return
		}
		serves(w, r)
	})
	r, err := s.engine.ObserveObjects(t.Context(), Addon{API: s.api(), Name: "a", Objects: configMaps("a")}, nil)
	if err == nil || !strings.Contains(err.Error(), "BadRequest") || len(r.Unjudged) > 0 {
		t.Errorf("error = %v, unjudged = %v", err, r.Unjudged)
	}
	if !kube.Unanswered(context.DeadlineExceeded) || kube.Unanswered(nil) || kube.Unanswered(err) {
		t.Error("an answer is taken for none")
	}
}
