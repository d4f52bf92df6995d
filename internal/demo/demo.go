package main

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
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

type demo struct {
	root   string // of the repository
	dir    string // .demo
	began  time.Time
	times  []timing
	report *progress.Reporter
}

// criticalPath begins the path in what the provider writes with K8S_TIMINGS.
const criticalPath = "critical path"

type timing struct {
	name string
	took time.Duration
}

func (d *demo) path(elem ...string) string { return filepath.Join(append([]string{d.dir}, elem...)...) }

func (d *demo) up(ctx context.Context) error {
	for _, dir := range []string{"bin", "logs", "work"} {
		if err := os.MkdirAll(d.path(dir), 0o755); err != nil {
			return err
		}
	}
	if err := d.stage("build the provider and k8s-lab", func() error { return d.build(ctx) }); err != nil {
		return err
	}
	if err := d.stage("local EC2", func() error { return d.lab(ctx, "up", "--quota", "vcpus=32") }); err != nil {
		return err
	}
	var ws *workspace.Workspace
	err := d.stage("terraform init", func() (err error) {
		if ws, err = d.workspace(ctx); err != nil {
			return err
		}
		return d.quietly("terraform init", func() error { return ws.Init(ctx) })
	})
	if err != nil {
		return err
	}
	var applied *applyReport
	err = d.stage("terraform apply", func() (err error) {
		return d.quietly("terraform apply", func() error {
			applied, err = apply(ctx, ws, d.path("logs", "apply.json"), d.report)
			return err
		})
	})
	if err != nil {
		return err
	}
	if err := d.kubectl(); err != nil {
		return err
	}
	if err := d.kubeconfig(ctx, ws); err != nil {
		return err
	}
	if err := d.shellFile(ws); err != nil {
		return err
	}
	return d.summary(ctx, ws, applied)
}

// shellFile writes what a shell needs to go on with the demo: terraform, kubectl and k8s-lab.
func (d *demo) shellFile(ws *workspace.Workspace) error {
	text := ws.ShellFile([]string{d.path("bin")}, map[string]string{"KUBECONFIG": d.path("kubeconfig"), "K8S_LAB_STATE_DIR": d.path("lab")})
	return os.WriteFile(d.path("env"), []byte(text), 0o600)
}

func (d *demo) down(ctx context.Context) error {
	if _, err := os.Stat(d.path("work", "terraform.tfstate")); err == nil {
		err := d.stage("terraform destroy", func() error {
			if err := d.lab(ctx, "up", "--quota", "vcpus=32"); err != nil {
				return err
			}
			ws, err := d.workspace(ctx)
			if err != nil {
				return err
			}
			if _, err := os.Stat(filepath.Join(ws.Dir, ".terraform")); err != nil {
				if err := ws.Init(ctx); err != nil {
					return err
				}
			}
			return d.quietly("terraform destroy", func() error {
				_, err := ws.Destroy(ctx)
				return err
			})
		})
		if err != nil {
			// The machines belong to the lab, so taking it down stops them in any case.
			fmt.Fprintf(os.Stderr, "terraform destroy failed, taking the local EC2 down all the same: %v\n", err)
		}
	}
	if _, err := os.Stat(d.path("bin", "k8s-lab")); err == nil {
		if err := d.stage("local EC2 down", func() error { return d.lab(ctx, "down") }); err != nil {
			return err
		}
	}
	return os.RemoveAll(d.dir)
}

// stage runs one step, prints its name and records how long it takes.
func (d *demo) stage(name string, f func() error) error {
	d.report.Line("==> " + name)
	began := time.Now()
	err := f()
	d.times = append(d.times, timing{name, time.Since(began)})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// quietly runs a step that prints nothing except by d.report, and shows that it is still running.
func (d *demo) quietly(title string, f func() error) error {
	defer d.report.Quiet(title)()
	return f()
}

func (d *demo) build(ctx context.Context) error {
	return d.quietly("go build", func() error { return workspace.Build(ctx, d.root, d.path("bin"), ".", "./cmd/...") })
}

func (d *demo) labCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, d.path("bin", "k8s-lab"), append([]string{"--state-dir", d.path("lab")}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	return cmd
}

func (d *demo) lab(ctx context.Context, args ...string) error {
	cmd := d.labCommand(ctx, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout // k8s-lab checks whether it writes to a terminal
	return cmd.Run()
}

func (d *demo) workspace(ctx context.Context) (*workspace.Workspace, error) {
	cli, err := workspace.FindCLI(func() (string, error) {
		d.report.Line("no terraform or tofu on the PATH: building OpenTofu from its module")
		var out bytes.Buffer
		cmd := d.labCommand(ctx, "artifacts", "--tool", "tofu")
		cmd.Stdout, cmd.Stderr = &out, os.Stdout
		if err := cmd.Run(); err != nil {
			return "", fmt.Errorf("building OpenTofu: %w", err)
		}
		return strings.TrimSpace(out.String()), nil
	})
	if err != nil {
		return nil, err
	}
	key := d.path("ssh_key")
	if err := workspace.SSHKey(key); err != nil {
		return nil, err
	}
	vars, err := d.labCommand(ctx, "env", "--tfvars").Output()
	if err != nil {
		return nil, fmt.Errorf("k8s-lab env --tfvars: %w", err)
	}
	env, err := d.labEnv(ctx)
	if err != nil {
		return nil, err
	}
	ws, err := workspace.New(workspace.Options{
		Dir:      d.path("work"),
		CLI:      cli,
		Provider: d.path("bin", "terraform-provider-k8s"),
		Config:   filepath.Join(d.root, "examples", "ha-cluster"),
		Env: append(env,
			"K8S_SSH_PRIVATE_KEY_FILE="+key,
			"TF_LOG_PROVIDER=INFO",
			"TF_LOG_PATH="+d.path("logs", "provider.log"),
			"K8S_TIMINGS="+d.path("logs", "timings.txt")),
	})
	if err != nil {
		return nil, err
	}
	return ws, ws.WriteFile("lab.auto.tfvars.json", string(vars))
}

// labEnv returns the environment in which AWS clients use the local EC2.
func (d *demo) labEnv(ctx context.Context) ([]string, error) {
	out, err := d.labCommand(ctx, "env").Output()
	if err != nil {
		return nil, fmt.Errorf("k8s-lab env: %w", err)
	}
	return workspace.Exports(string(out)), nil
}

// kubectl copies the kubectl of the cluster's release into the demo's directory.
func (d *demo) kubectl() error {
	to := d.path("bin", "kubectl")
	if _, err := os.Stat(to); err == nil {
		return nil
	}
	cache := os.Getenv("K8S_LAB_CACHE")
	found, err := filepath.Glob(filepath.Join(cache, "mirror", "dl.k8s.io", "release", "v1.36.4", "bin", "linux", "*", "kubectl"))
	if err != nil || len(found) == 0 {
		return fmt.Errorf("no kubectl in %s: run k8s-lab artifacts", cache)
	}
	return copyFile(found[0], to)
}

func (d *demo) kubeconfig(ctx context.Context, ws *workspace.Workspace) error {
	var endpoint string
	if err := ws.Output(ctx, "endpoint", &endpoint); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, d.path("bin", "k8s-kubeconfig"), "--cluster", "demo", "--endpoint", endpoint, "--output", d.path("kubeconfig"))
	env, err := d.labEnv(ctx)
	if err != nil {
		return err
	}
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("k8s-kubeconfig: %w\n%s", err, out)
	}
	return nil
}

func (d *demo) summary(ctx context.Context, ws *workspace.Workspace, applied *applyReport) error {
	var endpoint string
	if err := ws.Output(ctx, "endpoint", &endpoint); err != nil {
		return err
	}
	fmt.Printf("\nAPI endpoint  %s\n\n", endpoint)
	for _, args := range [][]string{
		{"get", "nodes", "-o", "wide"},
		{"get", "leases", "-n", "kube-system", "kube-controller-manager", "kube-scheduler"},
	} {
		cmd := exec.CommandContext(ctx, d.path("bin", "kubectl"), append([]string{"--kubeconfig", d.path("kubeconfig")}, args...)...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err)
		}
		fmt.Println()
	}
	applied.print(os.Stdout)
	if timings, err := os.ReadFile(d.path("logs", "timings.txt")); err == nil && len(applied.spans) > 0 {
		if at := bytes.LastIndex(timings, []byte(criticalPath)); at >= 0 {
			fmt.Printf("\n%s", timings[at:])
		}
	}
	fmt.Println("Where the time of this run went")
	for _, t := range d.times {
		fmt.Printf("  %-32s %6.1fs\n", t.name, t.took.Seconds())
	}
	fmt.Printf("  %-32s %6.1fs\n", "everything", time.Since(d.began).Seconds())
	file := d.path("env")
	if rel, err := filepath.Rel(d.root, file); err == nil {
		file = rel
	}
	fmt.Printf(`
Go on with
  . %s
  kubectl get nodes
  terraform plan
  k8s-lab status
  make demo-down
`, file)
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

func decode(line []byte, v any) bool { return json.Unmarshal(line, v) == nil }
