// Package fleettest gives tests API servers that a fleet reaches. What may not enter: machines, which
// package remotetest gives, and programs of Kubernetes.
package fleettest

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// APIServers are API servers behind one endpoint. They get connections in turn.
type APIServers struct {
	// Fleet reaches them.
	Fleet *fleet.Fleet
	API   fleet.API

	asked   atomic.Int32
	servers []*httptest.Server
}

// NewAPIServers starts API servers, which end with the test.
func NewAPIServers(t *testing.T, handlers ...http.HandlerFunc) *APIServers {
	t.Helper()
	store := pki.NewMemoryStore(nil)
	ref, err := pki.Bootstrap(t.Context(), store, "demo", time.Now(), rand.Reader, pki.Options{Store: pki.StoreSSM})
	if err != nil {
		t.Fatal(err)
	}
	s := &APIServers{API: fleet.API{Endpoint: "https://192.0.2.1:6443", PKI: ref}}
	s.Fleet = &fleet.Fleet{Pool: remote.NewPool(remote.Config{}), Store: func(pki.Ref) (pki.Store, error) { return store, nil }}
	pair, err := s.Fleet.Keys(ref).Issue(t.Context(), pki.KubernetesCA,
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
	s.Fleet.Dial = func(string) kube.DialFunc {
		return func(ctx context.Context, network, _ string) (net.Conn, error) {
			server := s.servers[int(s.asked.Add(1)-1)%len(s.servers)]
			return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
		}
	}
	return s
}

// Hangs answers nothing.
func Hangs(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// Serves is an API server with one ConfigMap, exactly as wanted, and one node.
func Serves(w http.ResponseWriter, r *http.Request) {
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

// HangsAfterReady reports ready and answers nothing else, as a server does whose etcd has just lost
// its quorum.
func HangsAfterReady(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/readyz" {
		Hangs(w, r)
	}
}

// At calls f when one of the servers is asked for a path, before it answers.
func At(path string, f func(), servers ...http.HandlerFunc) []http.HandlerFunc {
	out := make([]http.HandlerFunc, len(servers))
	for i, answer := range servers {
		out[i] = func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == path {
				f()
			}
			answer(w, r)
		}
	}
	return out
}

// Fails answers every request with a status.
func Fails(code int, reason string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"reason":%q,"code":%d}`, reason, reason, code)
	}
}
