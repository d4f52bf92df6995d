package host_test

import (
	"context"
	"fmt"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// Observes a machine, compares, and applies the difference.
func Example() {
	machine := remote.NewPool(remote.Config{Agent: remote.Agent{Socket: "/run/user/1000/ssh-agent"}}).Machine(remote.Host{
		Name: "worker-0", Address: "10.240.0.20", User: "admin", HostKeys: []string{"ssh-ed25519 AAAA..."},
	})
	want := desired.State{Sysctls: map[string]string{"net.ipv4.ip_forward": "1"}}

	converge := func(ctx context.Context, rec host.Record) (host.Record, error) {
		found, err := host.Observe(ctx, machine, want, rec)
		if err != nil {
			return rec, err
		}
		return host.Apply(ctx, machine, want, host.Diff(want, found, rec), rec, host.Options{
			Progress: func(s string) { fmt.Println(s) },
		})
	}
	_ = converge
}

func ExampleDiff() {
	want := desired.State{
		Files: []desired.File{{Path: "/etc/etcd/etcd.conf", Mode: 0o644, Content: []byte("name: controller-0\n")}},
		Units: []desired.Unit{{Name: "etcd.service", Enabled: true, Active: true, RestartOn: []string{"/etc/etcd/etcd.conf"}}},
	}
	found := host.Observation{
		Files: map[string]host.File{"/etc/etcd/etcd.conf": {
			Type: host.Regular, Mode: 0o666, SHA256: desired.Sum([]byte("name: controller-9\n"))}},
		Units: map[string]host.Unit{"etcd.service": {LoadState: "loaded", ActiveState: "inactive", UnitFileState: "enabled"}},
	}
	for _, change := range host.Diff(want, found, host.Record{}) {
		fmt.Println(change, change.Restarts)
	}
	// Output:
	// file /etc/etcd/etcd.conf: content differs (sha256 found 20126f2aae84.., wanted 1c73427791ae..) [etcd.service]
	// file /etc/etcd/etcd.conf: mode 0666, wanted 0644 []
	// unit etcd.service: stopped, wanted running []
}
