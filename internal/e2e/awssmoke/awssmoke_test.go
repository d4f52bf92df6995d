// Package awssmoke_test runs the command of `make aws-smoke` against the local EC2, as a person
// runs it against AWS, and reads its report.
package awssmoke_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/release"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

var suite *harness.Suite

func TestMain(m *testing.M) { os.Exit(harness.Main(m, func(s *harness.Suite) { suite = s })) }

// report is what the tests read of the command's report.
type report struct {
	Against, Cost, Rights string
	Steps                 []struct{ Name, Result string }
	Codes                 []struct{ Code string }
	Denials               []struct{ Action, Resource string }
	Leftovers             []string
	Differed              []string
	text                  string // of the page
}

// result returns the result of a step.
func (r report) result(step string) string {
	for _, s := range r.Steps {
		if s.Name == step {
			return s.Result
		}
	}
	return "no such step"
}

// TestTrial runs every step, with one controller to save time: the test of the main job has three. Then the same command
// makes a smaller cluster by a role that has the documented policies and no other rights. The caller is no owner of the
// account, whom AWS lets assume no role.
func TestTrial(t *testing.T) {
	into := t.TempDir()
	cmd := command(t, into)
	cmd.Env = append(cmd.Env, administrator(t)...)
	out, err := cmd.CombinedOutput()
	all := read(t, into)
	if err != nil || len(all) != 2 {
		t.Fatalf("%d reports, %v\n%s", len(all), err, out)
	}
	checks := []string{"terraform apply", "kubeconfig", "nodes", "pods", "DNS", "egress", "logs", "Service", "empty plan", "terraform destroy", "leftovers"}
	for rights, want := range map[string][]string{
		"the caller's": slices.Concat([]string{"account", "build", "terraform init", "terraform plan", "quotas"}, checks),
		"a role with everyday.json and destroy.json of examples/iam": {"account", "role", "build", "terraform init", "terraform plan", "quotas",
			"terraform apply", "kubeconfig", "nodes", "empty plan", "terraform destroy", "leftovers", "delete the role"},
	} {
		r := all[rights]
		var passed []string
		for _, s := range r.Steps {
			if s.Result == "passed" {
				passed = append(passed, s.Name)
			}
		}
		if !slices.Equal(passed, want) {
			t.Errorf("%s: passed: %q, want %q", rights, passed, want)
		}
		if len(r.Differed)+len(r.Leftovers)+len(r.Denials) > 0 {
			t.Errorf("%s: the local EC2 differs from itself: %q, left: %q, denied: %+v", rights, r.Differed, r.Leftovers, r.Denials)
		}
		if len(r.Codes) == 0 {
			t.Errorf("%s: no refused call was recorded, although the provider asks for keys before they exist", rights)
		}
		if !strings.HasPrefix(r.Against, "not AWS") {
			t.Errorf("%s: against %q", rights, r.Against)
		}
	}
	if first := all["the caller's"]; !strings.Contains(first.Cost, "4 t3.medium") {
		t.Errorf("cost %q", first.Cost)
	}
	if left, err := suite.Lab(t.Context(), "iam", "list"); err != nil || strings.Contains(left, "role ") {
		t.Errorf("%v, left in IAM:\n%s", err, left)
	}
	suite.Empty(t)
}

// administrator returns the variables that are the credentials of a user who may do everything.
func administrator(t *testing.T) []string {
	t.Helper()
	policy := filepath.Join(t.TempDir(), "administrator.json")
	if err := os.WriteFile(policy, []byte(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	said, err := suite.Lab(t.Context(), "iam", "user", "administrator", "--policy", policy)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	env := workspace.Exports(said)
	if len(env) != 2 {
		t.Fatalf("no credentials in %q", said)
	}
	t.Cleanup(func() {
		if said, err := suite.Lab(context.WithoutCancel(t.Context()), "iam", "delete", "user", "administrator"); err != nil {
			t.Errorf("%v\n%s", err, said)
		}
	})
	return env
}

// TestInterrupted presses Ctrl-C while machines are launched. They are destroyed.
func TestInterrupted(t *testing.T) {
	into := t.TempDir()
	cmd := command(t, into)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	lines := bufio.NewScanner(io.TeeReader(pipe, &out))
	for lines.Scan() {
		if lines.Text() == "==> terraform apply" {
			go func() {
				time.Sleep(4 * time.Second)
				_ = cmd.Process.Signal(os.Interrupt)
			}()
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Errorf("the exit status is 0\n%s", out.String())
	}
	r := read(t, into)["the caller's"]
	for step, want := range map[string]string{"terraform apply": "failed", "pods": "not run", "terraform destroy": "passed", "leftovers": "passed"} {
		if got := r.result(step); got != want {
			t.Errorf("%s: %s, want %s\n%s", step, got, want, r.text)
		}
	}
	suite.Empty(t)
}

// command returns the command, for a cluster of four machines: the checks want pods on two nodes.
func command(t *testing.T, into string) *exec.Cmd {
	t.Helper()
	if err := workspace.Build(t.Context(), suite.Root, suite.Bin, "./internal/awssmoke"); err != nil {
		t.Fatal(err)
	}
	text, err := suite.Lab(t.Context(), "env", "--tfvars")
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	vars := map[string]any{}
	if err := json.Unmarshal([]byte(text), &vars); err != nil {
		t.Fatal(err)
	}
	vars["controllers"] = 1
	vars["ami"] = suite.Image()
	file := filepath.Join(t.TempDir(), "vars.json")
	raw, err := json.Marshal(vars)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl := filepath.Join(suite.Cache, "mirror", "dl.k8s.io", "release", "v"+harness.KubernetesVersion, "bin", "linux", "amd64", "kubectl")
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, filepath.Join(suite.Bin, "awssmoke"), "-yes", "-root", suite.Root, "-into", into, "-var-file", file,
		"-image", release.ToolboxImage, "-egress", "http://outside.k8s-lab.test/", "-kubectl", kubectl)
	cmd.Env = append(append(os.Environ(), suite.Env()...), "TF_ACC_TERRAFORM_PATH="+suite.CLI)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it destroys what it has made
	cmd.WaitDelay = 5 * time.Minute
	return cmd
}

// read reads the reports, by the rights of the provider, and fails the test if one says whose account it is.
func read(t *testing.T, into string) map[string]report {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(into, "smoke-*"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("trials: %q, %v", dirs, err)
	}
	all := map[string]report{}
	for _, dir := range dirs {
		raw, err := os.ReadFile(filepath.Join(dir, "report.json"))
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, "report.md"))
		if err != nil {
			t.Fatal(err)
		}
		r := report{text: string(text)}
		if err := json.Unmarshal(raw, &r); err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{suite.Getenv("AWS_ACCESS_KEY_ID"), suite.Getenv("AWS_SECRET_ACCESS_KEY"), "arn:aws", "10.240.", "://1", "PRIVATE KEY"} {
			if secret == "" || strings.Contains(string(raw)+r.text, secret) {
				t.Errorf("the report has %q:\n%s", secret, r.text)
			}
		}
		t.Log(r.text)
		all[r.Rights] = r
	}
	return all
}
