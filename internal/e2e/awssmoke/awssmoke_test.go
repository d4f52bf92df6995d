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
	Against, Cost string
	Steps         []struct{ Name, Result string }
	Codes         []struct{ Code string }
	Leftovers     []string
	Differed      []string
	text          string // of the page
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

// TestTrial runs every step, with one controller to save time: the test of the main job has three.
func TestTrial(t *testing.T) {
	into := t.TempDir()
	cmd := command(t, into)
	out, err := cmd.CombinedOutput()
	r := read(t, into)
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, r.text)
	}
	want := []string{"account", "build", "terraform init", "terraform plan", "quotas", "terraform apply", "kubeconfig", "nodes", "pods", "DNS", "egress", "logs", "Service",
		"empty plan", "terraform destroy", "leftovers"}
	var passed []string
	for _, s := range r.Steps {
		if s.Result == "passed" {
			passed = append(passed, s.Name)
		}
	}
	if !slices.Equal(passed, want) {
		t.Errorf("passed: %q, want %q", passed, want)
	}
	if len(r.Differed)+len(r.Leftovers) > 0 {
		t.Errorf("the local EC2 differs from itself: %q, left: %q", r.Differed, r.Leftovers)
	}
	if len(r.Codes) == 0 {
		t.Error("no refused call was recorded, although the provider asks for keys before they exist")
	}
	if !strings.HasPrefix(r.Against, "not AWS") || !strings.Contains(r.Cost, "4 t3.medium") {
		t.Errorf("against %q, cost %q", r.Against, r.Cost)
	}
	suite.Empty(t)
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
	r := read(t, into)
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

// read reads the report, and fails the test if it says whose account it is.
func read(t *testing.T, into string) (r report) {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(into, "smoke-*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("trials: %q, %v", dirs, err)
	}
	raw, err := os.ReadFile(filepath.Join(dirs[0], "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dirs[0], "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		t.Fatal(err)
	}
	r.text = string(text)
	for _, secret := range []string{suite.Getenv("AWS_ACCESS_KEY_ID"), suite.Getenv("AWS_SECRET_ACCESS_KEY"), "arn:aws", "10.240.", "://1", "PRIVATE KEY"} {
		if secret == "" || strings.Contains(string(raw)+r.text, secret) {
			t.Errorf("the report has %q:\n%s", secret, r.text)
		}
	}
	return r
}
