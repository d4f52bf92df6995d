// Package flags compares what package component renders with the real programs: a program must know
// every flag and not call it deprecated, and must be able to read its configuration files.
//
// The programs come from the project's artifact cache; the tests are skipped without it. No test
// leaves a component running.
package flags

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// versions are the Kubernetes releases looked for in the cache.
var versions = []string{"1.37.1", "1.36.4", "1.35.8"}

const runTimeout = time.Minute

func mirror(t *testing.T) string {
	t.Helper()
	cache := os.Getenv("K8S_LAB_CACHE")
	if cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			dir = "/var/cache"
		}
		cache = filepath.Join(dir, "k8s-lab")
	}
	return filepath.Join(cache, "mirror")
}

// program returns an executable copy of a program in the cache, from an archive when member is
// given. It skips the test when the cache lacks it, unless K8S_FLAGS_OF is "all".
func program(t *testing.T, a artifact.Artifact, member string) string {
	t.Helper()
	f, err := os.Open(filepath.Join(mirror(t), filepath.FromSlash(a.Path)))
	if errors.Is(err, os.ErrNotExist) && os.Getenv("K8S_FLAGS_OF") != "all" {
		t.Skipf("the artifact cache has no %s %s", a.Name, a.Version)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // read only
	var from io.Reader = f
	if member != "" {
		from = unpack(t, f, member)
	}
	target := filepath.Join(t.TempDir(), path.Base(a.Name))
	to, err := os.OpenFile(target, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return target
}

func unpack(t *testing.T, archive io.Reader, member string) io.Reader {
	t.Helper()
	z, err := gzip.NewReader(archive)
	if err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(z)
	for {
		h, err := r.Next()
		if err != nil {
			t.Fatalf("%s: %v", member, err)
		}
		if strings.TrimPrefix(path.Clean("/"+h.Name), "/") == member {
			return r
		}
	}
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), runTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	return string(out)
}

var (
	flagInHelp = regexp.MustCompile(`(?m)^\s+(?:-\w, )?--([a-z0-9.-]+)\b(.*(?:\n {30,}.*)*)`)
	flagInUnit = regexp.MustCompile(`(?m)^  "?--([^= ]+)=`)
)

// checkFlags compares the flags in a unit file with those in a program's help.
func checkFlags(t *testing.T, unit, help string) {
	t.Helper()
	known := map[string]string{}
	for _, m := range flagInHelp.FindAllStringSubmatch(help, -1) {
		known[m[1]] = m[2]
	}
	used := flagInUnit.FindAllStringSubmatch(unit, -1)
	if len(used) == 0 {
		t.Fatalf("no flags in the unit:\n%s", unit)
	}
	for _, m := range used {
		text, ok := known[m[1]]
		switch {
		case !ok:
			t.Errorf("--%s is unknown to the program", m[1])
		case strings.Contains(text, "DEPRECATED"):
			t.Errorf("--%s is deprecated:%s", m[1], text)
		}
	}
}

func content(t *testing.T, m component.Machine, path string) string {
	t.Helper()
	for _, f := range m.State.Files {
		if f.Path == path {
			return string(f.Content)
		}
	}
	t.Fatalf("%s is not rendered", path)
	return ""
}

func unitOf(t *testing.T, m component.Machine, unit string) string {
	t.Helper()
	return content(t, m, "/etc/systemd/system/"+unit)
}

var (
	controller = component.Node{Name: "controller-0", PrivateIP: netip.MustParseAddr("10.240.0.10")}
	second     = component.Node{Name: "controller-1", PrivateIP: netip.MustParseAddr("10.240.0.11")}
	worker     = component.Node{Name: "worker-0", PrivateIP: netip.MustParseAddr("10.240.0.20"), PodCIDR: netip.MustParsePrefix("10.200.0.0/24")}
	cluster    = component.Cluster{
		Name: "demo", Domain: "cluster.local",
		PodCIDR: netip.MustParsePrefix("10.200.0.0/16"), ServiceCIDR: netip.MustParsePrefix("10.32.0.0/24"),
		DNSIP: netip.MustParseAddr("10.32.0.10"),
		PKI:   pki.Ref{KubernetesCA: "x", EtcdCA: "x", FrontProxyCA: "x", ServiceAccountPublicKey: "x"},
	}
)

func catalog(t *testing.T) *artifact.Catalog {
	t.Helper()
	c, err := artifact.NewCatalog("", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// set ignores errors about unknown checksums, which do not matter here.
func set(t *testing.T, list []artifact.Artifact, err error) []artifact.Artifact {
	t.Helper()
	if err != nil && !errors.Is(err, artifact.ErrUnknownChecksum) {
		t.Fatal(err)
	}
	return list
}

func find(t *testing.T, list []artifact.Artifact, name string) artifact.Artifact {
	t.Helper()
	a, ok := artifact.Find(list, name)
	if !ok {
		t.Fatalf("no artifact %s", name)
	}
	return a
}

func TestEtcd(t *testing.T) {
	for _, v := range []string{artifact.DefaultEtcd, artifact.NextEtcd} {
		t.Run(v, func(t *testing.T) {
			list, err := catalog(t).EtcdSet(v)
			list = set(t, list, err)
			etcd := program(t, find(t, list, artifact.Etcd), "etcd-v"+v+"-linux-amd64/etcd")
			m, err := component.Etcd(component.EtcdSpec{Cluster: cluster, Version: v,
				Members: []component.Node{controller}, Artifacts: list}, controller)
			if err != nil {
				t.Fatal(err)
			}
			checkFlags(t, unitOf(t, m, component.EtcdUnit), run(t, etcd, "--help"))
		})
	}
}

func TestControlPlane(t *testing.T) {
	for _, v := range versions {
		list, err := catalog(t).ControlPlaneSet(v)
		list = set(t, list, err)
		m, err := component.ControlPlane(component.ControlPlaneSpec{
			Cluster: cluster, Version: v, Nodes: []component.Node{controller, second}, EtcdEndpoints: []string{"https://10.240.0.10:2379"},
			APIServer: component.APIServerSpec{AdmissionPlugins: map[string]map[string]any{
				"PodSecurity": {"kind": "PodSecurityConfiguration", "apiVersion": "pod-security.admission.config.k8s.io/v1"}}},
			Artifacts: list,
		}, controller)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{artifact.KubeAPIServer, artifact.KubeControllerManager, artifact.KubeScheduler} {
			t.Run(name+" "+v, func(t *testing.T) {
				checkFlags(t, unitOf(t, m, name+".service"), run(t, program(t, find(t, list, name), ""), "--help"))
			})
		}
	}
}

// TestAdmissionPlugins compares component's list of admission plugins of a release with the
// program's own.
func TestAdmissionPlugins(t *testing.T) {
	listed := regexp.MustCompile(`Comma-delimited list of admission plugins: ([^.]*)\.`)
	for _, v := range versions {
		t.Run(v, func(t *testing.T) {
			list, err := catalog(t).ControlPlaneSet(v)
			server := program(t, find(t, set(t, list, err), artifact.KubeAPIServer), "")
			parsed, err := version.Parse(v)
			if err != nil {
				t.Fatal(err)
			}
			m := listed.FindStringSubmatch(run(t, server, "--help"))
			if m == nil {
				t.Fatal("the help of kube-apiserver lists no admission plugins")
			}
			if known, want := component.AdmissionPlugins(parsed), strings.Split(m[1], ", "); !slices.Equal(known, want) {
				t.Errorf("known are %q, the program lists %q", known, want)
			}
		})
	}
}

func TestWorker(t *testing.T) {
	for _, v := range versions {
		list, err := catalog(t).WorkerSet(v, "", "", "", true)
		list = set(t, list, err)
		m, err := component.Workers(component.WorkerSpec{Cluster: cluster, Version: v, ControlPlaneEndpoint: "https://10.240.0.40:6443",
			Kubelet: component.KubeletSpec{Labels: map[string]string{"pool": "default"}}, Artifacts: list})(worker)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{artifact.Kubelet, artifact.KubeProxy} {
			t.Run(name+" "+v, func(t *testing.T) {
				checkFlags(t, unitOf(t, m, name+".service"), run(t, program(t, find(t, list, name), ""), "--help"))
			})
		}
		t.Run("kube-proxy configuration "+v, func(t *testing.T) {
			dir := t.TempDir()
			config, defaulted := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "defaulted.yaml")
			write(t, config, content(t, m, component.KubeProxyConfigPath))
			run(t, program(t, find(t, list, artifact.KubeProxy), ""), "--config="+config, "--write-config-to="+defaulted)
			contains(t, defaulted, "mode: nftables", "maxPerCore: 32768", "hostnameOverride: worker-0")
		})
	}
}

func TestContainerdConfiguration(t *testing.T) {
	list, err := catalog(t).WorkerSet(versions[0], "", "", "", true)
	list = set(t, list, err)
	m, err := component.Workers(component.WorkerSpec{Cluster: cluster, Version: versions[0], ControlPlaneEndpoint: "https://10.240.0.40:6443",
		Containerd: component.ContainerdSpec{Config: map[string]any{"plugins": map[string]any{"io.containerd.cri.v1.runtime": map[string]any{"restrict_oom_score_adj": true}}}},
		Artifacts:  list})(worker)
	if err != nil {
		t.Fatal(err)
	}
	containerd := program(t, find(t, list, artifact.Containerd), "bin/containerd")
	config := filepath.Join(t.TempDir(), "config.toml")
	write(t, config, content(t, m, component.ContainerdConfig))
	dump := run(t, containerd, "-c", config, "config", "dump")
	for _, want := range []string{"SystemdCgroup = true", "restrict_oom_score_adj = true", "config_path = '/etc/containerd/certs.d'",
		"sandbox = '" + component.DefaultSandboxImage + "'", "BinaryName = '/usr/local/sbin/runc'", "bin_dirs = ['/opt/cni/bin']"} {
		if !strings.Contains(dump, want) {
			t.Errorf("containerd does not see %s:\n%s", want, dump)
		}
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func contains(t *testing.T, path string, wanted ...string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range wanted {
		if !bytes.Contains(b, []byte(w)) {
			t.Errorf("the program does not see %s:\n%s", w, b)
		}
	}
}
