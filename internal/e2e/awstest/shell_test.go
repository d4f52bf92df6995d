package awstest

import (
	"context"
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"sigs.k8s.io/yaml"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// machines plays the SSH servers of the instances: each has a directory for
// its /etc/ssh, filled by "cloud-init" from the user data EC2 has, in which the
// real scripts run under a real shell. A caller gets in only if it pins the key
// that is in use.
type machines struct {
	t      *testing.T
	client *infraaws.Client
	bin    string // stands before PATH: what a script may not really do here

	mu   sync.Mutex
	dirs map[string]string
	wire *wire // shared fate: a killed process runs no scripts either
}

func newMachines(t *testing.T, client *infraaws.Client) *machines {
	t.Helper()
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "systemctl"), []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return &machines{t: t, client: client, bin: bin, dirs: map[string]string{}}
}

// on returns how machines are reached by a process that uses w.
func (m *machines) on(w *wire) infraaws.Connect {
	return func(host infraaws.Machine, hostKeys []string) infraaws.Shell {
		return &shell{m, host, hostKeys, w}
	}
}

// directory boots the machine when it is first reached.
func (m *machines) directory(ctx context.Context, id string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if dir := m.dirs[id]; dir != "" {
		return dir, nil
	}
	out, err := m.client.EC2.DescribeInstanceAttribute(ctx, &ec2.DescribeInstanceAttributeInput{
		InstanceId: &id, Attribute: types.InstanceAttributeNameUserData,
	})
	if err != nil {
		return "", err
	}
	raw, err := base64.StdEncoding.DecodeString(*out.UserData.Value)
	if err != nil {
		return "", err
	}
	var config struct {
		Keys map[string]string `json:"ssh_keys"`
	}
	if err := yaml.Unmarshal(raw, &config); err != nil {
		return "", err
	}
	dir := m.t.TempDir()
	for name, content := range map[string]string{
		"ssh_host_ed25519_key":     config.Keys["ed25519_private"],
		"ssh_host_ed25519_key.pub": config.Keys["ed25519_public"] + "\n",
		"ssh_host_rsa_key":         "left over",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return "", err
		}
	}
	m.dirs[id] = dir
	return dir, nil
}

// hostKey returns the key in use, in authorized_keys form.
func (m *machines) hostKey(id string) string {
	m.t.Helper()
	dir, err := m.directory(m.t.Context(), id)
	if err != nil {
		m.t.Fatal(err)
	}
	return inUse(m.t.Context(), dir)
}

// inUse derives the public key from the private one, as sshd does.
func inUse(ctx context.Context, dir string) string {
	out, err := exec.CommandContext(ctx, "ssh-keygen", "-y", "-f", filepath.Join(dir, "ssh_host_ed25519_key")).Output()
	if err != nil {
		return "unusable: " + err.Error()
	}
	return strings.Join(strings.Fields(string(out))[:2], " ")
}

type shell struct {
	machines *machines
	host     infraaws.Machine
	hostKeys []string
	wire     *wire
}

func (s *shell) WaitReady(ctx context.Context, _ time.Duration) error {
	_, err := s.login(ctx)
	return err
}

func (s *shell) login(ctx context.Context) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	dir, err := s.machines.directory(ctx, s.host.ID)
	if err != nil {
		return "", err
	}
	if key := inUse(ctx, dir); !slices.Contains(s.hostKeys, key) {
		return "", &remote.HostKeyError{Machine: s.host.Name, Wanted: s.hostKeys, Got: []string{key}}
	}
	return dir, nil
}

// Run counts as a call on the wire, so that tests can die at it.
func (s *shell) Run(ctx context.Context, cmd remote.Command) (remote.Output, error) {
	dying, dead := s.wire.note("ssh")
	if dead && !(dying && s.wire.arrives) {
		return remote.Output{}, errKilled
	}
	dir, err := s.login(ctx)
	if err != nil {
		return remote.Output{}, err
	}
	script := strings.ReplaceAll(cmd.Script, "/etc/ssh", dir)
	run := exec.Command("sh", "-c", script)
	run.Env = []string{"PATH=" + s.machines.bin + ":" + os.Getenv("PATH")}
	var stderr strings.Builder
	run.Stderr = &stderr
	out, err := run.Output()
	if dead {
		s.wire.cancel()
		return remote.Output{}, errKilled
	}
	if err != nil {
		return remote.Output{}, &remote.ExitError{Machine: s.host.Name, Code: 1, Stderr: stderr.String()}
	}
	return remote.Output{Stdout: out}, nil
}

// deaf is a machine that never answers.
type deaf struct{}

func (deaf) WaitReady(ctx context.Context, _ time.Duration) error {
	<-ctx.Done()
	return ctx.Err()
}

func (deaf) Run(ctx context.Context, _ remote.Command) (remote.Output, error) {
	<-ctx.Done()
	return remote.Output{}, ctx.Err()
}
