package provider

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
)

// serveIfPlugin serves the provider if Terraform has started this test program as its plugin.
func serveIfPlugin() {
	if os.Getenv("TF_PLUGIN_MAGIC_COOKIE") == "" {
		return
	}
	if err := Serve(context.Background(), "test", false); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// directory is a working directory of Terraform, with this program as the provider.
type directory struct {
	t    *testing.T
	path string
	env  []string
	cli  string // terraform if empty
}

// newDirectory returns a directory with the provider and the given resources.
func newDirectory(t *testing.T, a *account.Account, resources string) directory {
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
  endpoints {
    ec2 = "` + a.URL + `"
    s3  = "` + a.URL + `"
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
	return directory{t: t, path: dir, env: append(os.Environ(), "TF_CLI_CONFIG_FILE="+filepath.Join(dir, "terraform.rc"), "CHECKPOINT_DISABLE=1")}
}

func (d directory) run(args ...string) (string, error) {
	d.t.Helper()
	cmd := exec.CommandContext(d.t.Context(), cmp.Or(d.cli, "terraform"), append(args, "-no-color")...)
	cmd.Dir, cmd.Env = d.path, d.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestSettledAtTheEnd applies with Terraform and a provider process of its own. When Terraform has
// ended, everything is settled without a refresh: a second state is refused at once.
func TestSettledAtTheEnd(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("terraform"); err != nil {
		t.Skip("there is no terraform in PATH")
	}
	a := account.New(t)
	const resources = `resource "k8s_network" "this" {
  cluster     = "demo"
  admin_cidrs = ["198.51.100.7/32"]
}
resource "k8s_pki" "this" { cluster = "demo" }
`
	mine, theirs := newDirectory(t, a, resources), newDirectory(t, a, resources)
	if out, err := mine.run("apply", "-auto-approve"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := theirs.run("apply", "-auto-approve")
	if words := strings.Join(strings.Fields(strings.ReplaceAll(out, "│", "")), " "); err == nil || strings.Count(words, "is another's") != 2 {
		t.Errorf("the second state: %v\n%s", err, out)
	}
	if out, err := theirs.run("destroy", "-auto-approve"); err != nil || !strings.Contains(out, "No objects need to be destroyed") && !strings.Contains(out, "0 destroyed") {
		t.Errorf("the second state's destroy: %v\n%s", err, out)
	}
	if out, err := mine.run("plan", "-detailed-exitcode"); err != nil {
		t.Errorf("the first state's plan: %v\n%s", err, out)
	}
	if out, err := mine.run("destroy", "-auto-approve"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	a.Empty()
}
