package etcdcluster_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/etcdcluster"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/status"
)

// TestRefreshTriesOnce checks that a refresh tries each unreachable machine only once, for all
// resources and questions, and that an apply tries again.
func TestRefreshTriesOnce(t *testing.T) {
	t.Parallel()
	var (
		mu    sync.Mutex
		tried = map[string]int{}
	)
	pool := remote.NewPool(remote.Config{ConnectTimeout: 200 * time.Millisecond, Dial: func(ctx context.Context, _, addr string) (net.Conn, error) {
		mu.Lock()
		tried[addr]++
		mu.Unlock()
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	defer pool.Close()
	store := pki.NewMemoryStore(nil)
	ref, err := pki.Bootstrap(t.Context(), store, "demo", time.Now(), rand.Reader, pki.Options{Store: pki.StoreSSM})
	if err != nil {
		t.Fatal(err)
	}
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	want := etcdOf(3)
	want.Spec.Cluster.PKI = ref
	for i := range want.Targets {
		want.Targets[i].Host.HostKeys = []string{strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))}
	}
	engine := &rollout.Engine{Fleet: &fleet.Fleet{Pool: pool, Store: func(pki.Ref) (pki.Store, error) { return store, nil }}}
	for range 2 { // as for two resources on the same machines
		report, err := engine.Observe(t.Context(), want, rollout.Record{})
		if err != nil || len(report.Unreachable) != 3 {
			t.Errorf("unreachable: %v, %v", report.Unreachable, err)
		}
		if len(report.Unjudged) > 0 {
			t.Errorf("said twice: %q", report.Unjudged)
		}
	}
	status.Of(t.Context(), engine.Fleet, status.Query{API: fleet.API{Endpoint: "https://127.0.0.1:1", PKI: ref}, Controllers: want.Targets, Etcd: want.Targets})
	for machine, n := range tried {
		if n != 1 {
			t.Errorf("%s was tried %d times while looking, wanted once", machine, n)
		}
	}
	if _, err := engine.Apply(t.Context(), want, nil, rollout.Record{}); err == nil {
		t.Error("an apply without machines went well")
	}
	for machine, n := range tried {
		if n != 2 {
			t.Errorf("%s was tried %d times with an apply after that, wanted twice", machine, n)
		}
	}
	if len(tried) != 3 {
		t.Errorf("tried: %v", tried)
	}
}

// etcdOf describes an etcd cluster of the given size.
func etcdOf(n int) etcdcluster.Cluster {
	want := etcdcluster.Cluster{Spec: component.EtcdSpec{
		Cluster: component.Cluster{Name: "demo", PKI: pki.Ref{EtcdCA: "PEM of the etcd CA"}},
		Version: "3.6.16",
		Artifacts: []artifact.Artifact{{Name: artifact.Etcd, Version: "3.6.16",
			URL: "https://mirror.example.com/etcd.tar.gz", SHA256: "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"}},
	}}
	for i := range n {
		name := fmt.Sprintf("controller-%d", i)
		address := netip.AddrFrom4([4]byte{10, 240, 0, byte(10 + i)})
		want.Targets = append(want.Targets, fleet.Target{
			Host: remote.Host{Name: name, Address: address.String(), User: "admin", HostKeys: []string{"ssh-ed25519 AAAA..."}},
			Node: component.Node{Name: name, PrivateIP: address},
		})
	}
	return want
}
