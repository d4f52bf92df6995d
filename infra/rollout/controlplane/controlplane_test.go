package controlplane

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// TestRefusedReleaseRewritesNothing: a control plane that is to go back to an earlier release and
// to lose an encryption key at once is refused before etcd is asked for the secrets, and before any
// of them is written.
func TestRefusedReleaseRewritesNothing(t *testing.T) {
	t.Parallel()
	store := pki.NewMemoryStore(nil)
	ref, err := pki.Bootstrap(t.Context(), store, "demo", time.Now(), rand.Reader, pki.Options{Store: pki.StoreSSM})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var asked []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, what)
	}
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note(r.Method + " " + r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"major":"1","minor":"37","gitVersion":"v1.37.1"}`)
	}))
	machine := newTunnel(t, note, api.Listener.Addr().String())
	f := &fleet.Fleet{Pool: machine.pool, Store: func(pki.Ref) (pki.Store, error) { return store, nil }}
	defer machine.pool.Close()
	pair, err := f.Keys(ref).Issue(t.Context(), pki.KubernetesCA, pki.Request{CommonName: "kube-apiserver", IPs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	api.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	api.StartTLS()
	defer api.Close()

	access := f.Access(ref)
	defer access.Close()
	target := fleet.Target{Host: machine.host, Node: component.Node{Name: "controller-0"}}
	o := &operation{
		Operation: &rollout.Operation{Fleet: f, Access: access, Machines: []*rollout.Machine{{
			Machine: f.Machine(target),
			Record:  rollout.MachineRecord{Secrets: map[string]rollout.SecretRecord{component.EncryptionConfigPath: {SHA256: desired.Sum(nil)}}},
			Seen:    host.Observation{Units: map[string]host.Unit{component.APIServerUnit: {ActiveState: "active"}}},
			Changes: []host.Change{
				change(finding.Binary, "/usr/local/bin/kube-apiserver", component.APIServerUnit),
				change(finding.File, component.EncryptionConfigPath),
			},
		}}},
		want: ControlPlane{Spec: component.ControlPlaneSpec{Version: "1.36.4", EtcdEndpoints: []string{"https://10.240.0.10:2379"}}, Targets: []fleet.Target{target}},
	}
	err = o.guard(t.Context())
	var refused *fleet.GuardError
	if !errors.As(err, &refused) || !strings.Contains(refused.Refused, "roll the API servers to") {
		t.Errorf("not refused as a release that goes back: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(asked, []string{"port 6443", "GET /version"}) {
		t.Errorf("asked: %q", asked)
	}
}

// tunnel is a machine whose SSH server does nothing but pass connections to its port of the API
// server on.
type tunnel struct {
	host remote.Host
	pool *remote.Pool
}

func newTunnel(t *testing.T, note func(string), api string) tunnel {
	t.Helper()
	signer := newSSHKey(t)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	config := &ssh.ServerConfig{NoClientAuth: true}
	config.AddHostKey(signer)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, channels, requests, err := ssh.NewServerConn(conn, config)
				if err != nil {
					return
				}
				go ssh.DiscardRequests(requests)
				for c := range channels {
					data := c.ExtraData() // RFC 4254, 7.2: a host, a port, and who asks
					port := binary.BigEndian.Uint32(data[4+binary.BigEndian.Uint32(data):])
					note(fmt.Sprintf("port %d", port))
					if port != component.APIServerPort {
						_ = c.Reject(ssh.ConnectionFailed, "refused")
						continue
					}
					go forward(t.Context(), c, api)
				}
			}()
		}
	}()
	at := netip.MustParseAddrPort(listener.Addr().String())
	return tunnel{
		host: remote.Host{Name: "controller-0", Address: at.Addr().String(), Port: int(at.Port()), User: "admin",
			HostKeys: []string{strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))}},
		pool: remote.NewPool(remote.Config{Signers: []ssh.Signer{newSSHKey(t)}}),
	}
}

func newSSHKey(t *testing.T) ssh.Signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

func forward(ctx context.Context, c ssh.NewChannel, address string) {
	channel, requests, err := c.Accept()
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		_ = channel.Close()
		return
	}
	go func() {
		_, _ = io.Copy(conn, channel)
		_ = conn.Close()
	}()
	_, _ = io.Copy(channel, conn)
	_ = channel.Close()
}
