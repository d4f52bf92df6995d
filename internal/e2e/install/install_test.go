// Package install_test follows the steps for AWS of the guide "Your first cluster" from a clone, with Terraform and with
// OpenTofu, in a home directory of its own. The account is the local EC2's API in this process,
// without machines: the steps end with a plan.
package install_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/release"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

const root = "../../.."

// limit is for one command. A release takes longest: with nothing cached, eight builds.
const limit = time.Hour

// TestFirstSteps installs once, as the guide says. The installed provider must work with both programs
// and again after another installation.
func TestFirstSteps(t *testing.T) {
	a := account.New(t)
	home := newHome(t)
	steps := firstSteps(t)
	clone := cloned(t)
	clis := both(t)
	tofu := clis[1]
	for _, cli := range clis {
		t.Run(filepath.Base(cli), func(t *testing.T) {
			out := run(t, a, home, clone, cli, steps)
			for _, want := range []string{
				"Installed the provider k8s-from-scratch/k8s 0.1.0 in " + home + "/.terraform.d/plugins", "successfully initialized",
				"k8s_machine.controller[2] will be created", " to add, 0 to change, 0 to destroy.",
			} {
				if !strings.Contains(out, want) {
					t.Errorf("%q is missing in\n%s", want, out)
				}
			}
		})
	}
	// The directory knows the checksum of another build, and takes this one without it.
	plugins, err := filepath.Glob(home + "/.terraform.d/plugins/*/k8s-from-scratch/k8s/0.1.0/*/terraform-provider-k8s_v0.1.0")
	if err != nil || len(plugins) != 2 {
		t.Fatalf("installed: %q, %v", plugins, err)
	}
	for _, p := range plugins {
		f, err := os.OpenFile(p, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("another build"); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	example := filepath.Join(clone, "examples/ha-cluster")
	if out, err := try(t, a, home, example, tofu, "terraform init -no-color"); err == nil {
		t.Errorf("another build is accepted:\n%s", out)
	}
	run(t, a, home, example, tofu, "rm .terraform.lock.hcl; terraform init -no-color")
}

// firstSteps returns the commands under the heading "On AWS", with the account's region, and a plan in
// place of the apply.
func firstSteps(t *testing.T) string {
	t.Helper()
	steps := block(t, "make install")
	for from, to := range map[string]string{"eu-central-1": "us-east-1", "terraform apply": "terraform plan -no-color"} {
		if !strings.Contains(steps, from) {
			t.Fatalf("%q is not in\n%s", from, steps)
		}
		steps = strings.ReplaceAll(steps, from, to)
	}
	return steps
}

// block returns the first block of commands under the heading "On AWS" that has these words.
func block(t *testing.T, words string) string {
	t.Helper()
	raw, err := os.ReadFile(root + "/docs/guides/first-cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), "\n## On AWS\n")
	rest, _, _ = strings.Cut(rest, "\n## ")
	for found := true; found; {
		var commands string
		_, rest, _ = strings.Cut(rest, "```sh\n")
		if commands, rest, found = strings.Cut(rest, "```"); strings.Contains(commands, words) {
			return commands
		}
	}
	t.Fatalf("the guide has no steps for AWS with %q", words)
	return ""
}

// newHome makes a home directory with the profile and the SSH key that the guide names.
func newHome(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	for name, text := range map[string]string{
		".aws/credentials": "[mine]\naws_access_key_id = " + account.AccessKey + "\naws_secret_access_key = " + account.SecretKey + "\n",
		".aws/config":      "[profile mine]\n",
	} {
		file := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(home+"/.ssh", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := workspace.SSHKey(home + "/.ssh/id_ed25519"); err != nil {
		t.Fatal(err)
	}
	return home
}

// cloned returns a copy of the tree without what is not committed.
func cloned(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "clone")
	files, err := command(t, root, nil, "sh", "-c", `mkdir "$0" && git ls-files -co --exclude-standard -z | xargs -0 cp --parents -t "$0"`, dir)
	if err != nil {
		t.Fatalf("%v\n%s", err, files)
	}
	return dir
}

// both returns Terraform, or OpenTofu on a machine without Terraform, and OpenTofu.
func both(t *testing.T) []string {
	t.Helper()
	tofu := openTofu(t)
	terraform, err := exec.LookPath("terraform")
	if err != nil {
		terraform = tofu
	}
	return []string{terraform, tofu}
}

func openTofu(t *testing.T) string {
	t.Helper()
	if p, err := exec.LookPath("tofu"); err == nil {
		return p
	}
	dir, err := release.EnsureTools(t.Context(), release.Options{Progress: progress.To(func(s string) { t.Log(s) })})
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "tofu")
}

// run runs a script in which terraform is cli.
func run(t *testing.T, a *account.Account, home, dir, cli, script string) string {
	t.Helper()
	out, err := try(t, a, home, dir, cli, script)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

func try(t *testing.T, a *account.Account, home, dir, cli, script string) (string, error) {
	t.Helper()
	env := []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "AWS_ENDPOINT_URL=" + a.URL, "CHECKPOINT_DISABLE=1", "CLI=" + cli}
	for _, name := range []string{"GOPATH", "GOCACHE", "GOMODCACHE", "GOPROXY", "GONOSUMDB", "GOFLAGS", "GONOSUMCHECK", "GOSUMDB"} {
		value, err := command(t, root, nil, "go", "env", name)
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, name+"="+strings.TrimSpace(value))
	}
	return command(t, dir, env, "bash", "-euc", `terraform() { "$CLI" "$@"; }`+"\n"+script)
}

// command runs a program and returns its output, errors included. A nil environment is this
// process's.
func command(t *testing.T, dir string, env []string, program string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	return string(out), err
}
