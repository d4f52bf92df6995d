package provider_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/semver"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestImportByIdentity applies, forgets the state, and imports everything again by identities, with each CLI here that
// knows them: Terraform and OpenTofu since 1.12.
func TestImportByIdentity(t *testing.T) {
	t.Parallel()
	cache, _ := os.UserCacheDir()
	found := false
	for name, at := range map[string]string{"terraform": "terraform", "tofu": "tofu", "the lab's tofu": filepath.Join(cache, "k8s-lab", "tools", "tofu")} {
		cli, err := exec.LookPath(at)
		if err != nil {
			continue
		}
		var is struct {
			Version string `json:"terraform_version"`
		}
		cmd := exec.CommandContext(t.Context(), cli, "version", "-json")
		cmd.Env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+os.DevNull)
		out, err := cmd.Output()
		if err == nil {
			err = json.Unmarshal(out, &is)
		}
		if err != nil {
			t.Fatal(name, err)
		}
		if semver.Compare("v"+is.Version, "v1.12.0") < 0 {
			continue
		}
		found = true
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			importing(t, cli)
		})
	}
	if !found {
		t.Skip("there is no CLI that knows identities")
	}
}

func importing(t *testing.T, cli string) {
	t.Helper()
	c := providertest.NewCloud(t)
	const resources = `
resource "k8s_network" "this" {
  cluster     = "demo"
  admin_cidrs = ["198.51.100.7/32"]
}
resource "k8s_volume" "this" {
  name    = "etcd-0"
  network = k8s_network.this.ref
  size    = 8
}
resource "k8s_machine" "worker" {
  count   = 2
  name    = "worker-${count.index}"
  role    = "worker"
  network = k8s_network.this.ref
}
resource "k8s_pki" "this" {
  cluster = "demo"
  prefix  = "/keys/of/demo/"
}
`
	const imports = `
import {
  to       = k8s_network.this
  identity = { cluster = "demo" }
}
import {
  to       = k8s_volume.this
  identity = { cluster = "demo", name = "etcd-0", region = "us-east-1" }
}
import {
  to       = k8s_machine.worker[0]
  identity = { cluster = "demo", name = "worker-0", account_id = "123456789012" }
}
import {
  to       = k8s_machine.worker[1]
  identity = { cluster = "demo", name = "worker-1" }
}
import {
  to       = k8s_pki.this
  identity = { cluster = "demo", prefix = "/keys/of/demo/" }
}
`
	d := providertest.NewDirectory(t, c.Account, resources)
	d.Cli = cli
	d.Attach(c)
	run := func(args ...string) string {
		t.Helper()
		out, err := d.Run(args...)
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return out
	}
	run("apply", "-auto-approve")
	run("state", "rm", "k8s_network.this", "k8s_volume.this", "k8s_machine.worker", "k8s_pki.this")
	at := filepath.Join(d.Path, "imports.tf")
	if err := os.WriteFile(at, []byte(imports), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := run("plan"); !strings.Contains(out, "5 to import, 0 to add, 0 to change, 0 to destroy") {
		t.Errorf("the plan to import: %s", out)
	}
	run("apply", "-auto-approve")
	if err := os.Remove(at); err != nil {
		t.Fatal(err)
	}
	run("plan", "-detailed-exitcode")
	state, err := os.ReadFile(filepath.Join(d.Path, "terraform.tfstate"))
	if err != nil || strings.Count(string(state), `"account_id": "123456789012"`) != 5 {
		t.Errorf("%v: the state lacks identities:\n%s", err, state)
	}
	if err := os.WriteFile(at, []byte("import {\n  to = k8s_volume.this\n  identity = { cluster = \"demo\", name = \"etcd-0\", account_id = \"999999999999\" }\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run("state", "rm", "k8s_volume.this")
	if out, err := d.Run("plan"); err == nil || !strings.Contains(out, `account_id = "999999999999"`) {
		t.Errorf("an import from another account: %v\n%s", err, out)
	}
}
