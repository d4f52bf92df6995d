package controlplane

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// balancedServers is a load balancer in front of two API servers, the second of which is on a machine and was changed.
type balancedServers struct {
	addresses [2]string
	open      [2]atomic.Int32 // connections through the load balancer
}

// counted is a connection through the load balancer.
type counted struct {
	net.Conn
	open *atomic.Int32
	shut atomic.Bool
}

func (c *counted) Close() error {
	if !c.shut.Swap(true) {
		c.open.Add(-1)
	}
	return c.Conn.Close()
}

// to connects with one of the servers.
func (b *balancedServers) to(ctx context.Context, i int) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", b.addresses[i])
	if err != nil {
		return nil, err
	}
	b.open[i].Add(1)
	return &counted{Conn: conn, open: &b.open[i]}, nil
}

func TestBalanced(t *testing.T) {
	t.Parallel()
	ready := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }
	// authenticates refuses clients without a certificate, as with anonymous-auth=false.
	authenticates := func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}
	const other, changed = 0, 1
	for _, tt := range []struct {
		name   string
		server http.HandlerFunc // the changed one
		dial   func(context.Context, *balancedServers, int) (net.Conn, error)
		want   string // part of the error
	}{
		{"sent there at once", ready, func(ctx context.Context, b *balancedServers, _ int) (net.Conn, error) { return b.to(ctx, changed) }, ""},
		{"sent there after a while", ready, func(ctx context.Context, b *balancedServers, n int) (net.Conn, error) {
			return b.to(ctx, min(n/3, changed))
		}, ""},
		{"not the one with the fewest connections", ready, func(ctx context.Context, b *balancedServers, _ int) (net.Conn, error) {
			if b.open[other].Load() < 3 { // the changed one has three of other clients
				return b.to(ctx, other)
			}
			return b.to(ctx, changed)
		}, ""},
		{"refuses health checks", authenticates, func(ctx context.Context, b *balancedServers, _ int) (net.Conn, error) { return b.to(ctx, changed) },
			"ask the API server as the load balancer's health checks do: GET /readyz without credentials: 401 Unauthorized"},
		{"never sent there", ready, func(ctx context.Context, b *balancedServers, _ int) (net.Conn, error) { return b.to(ctx, other) },
			"wait until the load balancer sends clients to the API server: "},
		{"no server left", ready, func(ctx context.Context, b *balancedServers, _ int) (net.Conn, error) {
			client, server := net.Pipe()
			return client, server.Close()
		}, "wait until the load balancer sends clients to the API server: "},
		{"not reached from here", ready, func(context.Context, *balancedServers, int) (net.Conn, error) {
			return nil, errors.New("connection refused")
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var dialled atomic.Int32
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			o, servers := newBalanced(t, [2]http.HandlerFunc{ready, tt.server}, func(ctx context.Context, b *balancedServers) (net.Conn, error) {
				n := int(dialled.Add(1)) - 1
				if tt.want != "" && n == 5 { // several connections have shown that it does not lead there
					giveUp()
				}
				return tt.dial(ctx, b, n)
			})
			err := o.balanced(ctx, o.Machines[changed].Machine)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the gate says %v, wanted %q", err, tt.want)
			}
			if unproven := o.Record().Machines["controller-1"].Unproven; unproven != (tt.want != "") {
				t.Errorf("the record says unproven: %t", unproven)
			}
			for i := range servers.open {
				for end := time.Now().Add(time.Minute); servers.open[i].Load() != 0; time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("%d connections to server %d are still open", servers.open[i].Load(), i)
					}
				}
			}
		})
	}
}

// TestBalancedTogether: each of two API servers that were started together is reached only by the connections of the other one's gate.
func TestBalancedTogether(t *testing.T) {
	t.Parallel()
	type gate struct{}
	ready := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }
	o, _ := newBalanced(t, [2]http.HandlerFunc{ready, ready}, func(ctx context.Context, b *balancedServers) (net.Conn, error) {
		return b.to(ctx, 1-ctx.Value(gate{}).(int))
	})
	var wg sync.WaitGroup
	for i, m := range o.Machines {
		wg.Go(func() {
			if err := o.balanced(context.WithValue(t.Context(), gate{}, i), m.Machine); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// newBalanced returns an operation on two controllers whose API servers are behind a load balancer.
func newBalanced(t *testing.T, handlers [2]http.HandlerFunc, dial func(context.Context, *balancedServers) (net.Conn, error)) (*operation, *balancedServers) {
	t.Helper()
	store := pki.NewMemoryStore(nil)
	ref, err := pki.Bootstrap(t.Context(), store, "demo", time.Now(), rand.Reader, pki.Options{Store: pki.StoreSSM})
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet.Fleet{Store: func(pki.Ref) (pki.Store, error) { return store, nil }}
	base, err := rollout.NewOperation(f, ControlPlane{}, nil, rollout.Record{})
	if err != nil {
		t.Fatal(err)
	}
	o, servers := &operation{Operation: base, want: ControlPlane{Balancer: "https://127.0.0.1:6443"}}, &balancedServers{}
	f.Dial = func(string) kube.DialFunc {
		return func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, servers) }
	}
	for i, handler := range handlers {
		servers.addresses[i] = apiServer(t, f, ref, handler)
		tunnel := newTunnel(t, func(string) {}, servers.addresses[i])
		t.Cleanup(func() { _ = tunnel.pool.Close() })
		machine := fleet.Fleet{Store: f.Store, Pool: tunnel.pool}
		name := fmt.Sprintf("controller-%d", i)
		base.Machines = append(base.Machines, &rollout.Machine{Machine: machine.Machine(fleet.Target{Host: tunnel.host, Node: component.Node{Name: name}})})
		o.noteUnproven(name, true)
	}
	base.Access = f.Access(ref)
	t.Cleanup(base.Access.Close)
	return o, servers
}

// apiServer starts an API server with a certificate of its own and returns its address.
func apiServer(t *testing.T, f *fleet.Fleet, ref pki.Ref, handler http.HandlerFunc) string {
	t.Helper()
	pair, err := f.Keys(ref).Issue(t.Context(), pki.KubernetesCA, pki.Request{CommonName: "kube-apiserver", DNSNames: []string{component.HealthCheckName},
		IPs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return fmt.Sprint(server.Listener.Addr())
}
