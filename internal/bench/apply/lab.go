package apply

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

// lab is a running local EC2.
type lab struct {
	b    *bench
	log  io.Writer // safe for several writers at a time
	vars labVars
	json string // vars, as a file of Terraform variables
}

// labVars are what clusters in the lab need, see "k8s-lab env --tfvars".
type labVars struct {
	Kubelet    map[string]any `json:"kubelet_config"`
	KubeProxy  map[string]any `json:"kube_proxy_config"`
	Containerd map[string]any `json:"containerd_config"`
}

// up starts a new lab. Everything that programs print goes to log.
func (b *bench) up(ctx context.Context, log io.Writer) (*lab, error) {
	l := &lab{b: b, log: &lockedWriter{w: log}}
	args := []string{"up", "--quota", "vcpus=32"}
	if b.image != "" {
		args = append(args, "--image", b.image)
	}
	if _, err := l.run(ctx, nil, args...); err != nil {
		return nil, err
	}
	if b.line != (line{}) {
		if _, err := l.run(ctx, nil, "fault", "line", fmt.Sprintf("mbit=%g", b.line.mbit), fmt.Sprintf("milliseconds=%d", b.line.milliseconds)); err != nil {
			return nil, err
		}
	}
	vars, err := l.run(ctx, nil, "env", "--tfvars")
	if err != nil {
		return nil, err
	}
	l.json = vars
	return l, json.Unmarshal([]byte(vars), &struct {
		Elsewhere *labVars `json:"elsewhere"`
	}{&l.vars})
}

// down ends the lab, whatever is in it, and removes the working directory.
func (b *bench) down(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, downLimit)
	defer cancel()
	if _, err := (&lab{b: b, log: io.Discard}).run(ctx, nil, "down"); err != nil {
		return err
	}
	return os.RemoveAll(b.path("work"))
}

// run runs k8s-lab and returns its standard output. It is no part of the terminal's process group, so
// that Ctrl-C ends it only through ctx.
func (l *lab) run(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, l.b.path("bin", "k8s-lab"), append([]string{"--state-dir", l.b.path("lab")}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	var stdout, both bytes.Buffer
	all := &lockedWriter{w: io.MultiWriter(&both, l.log)}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, io.MultiWriter(&stdout, all), all
	_, _ = fmt.Fprintf(l.log, "$ k8s-lab %s\n", strings.Join(args, " "))
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("k8s-lab %s: %w\n%s", strings.Join(args, " "), err, lastLines(both.String(), 30))
	}
	return stdout.String(), nil
}

// on runs a command as root on a machine, without SSH.
func (l *lab) on(ctx context.Context, machine string, stdin io.Reader, command ...string) (string, error) {
	return l.run(ctx, stdin, append([]string{"exec", machine, "--"}, command...)...)
}

// workspace returns an initialized working directory for a configuration.
func (l *lab) workspace(ctx context.Context, config string) (*workspace.Workspace, error) {
	key := l.b.path("ssh_key")
	env, err := l.run(ctx, nil, "env")
	if err = errors.Join(err, workspace.SSHKey(key)); err != nil {
		return nil, err
	}
	ws, err := workspace.New(workspace.Options{
		Dir:      l.b.path("work"),
		CLI:      l.b.cli,
		Provider: l.b.path("bin", "terraform-provider-k8s"),
		Config:   config,
		Env:      append(workspace.Exports(env), "K8S_SSH_PRIVATE_KEY_FILE="+key),
		Log:      l.log,
	})
	if err != nil {
		return nil, err
	}
	ws.Apart = true
	if err := ws.WriteFile("lab.auto.tfvars.json", l.json); err != nil {
		return nil, err
	}
	return ws, ws.Init(ctx)
}

// lastLines returns at most n lines from the end of s.
func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// lockedWriter passes on one write at a time.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(p)
}
