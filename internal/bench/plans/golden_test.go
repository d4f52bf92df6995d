package plans

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/release"
)

var update = flag.Bool("update", false, "write the golden files")

// planned is a change of the configuration: what an override file says, and the arguments of the plan.
type planned struct {
	name, override string
	args           []string
}

func pool(arguments string) string {
	return "resource \"k8s_worker_pool\" \"this\" {\n" + arguments + "\n}\n"
}

func controlPlane(arguments string) string {
	return "resource \"k8s_control_plane\" \"this\" {\n" + arguments + "\n}\n"
}

// changes are the changes whose plans are golden files. Each is planned alone, on a cluster that is
// as wanted.
var changes = []planned{
	{name: "api-server-flag", override: controlPlane(`extra_args = { kube_apiserver = { max-requests-inflight = "800" } }`)},
	{name: "audit-policy", override: controlPlane(`audit_policy = yamlencode({
  apiVersion = "audit.k8s.io/v1", kind = "Policy", rules = [{ level = "Metadata" }]
})`)},
	{name: "admission-plugin", override: controlPlane(`admission_plugins = {
  PodSecurity = { apiVersion = "pod-security.admission.config.k8s.io/v1", kind = "PodSecurityConfiguration", defaults = { enforce = "baseline" } }
}`)},
	{name: "kubelet-field", override: pool(`kubelet_config = { maxPods = 60 }`)},
	{name: "kube-proxy-field", override: pool(`kube_proxy_config = { conntrack = { maxPerCore = 65536 } }`)},
	{name: "containerd-field", override: pool(`containerd_config = { plugins = { "io.containerd.cri.v1.images" = { max_concurrent_downloads = 5 } } }`)},
	{name: "registry-mirror", override: pool(`registries = { "docker.io" = { mirrors = [{ url = "https://mirror.example.com/hunter2", user = "puller", password_wo = "hunter2", password_wo_version = 1 }] } }`)},
	{name: "etcd-flag", override: "resource \"k8s_etcd_cluster\" \"this\" {\nextra_args = { etcd = { snapshot-count = \"20000\" } }\n}\n"},
	{name: "check-interval", override: "resource \"k8s_lb\" \"this\" {\ncheck_interval = \"2s\"\n}\n"},
	{name: "new-worker", args: []string{"-var=workers=4"}},
	{name: "upgrade", override: controlPlane(`version = "1.37.0"`) + pool(`version = "1.37.0"`)},
	{name: "renamed-pool", override: pool(`name = "general"`)},
}

// damage is something that is changed on a machine.
type damage struct {
	name, machine string
	do            func(root string) error
}

// edit replaces text in a file. Its mode stays.
func edit(file, from, to string) func(string) error {
	return func(root string) error {
		path := filepath.Join(root, file)
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !strings.Contains(string(content), from) {
			return fmt.Errorf("%s does not contain %q", file, from)
		}
		return os.WriteFile(path, []byte(strings.Replace(string(content), from, to, 1)), 0o600)
	}
}

func remove(file string) func(string) error {
	return func(root string) error { return os.Remove(filepath.Join(root, file)) }
}

var damages = []damage{
	{"unit-edited", "worker-0", edit("etc/systemd/system/kubelet.service", "  --config=", "  --v=6 \\\n  --config=")},
	{"config-edited", "lb-0", edit("etc/haproxy/haproxy.cfg", "inter 1s", "inter 30s")},
	{"unit-stopped", "controller-0", func(root string) error {
		return os.WriteFile(filepath.Join(root, "run/units/active.kube-scheduler.service"), []byte("inactive\n"), 0o600)
	}},
	{"file-removed", "worker-1", remove("etc/cni/net.d/10-bridge.conflist")},
	{"certificate-replaced", "worker-2", func(root string) error {
		other, err := os.ReadFile(filepath.Join(root, "etc/kubernetes/pki/kube-proxy.crt"))
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(root, "etc/kubernetes/pki/kubelet.crt"), other, 0o600)
	}},
	{"mode-changed", "controller-0", func(root string) error {
		return os.Chmod(filepath.Join(root, "etc/kubernetes/kube-scheduler.kubeconfig"), 0o644) //nolint:gosec // the damage
	}},
	{"package-removed", "lb-0", remove("var/lib/dpkg/installed/haproxy")},
	{"sysctl-changed", "worker-1", func(root string) error {
		return os.WriteFile(filepath.Join(root, "proc/sys/net/ipv4/ip_forward"), []byte("0\n"), 0o600)
	}},
	{"kubeconfig-edited", "worker-0", edit("etc/kubernetes/kubelet.kubeconfig", "6444", "6443")},
	{"binary-replaced", "worker-2", func(root string) error {
		return os.WriteFile(filepath.Join(root, "usr/local/bin/kube-proxy"), []byte("#!/bin/sh\nexit 0\n"), 0o600)
	}},
}

// TestPlans plans changes of the configuration, and damaged machines, with Terraform, and compares what it prints.
func TestPlans(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	var log strings.Builder
	options := o
	options.Log, options.Kubernetes = &log, true
	c, err := newCluster(ctx, t.TempDir(), options)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.site.fleet.Close() }()
	if err := c.addRelease("1.37.0"); err != nil {
		t.Fatal(err)
	}
	if err := c.grow(ctx, 3); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	for _, p := range changes {
		t.Run(p.name, func(t *testing.T) {
			if err := c.ws.WriteFile("change_override.tf", p.override); err != nil {
				t.Fatal(err)
			}
			_, text, err := c.ws.Plan(ctx, append([]string{"-refresh=false", "-compact-warnings"}, p.args...)...)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "change-"+p.name, text)
		})
	}
	if err := os.Remove(filepath.Join(c.ws.Dir, "change_override.tf")); err != nil {
		t.Fatal(err)
	}
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			if err := d.do(c.site.named(d.machine).Root); err != nil {
				t.Fatal(err)
			}
		})
	}
	_, text, err := c.ws.Plan(ctx)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "damages", text)
}

// addRelease makes checksums of another Kubernetes release known, which is only planned.
func (c *cluster) addRelease(version string) error {
	sums, err := os.ReadFile(c.sums)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(sums)) {
		if _, path, ok := strings.Cut(line, "  "); ok && strings.Contains(path, "/"+release.KubernetesVersion+"/") {
			path = strings.Replace(path, release.KubernetesVersion, "v"+version, 1)
			sums = append(sums, fmt.Sprintf("%x  %s", sha256.Sum256([]byte(path)), path)...)
		}
	}
	return os.WriteFile(c.sums, sums, 0o600)
}

// vary lists what differs between runs or computers, and what replaces it.
var vary = []struct {
	shape *regexp.Regexp
	to    string
}{
	{regexp.MustCompile(`(?s)^.*?\n(Terraform|OpenTofu) will perform`), "Terraform will perform"},
	{regexp.MustCompile(`(?s)\n─{20,}\n.*$`), "\n"},
	{regexp.MustCompile(`\b(sg|subnet|vpc)-[0-9a-f]{17}`), "$1-id"},
	{regexp.MustCompile(`\b198\.18\.[0-9.]+`), "198.18.0.1"},
}

// digests are SHA-256, also shortened ones.
var digests = regexp.MustCompile(`\b[0-9a-f]{64}\b|\b[0-9a-f]{12}\.\.`)

// normal returns a plan without what varies. Digests are numbered.
func normal(text string) string {
	for _, v := range vary {
		text = v.shape.ReplaceAllString(text, v.to)
	}
	numbers := map[string]int{}
	return digests.ReplaceAllStringFunc(text, func(digest string) string {
		if numbers[digest] == 0 {
			numbers[digest] = len(numbers) + 1
		}
		return fmt.Sprintf("digest-%d", numbers[digest])
	})
}

func golden(t *testing.T, name, text string) {
	t.Helper()
	text = normal(text)
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("the plan differs from %s, which -update writes:\n%s", file, text)
	}
}
