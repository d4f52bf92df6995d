package component

import (
	"bytes"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/registry"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

func node(name, private, public, pods string) Node {
	n := Node{Name: name, PrivateIP: netip.MustParseAddr(private)}
	if public != "" {
		n.PublicIP = netip.MustParseAddr(public)
	}
	if pods != "" {
		n.PodCIDR = netip.MustParsePrefix(pods)
	}
	return n
}

var (
	controllers = []Node{
		node("controller-0", "10.240.0.10", "203.0.113.10", ""),
		node("controller-1", "10.240.0.11", "203.0.113.11", ""),
		node("controller-2", "10.240.0.12", "203.0.113.12", ""),
	}
	worker0 = node("worker-0", "10.240.0.20", "203.0.113.20", "10.200.0.0/24")
	lb0     = node("lb-0", "10.240.0.40", "203.0.113.40", "")
)

func testCluster() Cluster {
	return Cluster{
		Name:        "demo",
		Domain:      "cluster.local",
		PodCIDR:     netip.MustParsePrefix("10.200.0.0/16"),
		ServiceCIDR: netip.MustParsePrefix("10.32.0.0/24"),
		NodeCIDRs:   []netip.Prefix{netip.MustParsePrefix("10.240.1.0/24"), netip.MustParsePrefix("10.240.0.0/24")},
		DNSIP:       netip.MustParseAddr("10.32.0.10"),
		PKI: pki.Ref{
			Cluster: "demo", Store: pki.StoreSSM, KubernetesCA: "kubernetes CA\n", EtcdCA: "etcd CA\n", FrontProxyCA: "front-proxy CA\n",
			ServiceAccountPublicKey: "service-account key\n",
		},
	}
}

// artifacts returns a set's artifacts with a made-up digest.
func artifacts(t testing.TB, get func(*artifact.Catalog) ([]artifact.Artifact, error)) []artifact.Artifact {
	t.Helper()
	catalog, err := artifact.NewCatalog("", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	list, _ := get(catalog)
	for i := range list {
		list[i].SHA256 = strings.Repeat("0", 64)
	}
	return list
}

func etcdSpec(t testing.TB) EtcdSpec {
	return EtcdSpec{Cluster: testCluster(), Version: "3.6.16", Members: controllers,
		Artifacts: artifacts(t, func(c *artifact.Catalog) ([]artifact.Artifact, error) { return c.EtcdSet("3.6.16") })}
}

func etcdBackupSpec() EtcdBackupSpec {
	return EtcdBackupSpec{Cluster: testCluster(), Members: controllers, Bucket: "example-snapshots", Region: "eu-central-1"}
}

func controlPlaneSpec(t testing.TB) ControlPlaneSpec { return controlPlaneAt(t, "1.36.4") }

func controlPlaneAt(t testing.TB, v string) ControlPlaneSpec {
	return ControlPlaneSpec{Cluster: testCluster(), Version: v, EndpointNames: []string{"203.0.113.99", "10.240.0.40"},
		APIServer: APIServerSpec{ExtraSANs: []string{"k8s.example.com"}}, Nodes: controllers, EtcdEndpoints: EtcdEndpoints(controllers),
		Artifacts: artifacts(t, func(c *artifact.Catalog) ([]artifact.Artifact, error) { return c.ControlPlaneSet(v) })}
}

func workerSpec(t testing.TB) WorkerSpec { return workerAt(t, "1.36.4") }

func workerAt(t testing.TB, v string) WorkerSpec {
	return WorkerSpec{Cluster: testCluster(), Version: v, ControlPlaneEndpoint: "https://10.240.0.40:6443",
		Artifacts: artifacts(t, func(c *artifact.Catalog) ([]artifact.Artifact, error) { return c.WorkerSet(v, "", "", "", true) })}
}

func loadBalancerSpec() LoadBalancerSpec {
	return LoadBalancerSpec{Cluster: testCluster(), Backends: controllers}
}

func must(t *testing.T) func(Machine, error) Machine {
	return func(m Machine, err error) Machine {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
}

// golden compares with testdata/<name>.golden.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (run with -update when that is meant):\n%s", path, diff)
	}
}

// goldenMachine compares every file of a machine, and the rest of it as a summary.
func goldenMachine(t *testing.T, dir string, m Machine) {
	t.Helper()
	if err := m.State.Validate(); err != nil {
		t.Error(err)
	}
	seen := map[string]bool{"machine.golden": true}
	for _, f := range m.State.Files {
		name := strings.ReplaceAll(strings.TrimPrefix(f.Path, "/"), "/", "_")
		seen[name+".golden"] = true
		golden(t, filepath.Join(dir, name), f.Content)
	}
	golden(t, filepath.Join(dir, "machine"), summary(t, m))
	entries, err := os.ReadDir(filepath.Join("testdata", dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !seen[e.Name()] {
			t.Errorf("testdata/%s/%s is a golden file of nothing", dir, e.Name())
		}
	}
}

// summary returns a machine without the content of its files.
func summary(t *testing.T, m Machine) []byte {
	t.Helper()
	files := map[string]string{}
	for _, f := range m.State.Files {
		files[f.Path] = fmt.Sprintf("%04o", f.Mode)
		if f.Once {
			files[f.Path] += " once"
		}
	}
	for _, s := range m.Secrets {
		files[s.Path] = fmt.Sprintf("%04o secret %s", s.Mode, s.Origin())
	}
	binaries := map[string]string{}
	for _, b := range m.State.Binaries {
		for _, i := range b.Installs {
			binaries[i.Path] = strings.TrimSpace(b.URL + " " + i.Member)
		}
	}
	directories := map[string]string{}
	for _, d := range m.State.Directories {
		directories[d.Path] = fmt.Sprintf("%04o", d.Mode)
	}
	certificates := map[string]any{}
	for _, c := range m.Certificates {
		r := c.Request
		certificates[c.CertPath] = map[string]any{
			"ca": c.CA, "key": fmt.Sprintf("%s %04o", c.KeyPath, c.KeyMode), "cn": r.CommonName, "o": r.Organizations,
			"dns": r.DNSNames, "ips": r.IPs, "server": r.Server, "client": r.Client, "renewal": c.EarlyRenewal.String(),
		}
	}
	units := []any{}
	for _, u := range m.State.Units {
		units = append(units, map[string]any{"name": u.Name, "enabled": u.Enabled, "active": u.Active, "restartOn": u.RestartOn, "reloadOn": u.ReloadOn, "check": u.Check})
	}
	retired := []any{}
	for _, r := range m.State.Retired {
		retired = append(retired, map[string]any{"unit": r.Unit, "paths": r.Paths, "cleanup": r.Cleanup, "restarts": r.Restarts})
	}
	all := map[string]any{
		"packages": m.State.Packages, "modules": m.State.Modules, "sysctls": m.State.Sysctls, "directories": directories,
		"files": files, "binaries": binaries, "certificates": certificates, "units": units,
	}
	if len(retired) > 0 {
		all["retired"] = retired
	}
	b, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGolden(t *testing.T) {
	goldenMachine(t, "etcd", must(t)(Etcd(etcdSpec(t), controllers[0])))
	goldenMachine(t, "etcd-backup", must(t)(EtcdBackup(etcdBackupSpec(), controllers[1])))
	goldenMachine(t, "loadbalancer", must(t)(LoadBalancer(loadBalancerSpec(), lb0)))
	for _, r := range version.Releases() {
		goldenMachine(t, filepath.Join("controlplane", r.Minor), must(t)(ControlPlane(controlPlaneAt(t, r.Newest), controllers[0])))
		goldenMachine(t, filepath.Join("worker", r.Minor), must(t)(Workers(workerAt(t, r.Newest))(worker0)))
	}
	bare := workerSpec(t)
	bare.CNI.Network, bare.KubeProxy.Off = CNINone, true
	goldenMachine(t, "worker-bare", must(t)(Workers(bare)(worker0)))
}

// One machine may be an etcd member, a controller and a worker at once.
func TestRolesDoNotCollide(t *testing.T) {
	n := controllers[0]
	n.PodCIDR = worker0.PodCIDR
	state := desired.Merge(
		must(t)(Etcd(etcdSpec(t), n)).State,
		must(t)(ControlPlane(controlPlaneSpec(t), n)).State,
		must(t)(Workers(workerSpec(t))(n)).State,
		must(t)(LoadBalancer(loadBalancerSpec(), n)).State,
	)
	if err := state.Validate(); err != nil {
		t.Error(err)
	}
}

// Every path on which a unit restarts or reloads must be on the machine.
func TestUnitsNameExistingPaths(t *testing.T) {
	for name, m := range map[string]Machine{
		"etcd":          must(t)(Etcd(etcdSpec(t), controllers[0])),
		"control plane": must(t)(ControlPlane(controlPlaneSpec(t), controllers[0])),
		"worker":        must(t)(Workers(workerSpec(t))(worker0)),
		"load balancer": must(t)(LoadBalancer(loadBalancerSpec(), lb0)),
	} {
		known := append(m.State.Paths(), desired.AuthoritiesPath)
		for _, s := range m.Secrets {
			known = append(known, s.Path)
		}
		for _, u := range m.State.Units {
			for _, p := range append(slices.Clone(u.RestartOn), u.ReloadOn...) {
				if !slices.Contains(known, p) {
					t.Errorf("%s: %s depends on %s, which nothing puts there", name, u.Name, p)
				}
			}
			for _, c := range m.Certificates {
				if slices.Contains(u.RestartOn, c.CertPath) || slices.Contains(u.RestartOn, c.KeyPath) {
					t.Errorf("%s: %s restarts for a renewed certificate, which it reads by itself", name, u.Name)
				}
			}
		}
	}
}

func TestOutputIsDeterministic(t *testing.T) {
	render := func() []byte {
		var b bytes.Buffer
		spec := workerSpec(t)
		spec.Kubelet.Labels = map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"}
		spec.Containerd.Registries = registry.Registries{"docker.io": {{URL: "http://m"}}, "quay.io": {{URL: "http://m"}}, "*": {{URL: "http://m"}}}
		spec.Kubelet.Args = SingleArgs(map[string]string{"v": "2", "cert-dir": "/x", "runtime-cgroups": "/y"})
		for _, m := range []Machine{must(t)(Workers(spec)(worker0)), must(t)(ControlPlane(controlPlaneSpec(t), controllers[1]))} {
			for _, f := range m.State.Files {
				fmt.Fprintf(&b, "%s\n%s\n", f.Path, f.Content)
			}
			b.Write(summary(t, m))
		}
		return b.Bytes()
	}
	first := render()
	for range 20 {
		if again := render(); !bytes.Equal(first, again) {
			t.Fatal(cmp.Diff(string(first), string(again)))
		}
	}
}
