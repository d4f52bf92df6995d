package cluster_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// TestCluster is the main job from apply to destroy, twice. Its steps depend on one another.
func TestCluster(t *testing.T) {
	trace := filepath.Join(suite.Dir, "trace.log")
	c := newCluster(t, "main", suite.CLI)
	// Everything is logged, so that the search for private keys covers everything.
	c.WS.Env = append(c.WS.Env, "TF_LOG=TRACE", "TF_LOG_PROVIDER=TRACE", "TF_LOG_PATH="+trace)
	step := harness.Steps(t)
	step("apply", func(t *testing.T) {
		if _, err := c.WS.Run(t.Context(), "plan", "-out=first.tfplan", "-no-color"); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		c.Apply(t, "first.tfplan")
		took := time.Since(start)
		c.Learn(t)
		release := strings.TrimSpace(c.Sh(t, "worker-0", `. /etc/os-release && echo "$VERSION_ID"`))
		t.Logf("figures: Debian %s: six machines applied in %.1f s", release, took.Seconds())
		if want := cmp.Or(os.Getenv("K8S_E2E_DEBIAN"), debian); release != want {
			t.Errorf("the machines run Debian %s, not %s", release, want)
		}
	})
	step("second plan is empty", c.NoChanges)
	step("downloads", c.testDownloads)
	step("nodes and API servers", func(t *testing.T) { c.testNodes(t, 3, 2) })
	step("identity of nodes", c.testIdentity)
	step("keepalives", c.testKeepalives)
	idle := c.beginIdle(t)
	step("sizes of nodes", c.testSizes)
	step("status agrees", c.testStatus)
	step("your first cluster", c.testFirstCluster)
	step("what is where", c.testWhatIsWhere)
	step("workload", c.testWorkload)
	step("pod egress", func(t *testing.T) { c.PodEgress(t, "worker-0", "worker-1") })
	step("idle connections", func(t *testing.T) { c.testIdle(t, idle) })
	step("resolver", c.testResolver)
	step("security", c.testSecurity)
	step("failures", c.testFailures)
	step("host key", c.testHostKey)
	step("bad input", c.testBadInput)
	step("empty environment", func(t *testing.T) {
		for _, kv := range c.WS.Env {
			if strings.HasPrefix(kv, "HOME=") {
				t.Fatalf("the environment has %s", kv)
			}
		}
	})
	step("more memory than a node has", c.testOutOfMemory) // it may evict pods
	var secrets []string
	step("private keys", func(t *testing.T) { secrets = c.privateMaterial(t) })
	step("destroy names leftovers", c.testLeftovers)
	step("destroy leaves nothing", c.Destroy)
	step("the policies have the IAM actions", c.testIAM)
	step("no private key in state, plan or log", func(t *testing.T) {
		plan, err := c.WS.Run(t.Context(), "show", "-json", "first.tfplan")
		if err != nil {
			t.Fatal(err)
		}
		texts := map[string]string{"plan JSON": plan, "TRACE log": readAll(t, trace), "command log": readAll(t, filepath.Join(suite.Dir, "main.log"))}
		states, err := filepath.Glob(filepath.Join(c.WS.Dir, "terraform.tfstate*"))
		if err != nil || len(states) == 0 {
			t.Fatalf("no state files: %v", err)
		}
		for _, s := range states {
			texts[filepath.Base(s)] = readAll(t, s)
		}
		for name, text := range texts {
			for _, secret := range secrets {
				if strings.Contains(text, secret) {
					t.Errorf("%s holds a line of a private key", name)
					break
				}
			}
			if strings.Contains(text, "PRIVATE KEY-----") {
				i := strings.Index(text, "PRIVATE KEY-----")
				t.Errorf("%s holds a PEM private key at offset %d", name, i)
			}
		}
	})
}

// alone is the example whose only controller is the address of the cluster. The load balancer is
// there and nobody uses it. Two flags are given in other ways than by one value.
const alone = `
resource "k8s_control_plane" "this" {
  lb = null
  extra_args = {
    kube_apiserver = { profiling = null, service-account-issuer = ["https://kubernetes.default.svc.cluster.local", "https://other.example.com"] }
  }
}

output "endpoint" {
  value = k8s_control_plane.this.ref.endpoint
}
`

// TestAgain applies again after a destroy, with OpenTofu, fewer machines and no load balancer: the
// main job must not depend on the CLI, or on what an earlier cluster left behind. TestCluster has shown an
// installation, so these machines boot the prepared image.
func TestAgain(t *testing.T) {
	tofu, err := suite.OpenTofu(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, "tofu", tofu)
	if err := c.WS.WriteFile("small.auto.tfvars", fmt.Sprintf("controllers = 1\nworkers = 1\nami = %q\n", suite.Prepared())); err != nil {
		t.Fatal(err)
	}
	if err := c.WS.WriteFile("alone_override.tf", alone); err != nil {
		t.Fatal(err)
	}
	c.Apply(t)
	c.Learn(t)
	c.NoChanges(t)
	if unit := c.Sh(t, "controller-0", "cat /etc/systemd/system/kube-apiserver.service"); strings.Contains(unit, "--profiling") || strings.Count(unit, "--service-account-issuer=") != 2 {
		t.Errorf("the flags are not those of the configuration:\n%s", unit)
	}
	c.testNodes(t, 1, 1)
	c.testExtras(t)
	c.testReplaced(t)
	c.Destroy(t)
}

// testHostKey replaces a machine's SSH host key; the provider must refuse it.
func (c *cluster) testHostKey(t *testing.T) {
	c.Sh(t, "worker-1", `cd /etc/ssh && cp -p ssh_host_ed25519_key kept && cp -p ssh_host_ed25519_key.pub kept.pub && rm ssh_host_ed25519_key && ssh-keygen -q -t ed25519 -N '' -f ssh_host_ed25519_key && systemctl reload ssh`)
	_, err := c.TrySh(t.Context(), "worker-1", "true")
	if err == nil {
		t.Fatal("the test itself accepted the foreign host key")
	}
	_, text, err := c.WS.Plan(t.Context())
	said := text
	if err != nil {
		said += err.Error()
	}
	harness.Says(t, said, "host key", "worker-1")
	// The pinned key is restored through the machine's console.
	suite.Console(t, "worker-1", "cd /etc/ssh && mv kept ssh_host_ed25519_key && mv kept.pub ssh_host_ed25519_key.pub && systemctl reload ssh")
	c.NoChanges(t)
}

// testBadInput checks that each mistake is refused by the plan, on its attribute.
func (c *cluster) testBadInput(t *testing.T) {
	base := map[string]string{}
	for _, f := range []string{"main.tf", "variables.tf", "versions.tf"} {
		base[f] = readAll(t, filepath.Join(suite.Root, "examples", "ha-cluster", f))
	}
	ws := suite.Workspace(t, "bad-input", suite.CLI, filepath.Join(suite.Root, "examples", "ha-cluster"))
	for _, bad := range []struct {
		name, old, new string
		attribute      string // in the source excerpt of the error
		words          string
	}{
		{"overlapping ranges", `lb = k8s_lb.this.ref`, "lb = k8s_lb.this.ref\n  service_cidr = \"10.200.4.0/24\"", "service_cidr", "overlap"},
		{"non-canonical CIDR", `admin_cidrs = var.admin_cidrs`, `admin_cidrs = ["198.51.100.7/24"]`, "admin_cidrs", "198.51.100.0/24"},
		{"even member count", `hosts = k8s_machine.controller[*].host` + "\n  pki = k8s_pki.this.ref", `hosts = slice(k8s_machine.controller[*].host, 0, 2)` + "\n  pki = k8s_pki.this.ref", "hosts", "use 1, 3, 5 or 7"},
		{"duplicate host", `hosts = k8s_machine.worker[*].host`, `hosts = [k8s_machine.worker[0].host, k8s_machine.worker[0].host]`, "hosts", "Duplicate host"},
		{"pod CIDR outside the range", `cidrsubnet("10.200.0.0/16", 8, count.index)`, `cidrsubnet("10.201.0.0/16", 8, count.index)`, "hosts", "outside"},
		{"workers as controllers", `hosts = k8s_machine.controller[*].host` + "\n  pki = k8s_pki.this.ref", `hosts = [k8s_machine.worker[0].host]` + "\n  pki = k8s_pki.this.ref", "hosts", "has the role worker"},
		{"balancer of other machines", `controllers = k8s_machine.controller[*].host`, `controllers = [k8s_machine.controller[0].host]`, "lb", "are not this control plane's hosts"},
		{"flag of the provider", `lb = k8s_lb.this.ref`, "lb = k8s_lb.this.ref\n  extra_args = { kube_apiserver = { etcd-servers = \"https://10.0.0.1:2379\" } }", "extra_args", "the provider sets it"},
		{"unsupported version", `version = var.kubernetes_version`, `version = "1.20.0"`, "version", "1.20"},
		{"malformed version", `version = var.kubernetes_version`, `version = "latest"`, "version", "latest"},
		{"kubelet newer than API server", `hosts = k8s_machine.worker[*].host`, "hosts = k8s_machine.worker[*].host\n  version = \"1.37.1\"", "version", "newer"},
		{"no admin_cidrs", `admin_cidrs = var.admin_cidrs`, `admin_cidrs = []`, "admin_cidrs", "at least 1"},
		{"unknown key store", `resource "k8s_pki" "this" {`, "resource \"k8s_pki\" \"this\" {\n  key_store = \"vault\"", "key_store", "vault"},
		{"bad duration", `resource "k8s_pki" "this" {`, "resource \"k8s_pki\" \"this\" {\n  ca_validity = \"ten years\"", "ca_validity", "duration"},
	} {
		t.Run(bad.name, func(t *testing.T) {
			old := regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(bad.old), " ", " +")) // however it is aligned
			at := old.FindStringIndex(base["main.tf"])
			if at == nil {
				t.Fatalf("the example has no %q any more", bad.old)
			}
			if err := os.WriteFile(filepath.Join(ws.Dir, "main.tf"), []byte(base["main.tf"][:at[0]]+bad.new+base["main.tf"][at[1]:]), 0o644); err != nil {
				t.Fatal(err)
			}
			_, _, err := ws.Plan(t.Context())
			harness.Refused(t, err, bad.attribute, bad.words)
		})
	}
	if err := suite.Control(t.Context(), "GET", "/_lab/state", nil, nil); err != nil {
		t.Fatal(fmt.Errorf("the local EC2 does not answer any more: %w", err))
	}
}
