package topologies_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/recorder"
)

// TestEtcdMachines builds a cluster with etcd on machines of its own, and moves etcd to the controllers and
// back, one member at a time, while clients write and read.
func TestEtcdMachines(t *testing.T) {
	inSoak(t)
	c := open(t, "etcd-machines")
	step := harness.Steps(t)
	own, stacked := harness.Numbered("etcd", 3), harness.Numbered("controller", 3)
	step("apply", func(t *testing.T) {
		c.Apply(t)
		c.Learn(t)
	})
	step("second plan is empty", c.NoChanges)
	step("members are on their own machines", func(t *testing.T) {
		members(t, c, own)
		if out := c.Sh(t, "worker-0", "curl -sk -m 3 https://10.240.0.15:2379/health; echo $?"); strings.TrimSpace(out) != "28" {
			t.Errorf("a worker reaches etcd: %s", out)
		}
	})
	step("damage is found and repaired", func(t *testing.T) {
		c.Sh(t, "etcd-1", "systemctl stop etcd; sed -i 's/^Description=.*/Description=damaged/' /etc/systemd/system/etcd.service")
		changes, text, err := c.WS.Plan(t.Context())
		if err != nil || !changes {
			t.Fatalf("changes %t, %v", changes, err)
		}
		harness.Says(t, text, "module.cluster.k8s_etcd_cluster.this", "etcd-1", "etcd.service")
		c.Apply(t)
		c.NoChanges(t)
	})
	step("a machine is replaced", func(t *testing.T) {
		c.Apply(t, "-replace=module.cluster.k8s_machine.etcd[2]")
		c.NoChanges(t)
		c.LearnMachines(t)
		members(t, c, own)
	})
	step("all members at once are refused", func(t *testing.T) {
		set(t, c, own, stacked)
		_, _, err := c.WS.Plan(t.Context())
		harness.Refused(t, err, "No member with the cluster's data would stay")
	})
	for _, move := range []struct {
		name     string
		from, to []string
	}{{"to the controllers", own, stacked}, {"to machines of its own", stacked, own}} {
		step("etcd moves "+move.name+" under load", func(t *testing.T) {
			result := recorded(t, c, func() {
				for n := range move.to {
					set(t, c, own, append(append([]string{}, move.to[:n+1]...), move.from[n+1:]...))
					c.Apply(t)
				}
			})
			t.Logf("figures: etcd %s: %s", move.name, result)
			if !result.Whole() {
				t.Errorf("acknowledged writes are lost, or the history is not linearizable: %s", result)
			}
			members(t, c, move.to)
			c.NoChanges(t)
		})
	}
	step("destroy leaves nothing", c.Destroy)
}

// set writes the machines with members into the configuration.
func set(t *testing.T, c *harness.Cluster, machines, names []string) {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(suite.Root, "examples", "etcd-machines", "main.tf"))
	if err != nil {
		t.Fatal(err)
	}
	number := fmt.Sprintf("etcd_machines = %d\n", len(machines))
	main := strings.Replace(string(source), number, number+fmt.Sprintf("  etcd_members  = [\"%s\"]\n", strings.Join(names, `", "`)), 1)
	if err := c.WS.WriteFile("main.tf", main); err != nil {
		t.Fatal(err)
	}
}

// members checks on which machines etcd has its members.
func members(t *testing.T, c *harness.Cluster, want []string) {
	t.Helper()
	out := c.Sh(t, want[0], harness.Etcdctl+"member list")
	for _, name := range want {
		if !strings.Contains(out, ", "+name+", ") {
			t.Errorf("%s has no member:\n%s", name, out)
		}
	}
	if n := strings.Count(out, "started"); n != len(want) {
		t.Errorf("%d members, wanted %d:\n%s", n, len(want), out)
	}
}

// recorded runs act while clients write and read.
func recorded(t *testing.T, c *harness.Cluster, act func()) (result recorder.Result) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	registers, err := recorder.NewConfigMaps(t.Context(), config, fmt.Sprintf("move-%d", time.Now().Unix()), recorder.Usual.Registers)
	if err != nil {
		t.Fatal(err)
	}
	record := recorder.Start(t.Context(), registers, recorder.Usual)
	defer func() { // also after t.FailNow
		result, _ = record.End(t.Context(), time.Minute)
	}()
	act()
	return result
}
