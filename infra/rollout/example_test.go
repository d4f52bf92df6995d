package rollout_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/etcdcluster"
)

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

// Creates three etcd members and later makes them five, with the same call.
func Example() {
	engine := &rollout.Engine{Fleet: &fleet.Fleet{
		Pool:     remote.NewPool(remote.Config{Agent: remote.Agent{Socket: "/run/user/1000/agent"}}),
		Store:    func(pki.Ref) (pki.Store, error) { return pki.NewMemoryStore(nil), nil },
		Progress: func(machine, message string) { fmt.Println(machine, message) },
	}}
	three, five := etcdOf(3), etcdOf(5)

	create := func(ctx context.Context) (rollout.Record, error) {
		return engine.Apply(ctx, three, nil, rollout.Record{})
	}
	grow := func(ctx context.Context, record rollout.Record) (rollout.Record, error) {
		return engine.Apply(ctx, five, three, record)
	}
	_, _ = create, grow // needs machines to reach

	fmt.Println(len(three.Targets), "then", len(five.Targets))
	// Output: 3 then 5
}

// Prints what will be on the machines, before any of them is reached.
func ExampleFiles() {
	files, err := rollout.Files(etcdOf(1))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		what := files[path][0]
		if lines := len(files[path]); lines > 1 {
			what = fmt.Sprintf("%d lines", lines)
		} else if source, digest, ok := strings.Cut(what, "sha256:"); ok {
			what = source + "sha256:" + digest[:8]
		}
		fmt.Println(path, what)
	}
	// Output:
	// /etc/etcd/pki/ca.crt sha256:28bb2714
	// /etc/etcd/pki/peer.crt issued by the etcd CA
	// /etc/etcd/pki/server.crt issued by the etcd CA
	// /etc/systemd/system/etcd.service 38 lines
	// /usr/local/bin/etcd etcd 3.6.16, sha256:6b86b273
	// /usr/local/bin/etcdctl etcd 3.6.16, sha256:6b86b273
	// /usr/local/bin/etcdutl etcd 3.6.16, sha256:6b86b273
}
