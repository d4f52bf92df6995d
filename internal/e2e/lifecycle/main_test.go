// Package lifecycle_test follows one cluster of examples/ha-cluster through
// its life: real Terraform installs it with an older release, upgrades it,
// changes its flags, replaces its machines and scales it, while clients go on
// reading and writing through the Elastic IP. How each role does its part is
// tested with the library (rollouttest); here it is about what Terraform's
// order of things makes of it.
package lifecycle_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

const (
	before = "1.35.4"
	after  = harness.KubernetesVersion
)

var suite *harness.Suite

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, func(s *harness.Suite) { suite = s }, "--kubernetes", "v"+after+",v"+before))
}

// cluster is the cluster under test and what is configured of it.
type cluster struct {
	ws         *workspace.Workspace
	main       string // the example's main.tf
	vars       map[string]any
	kubeconfig string
	endpoint   string
}

// set changes the configuration's variables.
func (c *cluster) set(t *testing.T, vars map[string]any) {
	t.Helper()
	for k, v := range vars {
		c.vars[k] = v
	}
	b, err := json.Marshal(c.vars)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.ws.WriteFile("test.auto.tfvars.json", string(b)); err != nil {
		t.Fatal(err)
	}
}

// controlPlaneArguments gives the control plane more arguments than the example does.
func (c *cluster) controlPlaneArguments(t *testing.T, lines string) {
	t.Helper()
	const at = "  lb       = k8s_lb.this.ref\n"
	if strings.Count(c.main, at) != 1 {
		t.Fatalf("the example has no %q any more", at)
	}
	if err := c.ws.WriteFile("main.tf", strings.Replace(c.main, at, at+lines, 1)); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) apply(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.ws.Apply(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (c *cluster) noChanges(t *testing.T) {
	t.Helper()
	changes, text, err := c.ws.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if changes {
		t.Fatalf("the plan is not empty:\n%s", text)
	}
}

func (c *cluster) learn(t *testing.T) {
	t.Helper()
	if err := c.ws.Output(t.Context(), "endpoint", &c.endpoint); err != nil {
		t.Fatal(err)
	}
	c.kubeconfig = filepath.Join(c.ws.Dir, "kubeconfig")
	cmd := exec.CommandContext(t.Context(), filepath.Join(suite.Bin, "k8s-kubeconfig"), "--cluster", "demo", "--endpoint", c.endpoint, "--output", c.kubeconfig)
	cmd.Env = suite.Env()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("k8s-kubeconfig: %v\n%s", err, out)
	}
}

func (c *cluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := suite.Kubectl(t.Context(), c.kubeconfig, nil, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// sh runs a script on a machine's console.
func sh(t *testing.T, machine, script string) string {
	t.Helper()
	out, err := suite.Lab(t.Context(), "exec", machine, "--", "sh", "-c", script)
	if err != nil {
		t.Fatalf("%s: %v\n%s", machine, err, out)
	}
	return out
}

// onlyRestarted wants exactly these units to have been started since.
func onlyRestarted(t *testing.T, before map[string]harness.Unit, machines []string, want ...string) map[string]harness.Unit {
	t.Helper()
	now := suite.Units(t, machines...)
	slices.Sort(want)
	if got := harness.Restarted(before, now); !slices.Equal(got, want) {
		t.Errorf("restarted: %q\nwanted: %q", got, want)
	}
	return now
}
