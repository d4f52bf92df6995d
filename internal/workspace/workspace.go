// Package workspace prepares and runs one Terraform working directory with the provider built from
// this tree: it finds (or builds) a Terraform CLI, installs the provider in a file-system mirror
// and runs commands.
//
// The demo and the end-to-end tests use it. It knows nothing about clusters, the local EC2 or the
// content of the configuration.
package workspace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Version is the provider's version in the file-system mirror.
const Version = "0.1.0"

// Workspace is one working directory. Create it with New.
type Workspace struct {
	Dir string   // holds the configuration and the state
	CLI string   // path of terraform or tofu
	Env []string // the whole environment of every command; nothing is inherited
	// Log, if set, receives everything that commands print, in addition to the result.
	Log io.Writer
	// Apart runs commands in process groups of their own. Otherwise Ctrl-C in a terminal reaches
	// them as well as this process, and after a second interrupt Terraform does not end in order.
	Apart bool
}

// Options are the inputs of New.
type Options struct {
	Dir      string
	CLI      string
	Provider string   // path of the provider binary
	Config   string   // directory whose .tf files are copied, optional
	Env      []string // added to the minimal environment
	Log      io.Writer
}

// FindCLI returns the Terraform CLI: TF_ACC_TERRAFORM_PATH, else terraform or tofu on the PATH,
// else the result of build.
func FindCLI(build func() (string, error)) (string, error) {
	if p := os.Getenv("TF_ACC_TERRAFORM_PATH"); p != "" {
		if _, err := os.Stat(p); err != nil {
			return "", fmt.Errorf("TF_ACC_TERRAFORM_PATH: %w", err)
		}
		return p, nil
	}
	for _, name := range []string{"terraform", "tofu"} {
		if p, err := exec.LookPath(name); err == nil {
			return p, nil
		}
	}
	return build()
}

// New writes the CLI configuration and copies the provider and the configuration into the
// directory. It is idempotent and keeps an existing state.
func New(o Options) (*Workspace, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	mirror := filepath.Join(dir, ".terraform-mirror")
	for _, registry := range []string{"registry.terraform.io", "registry.opentofu.org"} {
		to := filepath.Join(mirror, registry, "k8s-from-scratch", "k8s", Version, runtime.GOOS+"_"+runtime.GOARCH)
		if err := os.MkdirAll(to, 0o755); err != nil {
			return nil, err
		}
		if err := LinkOrCopy(o.Provider, filepath.Join(to, "terraform-provider-k8s_v"+Version)); err != nil {
			return nil, fmt.Errorf("installing the provider: %w", err)
		}
	}
	rc := filepath.Join(dir, "cli.tfrc")
	config := fmt.Sprintf("disable_checkpoint = true\n\nprovider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", mirror)
	if err := os.WriteFile(rc, []byte(config), 0o644); err != nil {
		return nil, err
	}
	if o.Config != "" {
		if err := CopyConfig(o.Config, dir); err != nil {
			return nil, err
		}
	}
	env := append([]string{
		"PATH=" + filepath.Dir(o.CLI),
		"TF_CLI_CONFIG_FILE=" + rc,
		"TF_IN_AUTOMATION=1",
		"TF_INPUT=0",
	}, o.Env...)
	return &Workspace{Dir: dir, CLI: o.CLI, Env: env, Log: o.Log}, nil
}

// CopyConfig copies the .tf files of one directory into another. It fails if there are none.
func CopyConfig(from, to string) error {
	files, err := filepath.Glob(filepath.Join(from, "*.tf"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no .tf files in %s", from)
	}
	if err != nil {
		return err
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(f)), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// WriteFile writes a file in the working directory.
func (w *Workspace) WriteFile(name, content string) error {
	return os.WriteFile(filepath.Join(w.Dir, name), []byte(content), 0o600)
}

// Error is a command that failed.
type Error struct {
	Args   []string
	Code   int
	Stdout string
	Stderr string
}

func (e *Error) Error() string {
	return fmt.Sprintf("terraform %s: exit status %d\n%s%s", strings.Join(e.Args, " "), e.Code, e.Stdout, e.Stderr)
}

// Command returns a command of the CLI in the working directory, not started. When ctx ends the
// command is interrupted as by Ctrl-C, and killed a minute later.
func (w *Workspace) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, w.CLI, args...)
	cmd.Dir = w.Dir
	cmd.Env = w.Env
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: w.Apart}
	return cmd
}

// Run runs a command and returns its standard output. A non-zero exit status is an *Error.
func (w *Workspace) Run(ctx context.Context, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := w.Command(ctx, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if w.Log != nil {
		_, _ = fmt.Fprintf(w.Log, "$ terraform %s\n", strings.Join(args, " "))
		log := InTurn(w.Log)
		cmd.Stdout, cmd.Stderr = io.MultiWriter(&stdout, log), io.MultiWriter(&stderr, log)
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return stdout.String(), &Error{Args: args, Code: exit.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
	}
	if err != nil {
		return stdout.String(), fmt.Errorf("terraform %s: %w", strings.Join(args, " "), err)
	}
	return stdout.String(), nil
}

// InTurn lets several writers write to one that takes one at a time.
func InTurn(to io.Writer) io.Writer { return &inTurn{to: to} }

type inTurn struct {
	mu sync.Mutex
	to io.Writer
}

// Write implements io.Writer.
func (w *inTurn) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(b)
}

// Init runs terraform init. It deletes the lock file, since the checksum of an earlier build of the
// provider no longer matches.
func (w *Workspace) Init(ctx context.Context) error {
	if err := os.RemoveAll(filepath.Join(w.Dir, ".terraform.lock.hcl")); err != nil {
		return err
	}
	_, err := w.Run(ctx, "init", "-no-color")
	return err
}

// Apply runs terraform apply without confirmation.
func (w *Workspace) Apply(ctx context.Context, args ...string) (string, error) {
	return w.Run(ctx, append([]string{"apply", "-auto-approve", "-no-color"}, args...)...)
}

// Destroy runs terraform destroy without confirmation.
func (w *Workspace) Destroy(ctx context.Context, args ...string) (string, error) {
	return w.Run(ctx, append([]string{"destroy", "-auto-approve", "-no-color"}, args...)...)
}

// Plan runs terraform plan. It returns whether the plan has changes, and the output.
func (w *Workspace) Plan(ctx context.Context, args ...string) (changes bool, text string, err error) {
	text, err = w.Run(ctx, append([]string{"plan", "-detailed-exitcode", "-no-color"}, args...)...)
	var failed *Error
	if errors.As(err, &failed) && failed.Code == 2 {
		return true, text, nil
	}
	return false, text, err
}

// Output decodes an output value into v.
func (w *Workspace) Output(ctx context.Context, name string, v any) error {
	out, err := w.Run(ctx, "output", "-json", "-no-color", name)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), v)
}

// LinkOrCopy gives a program another name, as a hard link if the file system allows it. Builds replace programs
// and do not write into them.
func LinkOrCopy(from, to string) error {
	if err := os.Remove(to); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if os.Link(from, to) == nil {
		return nil
	}
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}
