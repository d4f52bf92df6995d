package machines_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestReplacedWithTerraform: the deletion of a machine says whether another one follows, in every
// way in which Terraform and OpenTofu replace and destroy.
func TestReplacedWithTerraform(t *testing.T) {
	t.Parallel()
	cache, _ := os.UserCacheDir()
	found := 0
	for name, at := range map[string]string{"terraform": "terraform", "tofu": "tofu", "the lab's tofu": filepath.Join(cache, "k8s-lab", "tools", "tofu")} {
		cli, err := exec.LookPath(at)
		if err != nil {
			continue
		}
		found++
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			replacing(t, cli)
		})
	}
	if found == 0 {
		t.Skip("there is neither terraform nor tofu")
	}
}

func replacing(t *testing.T, cli string) {
	t.Helper()
	c := providertest.NewCloud(t)
	const resources = `variable "user" { default = "admin" }
variable "workers" { default = 3 }
resource "k8s_network" "this" {
  cluster     = "demo"
  admin_cidrs = ["198.51.100.7/32"]
}
resource "k8s_machine" "worker" {
  count   = var.workers
  network = k8s_network.this.ref
  name    = "worker-${count.index}"
  role    = "worker"
  user    = var.user
}
`
	d := providertest.NewDirectory(t, c.Account, resources)
	d.Cli = cli
	l := d.Attach(c)
	run := func(args ...string) {
		t.Helper()
		if out, err := d.Run(args...); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	apply := func(args ...string) { t.Helper(); run(append([]string{"apply", "-auto-approve"}, args...)...) }
	for _, step := range []struct {
		name string
		do   func()
		want []string
	}{
		{"create", func() { apply() }, nil},
		{"-replace", func() { apply("-replace=k8s_machine.worker[0]") }, []string{"worker-0 replaced"}},
		{"-replace, from a plan file", func() {
			run("plan", "-out=plan.bin", "-replace=k8s_machine.worker[1]")
			run("apply", "plan.bin")
		}, []string{"worker-1 replaced"}},
		{"another user", func() { apply("-var=user=other") }, []string{"worker-0 replaced", "worker-1 replaced", "worker-2 replaced"}},
		{"tainted", func() {
			run("taint", "k8s_machine.worker[2]")
			apply("-var=user=other")
		}, []string{"worker-2 replaced"}},
		{"one less", func() { apply("-var=user=other", "-var=workers=2") }, []string{"worker-2"}},
		{"destroy one", func() { run("destroy", "-auto-approve", "-var=workers=2", "-target=k8s_machine.worker[1]") }, []string{"worker-1"}},
		{"tainted and destroyed", func() {
			run("taint", "k8s_machine.worker[0]")
			run("destroy", "-auto-approve")
		}, []string{"worker-0"}},
	} {
		step.do()
		if got := l.Heard(); !slices.Equal(got, step.want) {
			t.Errorf("%s: deleted %q, wanted %q", step.name, got, step.want)
		}
	}
}

// TestReplacementFails: neither what a failed deletion leaves in the state nor what a creation
// stores makes a later destruction count as a replacement.
func TestReplacementFails(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	config := providertest.WorkerConfig(network)
	worker.Must(config)
	if providertest.Marked(worker.Private) {
		t.Error("a new machine is marked")
	}
	if said := worker.Replace(config, false); said.Failure() != "" || providertest.Marked(worker.Private) {
		t.Errorf("replaced: %s, marked %t", said.Failure(), providertest.Marked(worker.Private))
	}
	if said := worker.Replace(config, true); said.Failure() != "" || providertest.Marked(worker.Private) {
		t.Errorf("replaced after a taint: %s, marked %t", said.Failure(), providertest.Marked(worker.Private))
	}
	c.Account.Fault(fault.Fault{Kind: fault.Fail, Action: "TerminateInstances", Code: "UnauthorizedOperation", Message: "Not you.", Status: 403})
	if said := worker.Replace(config, false); !strings.Contains(said.Failure(), "UnauthorizedOperation") || worker.State.IsNull() {
		t.Fatalf("it was replaced: %s", said.Failure())
	}
	if providertest.Marked(worker.Private) {
		t.Error("a machine that was not deleted is marked")
	}
	if ch := worker.Plan(nil); providertest.Marked(ch.Private) {
		t.Error("the plan of its destruction is marked")
	}
	worker.Private = []byte(`{"replaced":"dHJ1ZQ=="}`) // as if the mark had been left
	if !providertest.Marked(worker.Private) {
		t.Fatal("private data have a form that the test does not know")
	}
	for name, config := range map[string]providertest.Values{"destroy": nil, "change": providertest.With(config, providertest.Values{"tags": providertest.Values{"a": "b"}})} {
		if ch := worker.Plan(config); providertest.Marked(ch.Private) {
			t.Errorf("the plan of a %s is marked", name)
		}
	}
}
