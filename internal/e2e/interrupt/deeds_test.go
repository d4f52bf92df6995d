package interrupt_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

// TestKilledAtDeeds kills the provider at commands that change machines, in every operation that
// runs any: at each kind of command (each deed, apply, remove) on each role of machine, before it
// starts and after it has ended. The next apply converges: nothing is created twice, no unit is
// left stopped, no node cordoned. K8S_INTERRUPT_DEEDS=1 runs it, =all goes through every single
// command.
func TestKilledAtDeeds(t *testing.T) {
	how := os.Getenv("K8S_INTERRUPT_DEEDS")
	if how == "" {
		t.Skip("make soak PART=kills-deeds goes through all deeds")
	}
	mortal := suite.Mortal(t)
	c := newCluster(t, "deeds")
	mortal.Use(c.WS)
	k := &killer{rng: source(t), cluster: c}
	mortal.DieAt(t, 0, "never")
	start := time.Now()
	c.Apply(t)
	create := mortal.Commands(t)
	k.exists = true
	t.Logf("the creation has %d commands and took %s", len(create), time.Since(start).Round(time.Second))

	killed, kinds, tried := 0, map[string]bool{}, 0
	size := 0
	operations := []struct {
		name   string
		change func(t *testing.T)
	}{
		{"changed settings", c.change},
		{"another instance type", func(t *testing.T) { size++; c.resize(t, size) }},
	}
	for _, op := range operations {
		mortal.DieAt(t, 0, "never")
		op.change(t)
		c.Apply(t)
		commands := mortal.Commands(t)
		for _, n := range choose(commands, how == "all") {
			for _, when := range []string{"before", "after"} {
				t.Run(fmt.Sprintf("%s: %s %s", op.name, when, commands[n-1]), func(t *testing.T) {
					before := look(t, c, true)
					op.change(t)
					mortal.DieAt(t, n, when)
					tried++
					_, err := c.WS.Apply(t.Context())
					var failed *workspace.Error
					if err != nil && !errors.As(err, &failed) {
						t.Fatal(err)
					}
					if err != nil {
						killed++
						kinds[kindOf(commands[n-1])] = true
					}
					mortal.DieAt(t, 0, "never")
					k.converge(t, before)
					c.settledMachines(t)
				})
			}
		}
	}
	t.Logf("figures: killed at %d of %d chosen moments, at %d kinds of commands: %s; the slowest apply in %s",
		killed, tried, len(kinds), strings.Join(slices.Sorted(maps.Keys(kinds)), ", "), k.slowest.Round(100*time.Millisecond))
	c.Destroy(t)
}

// kindOf returns a command without the number of its machine: "controller stop".
func kindOf(command string) string {
	machine, what, _ := strings.Cut(command, " ")
	role, _, _ := strings.Cut(machine, "-")
	return role + " " + what
}

// choose returns which commands to kill at, counted from 1: all, or the first and the last of each
// kind.
func choose(commands []string, all bool) []int {
	first, last := map[string]int{}, map[string]int{}
	var out []int
	for i, c := range commands {
		kind := kindOf(c)
		if first[kind] == 0 {
			first[kind] = i + 1
		}
		last[kind] = i + 1
		if all {
			out = append(out, i+1)
		}
	}
	if !all {
		out = slices.Concat(slices.Collect(maps.Values(first)), slices.Collect(maps.Values(last)))
		slices.Sort(out)
		out = slices.Compact(out)
	}
	return out
}

// resize writes another instance type for one controller and one worker, which are stopped and
// started.
func (c *cluster) resize(t *testing.T, n int) {
	t.Helper()
	types := []string{"t3.large", "t3.small"}
	if err := c.WS.WriteFile("resize_override.tf", fmt.Sprintf(`
resource "k8s_machine" "controller" {
  instance_type = count.index == 0 ? %[1]q : null
}

resource "k8s_machine" "worker" {
  instance_type = count.index == 0 ? %[1]q : null
}
`, types[n%len(types)])); err != nil {
		t.Fatal(err)
	}
}

// settledMachines fails the test unless every unit runs and every node takes pods.
func (c *cluster) settledMachines(t *testing.T) {
	t.Helper()
	for _, m := range []string{"controller-0", "controller-1", "controller-2", "worker-0", "worker-1"} {
		units := "etcd kube-apiserver kube-controller-manager kube-scheduler"
		if strings.HasPrefix(m, "worker") {
			units = "containerd kubelet kube-proxy"
		}
		if _, err := suite.TryConsole(t.Context(), m, "systemctl is-active --quiet "+units); err != nil {
			t.Errorf("%s: a unit is left stopped: %v", m, err)
		}
	}
	harness.Eventually(t, time.Minute, "all nodes take pods", func() error {
		if cordoned := c.Kubectl(t, "get", "nodes", "-o", "jsonpath={.items[?(@.spec.unschedulable)].metadata.name}"); cordoned != "" {
			return errors.New("cordoned: " + cordoned)
		}
		return nil
	})
}
