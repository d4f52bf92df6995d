package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6/tf6server"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
)

// listener is a server that notes what Terraform says when it deletes machines.
type listener struct {
	tfprotov6.ProviderServer
	schemas *tfprotov6.GetProviderSchemaResponse

	mu      sync.Mutex
	deleted []string // "worker-0" for good, "worker-0 replaced"
}

func (l *listener) ApplyResourceChange(ctx context.Context, req *tfprotov6.ApplyResourceChangeRequest) (*tfprotov6.ApplyResourceChangeResponse, error) {
	kind := l.schemas.ResourceSchemas[req.TypeName].ValueType()
	planned, err := req.PlannedState.Unmarshal(kind)
	if err != nil {
		return nil, err
	}
	if req.TypeName == "k8s_machine" && planned.IsNull() {
		prior, err := req.PriorState.Unmarshal(kind)
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		l.deleted = append(l.deleted, deletion(prior, req.PlannedPrivate))
		l.mu.Unlock()
	}
	return l.ProviderServer.ApplyResourceChange(ctx, req)
}

// deletion says which machine is deleted, and whether it is marked as replaced.
func deletion(prior tftypes.Value, private []byte) string {
	machine, _ := plain(prior).(values)
	name, _ := machine["name"].(string)
	if marked(private) {
		name += " replaced"
	}
	return name
}

// marked reports whether private data say that the machine is replaced.
func marked(private []byte) bool {
	var entries map[string][]byte
	_ = json.Unmarshal(private, &entries)
	return string(entries[replacedKey]) == "true"
}

// heard returns what was deleted since the last call.
func (l *listener) heard() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.deleted
	l.deleted = nil
	slices.Sort(out)
	return out
}

// attach serves the cloud's provider to the Terraform of a directory.
func (d *directory) attach(c cloud) *listener {
	d.t.Helper()
	c.provider.environment.getenv = func(name string) string { return map[string]string{"K8S_SSH_PRIVATE_KEY": c.key}[name] }
	l := &listener{ProviderServer: providerserver.NewProtocol6(c.provider)(), schemas: c.schemas}
	ctx, cancel := context.WithCancel(context.Background())
	attached, closed := make(chan *plugin.ReattachConfig), make(chan struct{})
	go func() {
		_ = tf6server.Serve("registry.terraform.io/k8s-from-scratch/k8s", func() tfprotov6.ProviderServer { return l }, tf6server.WithDebug(ctx, attached, closed),
			tf6server.WithLoggingSink(d.t), tf6server.WithGoPluginLogger(hclog.NewNullLogger()))
	}()
	at := <-attached
	d.t.Cleanup(func() { cancel(); <-closed })
	text, err := json.Marshal(map[string]any{"registry.terraform.io/k8s-from-scratch/k8s": map[string]any{
		"Protocol": string(at.Protocol), "ProtocolVersion": at.ProtocolVersion, "Pid": at.Pid, "Test": true,
		"Addr": map[string]string{"Network": at.Addr.Network(), "String": at.Addr.String()},
	}})
	if err != nil {
		d.t.Fatal(err)
	}
	d.env = append(d.env, "TF_REATTACH_PROVIDERS="+string(text))
	return l
}

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
	c := newCloud(t)
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
	d := newDirectory(t, c.account, resources)
	d.cli = cli
	l := d.attach(c)
	run := func(args ...string) {
		t.Helper()
		if out, err := d.run(args...); err != nil {
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
		if got := l.heard(); !slices.Equal(got, step.want) {
			t.Errorf("%s: deleted %q, wanted %q", step.name, got, step.want)
		}
	}
}

// replace replaces the object as Terraform does, and returns what its deletion said. A tainted
// object is planned without its private state.
func (i *instance) replace(config values, tainted bool) change {
	i.core.t.Helper()
	var prior []byte
	if !tainted {
		prior = i.plan(config).private
	}
	old := *i
	i.state, i.private = tftypes.NewValue(i.schema.ValueType(), nil), prior
	created := i.plan(config)
	*i = old
	deleted := change{config: tftypes.NewValue(i.schema.ValueType(), nil), private: created.private}
	deleted.planned = deleted.config
	said := i.carryOut(deleted)
	if len(said.errors) == 0 {
		i.core.fatal(i.apply(created))
	}
	return said
}

// TestReplacementFails: what a failed deletion leaves in the state does not make a replacement of
// a later destruction, and neither does what a creation stores.
func TestReplacementFails(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, worker := c.instance("k8s_network"), c.instance("k8s_machine")
	network.must(networkConfig())
	config := workerConfig(network)
	worker.must(config)
	if marked(worker.private) {
		t.Error("a new machine is marked")
	}
	if said := worker.replace(config, false); said.failure() != "" || marked(worker.private) {
		t.Errorf("replaced: %s, marked %t", said.failure(), marked(worker.private))
	}
	if said := worker.replace(config, true); said.failure() != "" || marked(worker.private) {
		t.Errorf("replaced after a taint: %s, marked %t", said.failure(), marked(worker.private))
	}
	c.account.Fault(fault.Fault{Kind: fault.Fail, Action: "TerminateInstances", Code: "UnauthorizedOperation", Message: "Not you.", Status: 403})
	if said := worker.replace(config, false); !strings.Contains(said.failure(), "UnauthorizedOperation") || worker.state.IsNull() {
		t.Fatalf("it was replaced: %s", said.failure())
	}
	if marked(worker.private) {
		t.Error("a machine that was not deleted is marked")
	}
	if ch := worker.plan(nil); marked(ch.private) {
		t.Error("the plan of its destruction is marked")
	}
	worker.private = []byte(fmt.Sprintf(`{"%s":"dHJ1ZQ=="}`, replacedKey)) // as if the mark had been left
	if !marked(worker.private) {
		t.Fatal("the test does not know how private data look")
	}
	for name, config := range map[string]values{"destroy": nil, "change": with(config, values{"tags": values{"a": "b"}})} {
		if ch := worker.plan(config); marked(ch.private) {
			t.Errorf("the plan of a %s is marked", name)
		}
	}
}
