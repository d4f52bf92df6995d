// Package lifecycle_test follows one cluster of examples/ha-cluster through
// its life: real Terraform installs it with an older release, upgrades it,
// changes its flags, replaces its machines and scales it, while clients go on
// reading and writing through the Elastic IP. How each role does its part is
// tested with the library (rollouttest); here it is about what Terraform's
// order of things makes of it.
package lifecycle_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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

// refused wants a plan or apply to fail with all of the words.
func refused(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("it was not refused; wanted %q", words)
		return
	}
	flat := strings.Join(strings.Fields(strings.ReplaceAll(err.Error(), "│", " ")), " ")
	for _, w := range words {
		if !strings.Contains(flat, w) {
			t.Errorf("the refusal does not say %q:\n%v", w, err)
		}
	}
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

// numbered returns "name-0" to "name-<n-1>".
func numbered(name string, n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("%s-%d", name, i))
	}
	return out
}

// unitStart is when systemd last took a unit down and had it up again, in
// microseconds of the one clock all machines of a lab share.
type unitStart struct{ Down, Up int }

// starts returns the units of the machines by "machine/unit".
func starts(t *testing.T, machines ...string) map[string]unitStart {
	t.Helper()
	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		out = map[string]unitStart{}
	)
	for _, m := range machines {
		wg.Go(func() {
			text, err := suite.Lab(t.Context(), "exec", m, "--", "sh", "-c", `for u in etcd kube-apiserver kube-controller-manager kube-scheduler containerd kubelet kube-proxy haproxy; do
				systemctl is-active -q $u && echo $u $(systemctl show -P ActiveExitTimestampMonotonic $u) $(systemctl show -P ActiveEnterTimestampMonotonic $u); done; true`)
			if err != nil {
				t.Errorf("%s: %v\n%s", m, err, text)
			}
			mu.Lock()
			defer mu.Unlock()
			for line := range strings.Lines(text) {
				var (
					unit string
					at   unitStart
				)
				if n, _ := fmt.Sscan(line, &unit, &at.Down, &at.Up); n == 3 {
					out[m+"/"+unit] = at
				}
			}
		})
	}
	wg.Wait()
	return out
}

// restarted lists the units that were started between the two looks.
func restarted(before, now map[string]unitStart) []string {
	var out []string
	for unit, at := range now {
		if before[unit] != at {
			out = append(out, unit)
		}
	}
	slices.Sort(out)
	return out
}

// onlyRestarted wants exactly these units to have been started since.
func onlyRestarted(t *testing.T, before map[string]unitStart, machines []string, want ...string) map[string]unitStart {
	t.Helper()
	now := starts(t, machines...)
	slices.Sort(want)
	if got := restarted(before, now); !slices.Equal(got, want) {
		t.Errorf("restarted: %q\nwanted: %q", got, want)
	}
	return now
}

// oneByOne wants the units to have been down at different times, in any order,
// and returns when the first went down and the last was up again.
func oneByOne(t *testing.T, now map[string]unitStart, units []string) (first, last int) {
	t.Helper()
	units = slices.Clone(units)
	slices.SortFunc(units, func(a, b string) int { return now[a].Down - now[b].Down })
	for i, u := range units[1:] {
		if now[u].Down < now[units[i]].Up {
			t.Errorf("%s went down at %d, %s was up again only at %d", u, now[u].Down, units[i], now[units[i]].Up)
		}
	}
	return now[units[0]].Down, now[units[len(units)-1]].Up
}

func each(machines []string, unit string) []string {
	var out []string
	for _, m := range machines {
		out = append(out, m+"/"+unit)
	}
	return out
}
