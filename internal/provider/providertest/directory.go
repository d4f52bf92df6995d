package providertest

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6/tf6server"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
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
	machine, _ := Plain(prior).(Values)
	name, _ := machine["name"].(string)
	if Marked(private) {
		name += " replaced"
	}
	return name
}

// Marked reports whether private data say that the machine is replaced.
func Marked(private []byte) bool {
	var entries map[string][]byte
	_ = json.Unmarshal(private, &entries)
	return string(entries["replaced"]) == "true"
}

// Heard returns what was deleted since the last call.
func (l *listener) Heard() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.deleted
	l.deleted = nil
	slices.Sort(out)
	return out
}

// Attach serves the cloud's provider to the Terraform of a directory.
func (d *Directory) Attach(c Cloud) *listener {
	d.t.Helper()
	c.Provider.Environment.Getenv = func(name string) string { return map[string]string{"K8S_SSH_PRIVATE_KEY": c.Key}[name] }
	l := &listener{ProviderServer: provider.Server(c.Provider), schemas: c.Schemas}
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
	d.Env = append(d.Env, "TF_REATTACH_PROVIDERS="+string(text))
	return l
}

// Replace replaces the object as Terraform does, and returns what its deletion said. A tainted
// object is planned without its private state.
func (i *Instance) Replace(config Values, tainted bool) Change {
	i.core.T.Helper()
	var prior []byte
	if !tainted {
		prior = i.Plan(config).Private
	}
	old := *i
	i.State, i.Private = tftypes.NewValue(i.Schema.ValueType(), nil), prior
	created := i.Plan(config)
	*i = old
	deleted := Change{Config: tftypes.NewValue(i.Schema.ValueType(), nil), Private: created.Private}
	deleted.Planned = deleted.Config
	said := i.CarryOut(deleted)
	if len(said.Errors) == 0 {
		i.core.Fatal(i.Apply(created))
	}
	return said
}

// Directory is a working directory of Terraform, with this program as the provider.
type Directory struct {
	t    *testing.T
	Path string
	Env  []string
	Cli  string // terraform if empty
}

// NewDirectory returns a directory with the provider and the given resources.
func NewDirectory(t *testing.T, a *account.Account, resources string) Directory {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"terraform.rc": `provider_installation {
  dev_overrides { "registry.terraform.io/k8s-from-scratch/k8s" = "` + dir + `" }
  direct {}
}`,
		"main.tf": `terraform {
  required_providers { k8s = { source = "registry.terraform.io/k8s-from-scratch/k8s" } }
}
provider "k8s" {
  region     = "us-east-1"
  access_key = "` + account.AccessKey + `"
  secret_key = "` + account.SecretKey + `"
  endpoints = {
    ec2 = "` + a.URL + `"
    s3  = "` + a.URL + `"
    elbv2 = "` + a.URL + `"
    ssm = "` + a.URL + `"
    sts = "` + a.URL + `"
  }
}
` + resources,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(self, filepath.Join(dir, "terraform-provider-k8s")); err != nil {
		t.Fatal(err)
	}
	return Directory{t: t, Path: dir, Env: append(os.Environ(), "TF_CLI_CONFIG_FILE="+filepath.Join(dir, "terraform.rc"), "CHECKPOINT_DISABLE=1")}
}

func (d Directory) Run(args ...string) (string, error) {
	d.t.Helper()
	cmd := exec.CommandContext(d.t.Context(), cmp.Or(d.Cli, "terraform"), append(args, "-no-color")...)
	cmd.Dir, cmd.Env = d.Path, d.Env
	out, err := cmd.CombinedOutput()
	return string(out), err
}
