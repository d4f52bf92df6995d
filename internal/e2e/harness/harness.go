// Package harness is the environment of the end-to-end tests: programs built from this tree, a
// local EC2 for each suite, and Terraform workspaces that use it. It knows nothing about what is
// tested.
package harness

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cache"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

// KubernetesVersion is the release that the tests install, NextKubernetesVersion the one to which
// they upgrade.
const (
	KubernetesVersion     = "1.36.4"
	NextKubernetesVersion = "1.37.1"
)

// Suite is one local EC2 and the programs that use it.
type Suite struct {
	Root  string // root directory of the repository
	Dir   string // directory for everything that the suite writes
	Bin   string // directory of the programs built from this tree
	Cache string
	CLI   string // terraform or tofu
	SSH   string // path of the private key the machines accept

	provider string // path
	env      map[string]string
	debian   string // release of Debian of the machines; empty for the prepared image
	ami      string // what machines boot
	prepared string // the prepared image; empty if the lab does not offer it
}

// Main runs the tests of a package with a Suite. It starts a lab, runs the tests, takes the lab
// down, and fails if anything is left. Without root the tests are skipped, since the local EC2
// needs it. up are additional arguments of k8s-lab up.
//
// Machines boot the image of package prepared, on which the roles find what they would install. The
// provider does not know that. K8S_E2E_DEBIAN=12 makes them boot that release of Debian instead.
func Main(m *testing.M, set func(*Suite), up ...string) int { return MainOn(m, "", set, up...) }

// MainOn is Main for tests of installations: machines boot a release of Debian, such as "13", as Debian
// publishes it.
func MainOn(m *testing.M, debian string, set func(*Suite), up ...string) int {
	if os.Getuid() != 0 {
		fmt.Println("skipped: the local EC2 needs root")
		return 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	s, err := start(ctx, cancel, cmp.Or(os.Getenv(everywhere), debian), up)
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the local EC2:", err)
		if s != nil {
			_ = s.stop()
		}
		return 1
	}
	set(s)
	code := m.Run()
	if err := s.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "taking the local EC2 down:", err)
		return 1
	}
	return code
}

// start starts a suite's lab. cancel ends ctx.
func start(ctx context.Context, cancel context.CancelFunc, debian string, up []string) (*Suite, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return nil, fmt.Errorf("finding the repository: %w", err)
	}
	root := strings.TrimSpace(string(out))
	dir, err := os.MkdirTemp("/var/tmp", "k8s-e2e-")
	if err != nil {
		return nil, err
	}
	s := &Suite{Root: root, Dir: dir, Bin: filepath.Join(dir, "bin"), Cache: cache.DefaultDir(), debian: debian}
	s.provider = filepath.Join(s.Bin, "terraform-provider-k8s")
	defer s.endWhenInterrupted(cancel)() //nolint:contextcheck // labs end although the context has
	if err := s.build(ctx); err != nil {
		return s, err
	}
	image, err := s.chooseImage(ctx, up)
	if err != nil {
		return s, err
	}
	if out, err := s.Lab(ctx, slices.Concat([]string{"up", raised}, image, up)...); err != nil {
		return s, fmt.Errorf("k8s-lab up: %w\n%s", err, out)
	}
	if s.CLI, err = workspace.FindCLI(func() (string, error) { return s.tofu(ctx) }); err != nil {
		return s, err
	}
	s.SSH = filepath.Join(dir, "ssh_key")
	if err := workspace.SSHKey(s.SSH); err != nil {
		return s, err
	}
	return s, s.readEnv(ctx)
}

// raised are the quotas that the tests' clusters need, beyond those of a new account.
const raised = "--quota=vcpus=32,spot-vcpus=32,elastic-ips=32,vpcs=64"

// Region starts another lab, as another region of AWS, until the test ends.
func (s *Suite) Region(t *testing.T, region string, up ...string) *Suite {
	t.Helper()
	other := &Suite{Root: s.Root, Dir: filepath.Join(s.Dir, region), Bin: s.Bin, Cache: s.Cache, CLI: s.CLI, SSH: s.SSH, provider: s.provider, debian: s.debian}
	if err := os.Mkdir(other.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Down(t) })
	image, err := other.chooseImage(t.Context(), up)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := other.Lab(t.Context(), slices.Concat([]string{"up", raised, "--region", region}, image, up)...); err != nil {
		t.Fatalf("k8s-lab up: %v\n%s", err, out)
	}
	if err := other.readEnv(t.Context()); err != nil {
		t.Fatal(err)
	}
	return other
}

// Down ends the lab with everything in it.
func (s *Suite) Down(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if out, err := s.Lab(ctx, "down"); err != nil {
		t.Errorf("k8s-lab down: %v\n%s", err, out)
	}
}

func (s *Suite) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var failed error
	if _, err := os.Stat(filepath.Join(s.Bin, "k8s-lab")); err == nil {
		if out, err := s.Lab(ctx, "down"); err != nil {
			failed = fmt.Errorf("k8s-lab down: %w\n%s", err, out)
		}
	}
	if failed == nil && os.Getenv("K8S_E2E_KEEP") == "" {
		failed = os.RemoveAll(s.Dir)
	}
	return failed
}

func (s *Suite) tofu(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.Bin, "k8s-lab"), "artifacts", "--tool", "tofu")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// OpenTofu returns the path of OpenTofu, and builds it if necessary.
func (s *Suite) OpenTofu(ctx context.Context) (string, error) {
	if p, err := exec.LookPath("tofu"); err == nil {
		return p, nil
	}
	return s.tofu(ctx)
}

// Lab runs k8s-lab with the suite's state directory.
func (s *Suite) Lab(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.Bin, "k8s-lab"), append([]string{"--state-dir", s.stateDir()}, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// MustLab is Lab, but fails the test on an error. It also works in cleanups, after the test's context has
// ended.
func (s *Suite) MustLab(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.Lab(context.WithoutCancel(t.Context()), args...)
	if err != nil {
		t.Fatalf("k8s-lab %v: %v\n%s", args, err, out)
	}
	return out
}

func (s *Suite) readEnv(ctx context.Context) error {
	out, err := s.Lab(ctx, "env")
	if err != nil {
		return fmt.Errorf("k8s-lab env: %w\n%s", err, out)
	}
	s.env = map[string]string{}
	for _, kv := range workspace.Exports(out) {
		k, v, _ := strings.Cut(kv, "=")
		s.env[k] = v
	}
	return nil
}

// Getenv returns a variable of the lab's environment.
func (s *Suite) Getenv(name string) string { return s.env[name] }

// Env returns the environment with which AWS clients and the provider use the lab, and the variable "ami" of
// configurations that have it.
func (s *Suite) Env() []string {
	env := append(coverEnv(), "K8S_SSH_PRIVATE_KEY_FILE="+s.SSH)
	if s.ami != "" {
		env = append(env, "TF_VAR_ami="+s.ami)
	}
	for k, v := range s.env {
		env = append(env, k+"="+v)
	}
	return env
}

// Workspace creates a working directory with the provider installed, the given configuration, and
// the lab's variables. The output of a failed test has the end of the log of its commands, and of the provider's.
func (s *Suite) Workspace(t *testing.T, name, cli, config string) *workspace.Workspace {
	t.Helper()
	log, err := os.Create(filepath.Join(s.Dir, name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = log.Close()
		if t.Failed() {
			t.Logf("%s ends with\n%s\nand %s with\n%s", log.Name(), end(log.Name(), 60), s.providerLog(), end(s.providerLog(), 15))
		}
	})
	ws, err := workspace.New(workspace.Options{
		Dir:      filepath.Join(s.Dir, name),
		CLI:      cli,
		Provider: s.provider,
		Config:   config,
		// Short commands with gigabytes to spare need not collect their garbage as often.
		Env: append(s.Env(), "TF_LOG_PROVIDER=INFO", "TF_LOG_PATH="+s.providerLog(), "GOGC=400"),
		Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	vars, err := s.Lab(t.Context(), "env", "--tfvars")
	if err != nil {
		t.Fatalf("k8s-lab env --tfvars: %v\n%s", err, vars)
	}
	if err := ws.WriteFile("lab.auto.tfvars.json", vars); err != nil {
		t.Fatal(err)
	}
	if err := ws.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	return ws
}

// end returns the last lines of a file, the beginning of each.
func end(name string, n int) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	lines = lines[max(0, len(lines)-n):]
	for i, line := range lines {
		lines[i] = fmt.Sprintf("%.300s", line)
	}
	return strings.Join(lines, "\n")
}

// Kubectl runs the real kubectl with a kubeconfig.
func (s *Suite) Kubectl(ctx context.Context, kubeconfig string, stdin io.Reader, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, s.KubectlPath(), append([]string{"--kubeconfig", kubeconfig}, args...)...)
	cmd.Stdin = stdin
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// KubectlPath is the path of the real kubectl.
func (s *Suite) KubectlPath() string {
	return filepath.Join(s.Cache, "mirror", "dl.k8s.io", "release", "v"+KubernetesVersion, "bin", "linux", "amd64", "kubectl")
}

// Control calls the lab's control endpoint, and decodes the answer into v unless v is nil.
func (s *Suite) Control(ctx context.Context, method, path string, body, v any) error {
	l, err := lab.New(s.stateDir(), "", nil)
	if err != nil {
		return err
	}
	return l.Control(ctx, method, path, body, v)
}

func (s *Suite) stateDir() string { return filepath.Join(s.Dir, "lab") }

// Eventually waits until a condition holds. After the time limit it fails the test with the last
// error. It rests as long as the condition took to look at, a second at most, since what a test waits for
// needs the processors.
func Eventually(t *testing.T, within time.Duration, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		began := time.Now()
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, within, err)
		}
		time.Sleep(min(max(200*time.Millisecond, time.Since(began)), time.Second))
	}
}
