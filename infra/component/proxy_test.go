package component

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/egress"
)

// TestProxy: containerd, the kubelet and the snapshots have the proxy's variables, in which the cluster is near.
func TestProxy(t *testing.T) {
	t.Parallel()
	proxy := egress.Proxy{HTTP: "http://proxy.example.com:3128", HTTPS: "http://proxy.example.com:3129", NoProxy: []string{".example.com"}}
	file := func(m Machine, path string) string {
		for _, f := range m.State.Files {
			if f.Path == path {
				return string(f.Content)
			}
		}
		t.Fatalf("no file %s", path)
		return ""
	}
	spec := workerSpec(t)
	spec.Proxy = proxy
	worker := must(t)(Workers(spec)(worker0))
	plain := must(t)(Workers(workerSpec(t))(worker0))
	for _, unit := range []string{ContainerdUnit, KubeletUnit} {
		got := file(worker, unitPath(unit))
		for _, want := range []string{
			"\nEnvironment=\"http_proxy=http://proxy.example.com:3128\"\n", "\nEnvironment=\"https_proxy=http://proxy.example.com:3129\"\n",
			".svc,", ".cluster.local,", "10.200.0.0/16", "10.32.0.0/24", "169.254.169.254", ".example.com",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("%s has no %q:\n%s", unit, want, got)
			}
		}
		if text := file(plain, unitPath(unit)); strings.Contains(text, "_proxy") {
			t.Errorf("%s without a proxy:\n%s", unit, text)
		}
	}
	if !strings.Contains(file(worker, unitPath(KubeletUnit)), ",10.240.0.40,") {
		t.Error("the kubelet asks the API servers through the proxy")
	}
	// Another value of the unit of containerd would drain the node.
	spec.ControlPlaneEndpoint = "https://10.240.0.41:6443"
	spec.Cluster.NodeCIDRs = append(spec.Cluster.NodeCIDRs, netip.MustParsePrefix("10.240.2.0/24"))
	spec.Cluster.PodRoutes = map[netip.Prefix]netip.Addr{netip.MustParsePrefix("10.200.1.0/24"): netip.MustParseAddr("10.240.0.21")}
	if file(must(t)(Workers(spec)(worker0)), unitPath(ContainerdUnit)) != file(worker, unitPath(ContainerdUnit)) {
		t.Error("another endpoint, subnet or node changes the unit of containerd")
	}
	backup := etcdBackupSpec()
	backup.Proxy = proxy
	config := file(must(t)(EtcdBackup(backup, controllers[0])), etcdBackupConfig)
	if !strings.Contains(config, "\nexport https_proxy='http://proxy.example.com:3129'\n") || !strings.Contains(config, "\nexport no_proxy='") {
		t.Errorf("the snapshots have:\n%s", config)
	}
	read, err := etcdBackupSpec().Read(Found{Files: map[string][]byte{etcdBackupConfig: []byte(config)}})
	if err != nil || read.Bucket != backup.Bucket || read.Prefix != "" {
		t.Errorf("an import reads %+v, %v", read, err)
	}
}

// TestAuthorities: every role has them, and containerd restarts when they change.
func TestAuthorities(t *testing.T) {
	t.Parallel()
	const pem = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"
	worker, etcd, control, balancer, backup := workerSpec(t), etcdSpec(t), controlPlaneSpec(t), loadBalancerSpec(), etcdBackupSpec()
	for _, c := range []*Cluster{&worker.Cluster, &etcd.Cluster, &control.Cluster, &balancer.Cluster, &backup.Cluster} {
		c.Authorities = pem
	}
	for name, m := range map[string]Machine{
		"worker": must(t)(Workers(worker)(worker0)), "etcd": must(t)(Etcd(etcd, controllers[0])), "control plane": must(t)(ControlPlane(control, controllers[0])),
		"load balancer": must(t)(LoadBalancer(balancer, lb0)), "snapshots": must(t)(EtcdBackup(backup, controllers[0])),
	} {
		if m.State.Authorities != pem {
			t.Errorf("%s has the authorities %q", name, m.State.Authorities)
		}
		for _, u := range m.State.Units {
			if restarts := slices.Contains(u.RestartOn, desired.AuthoritiesPath); restarts != (u.Name == ContainerdUnit) {
				t.Errorf("%s: %s restarts for them: %t", name, u.Name, restarts)
			}
		}
	}
}
