package account

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
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
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// Machines are the SSH servers of the instances. Each has a directory in place of /etc/ssh, filled
// by a fake cloud-init from the user data in EC2, in which the real scripts run under a real shell.
// A client is let in only if it pins the host key in use.
type Machines struct {
	t      *testing.T
	client *infraaws.Client
	// console returns the path of the log of an instance's console.
	console func(id string) string
	bin     string // before the others in PATH: replaces commands that a script must not really run

	shared    string // the disks of volumes, and the roots of machines
	volumeBin string // bin for scripts about data volumes; empty until there is one

	mu   sync.Mutex
	dirs map[string]string
}

// NewMachines returns the machines of the account to which client belongs.
func (a *Account) NewMachines(t *testing.T, client *infraaws.Client) *Machines {
	t.Helper()
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "systemctl"), []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return &Machines{t: t, client: client, console: (&QuietMachines{Consoles: a.consoles}).Console, bin: bin, shared: t.TempDir(), dirs: map[string]string{}}
}

// directory returns the machine's directory. The first call boots the machine.
func (m *Machines) directory(ctx context.Context, id string) (string, error) {
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
	if raw, err = cloudConfig(raw); err == nil {
		err = yaml.Unmarshal(raw, &config)
	}
	if err != nil {
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

// cloudConfig returns the last cloud-config in user data. It comes after those whose keys it replaces.
func cloudConfig(userData []byte) ([]byte, error) {
	if bytes.HasPrefix(userData, []byte("#cloud-config")) {
		return userData, nil
	}
	message, err := mail.ReadMessage(bytes.NewReader(userData))
	if err != nil {
		return nil, err
	}
	_, parameters, err := mime.ParseMediaType(message.Header.Get("Content-Type"))
	if err != nil {
		return nil, err
	}
	var found []byte
	for parts := multipart.NewReader(message.Body, parameters["boundary"]); ; {
		p, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(p.Header.Get("Content-Type"), "text/cloud-config;") {
			if found, err = io.ReadAll(p); err != nil {
				return nil, err
			}
		}
	}
}

// HostKey returns the host key in use, in authorized_keys form.
func (m *Machines) HostKey(id string) string {
	m.t.Helper()
	dir, err := m.directory(m.t.Context(), id)
	if err != nil {
		m.t.Fatal(err)
	}
	return inUse(m.t.Context(), dir)
}

// ForgetConsole empties the log of an instance's console, as EC2 does with what is older than 64 KiB.
func (m *Machines) ForgetConsole(id string) {
	m.t.Helper()
	if err := os.Remove(m.console(id)); err != nil {
		m.t.Fatal(err)
	}
}

// inUse derives the public key from the private key, as sshd does.
func inUse(ctx context.Context, dir string) string {
	out, err := exec.CommandContext(ctx, "ssh-keygen", "-y", "-f", filepath.Join(dir, "ssh_host_ed25519_key")).Output()
	if err != nil {
		return "unusable: " + err.Error()
	}
	return strings.Join(strings.Fields(string(out))[:2], " ")
}

// Login returns the machine's directory to a client that pins the key in use.
func (m *Machines) Login(ctx context.Context, host machine.Machine, hostKeys []string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	dir, err := m.directory(ctx, host.ID)
	if err != nil {
		return "", err
	}
	if key := inUse(ctx, dir); !slices.Contains(hostKeys, key) {
		return "", &remote.HostKeyError{Machine: host.Name, Wanted: hostKeys, Got: []string{key}}
	}
	return dir, nil
}

// Run runs a script that concerns the machine's SSH server, in its directory, or its data volume, or when it powers itself off. Any
// other script is taken to succeed, since it would run on this computer.
func (m *Machines) Run(ctx context.Context, host machine.Machine, hostKeys []string, cmd remote.Command) (remote.Output, error) {
	dir, err := m.Login(ctx, host, hostKeys)
	if err != nil {
		return remote.Output{}, err
	}
	if strings.Contains(cmd.Script, dataVolumeMark) {
		return m.runWithVolumes(ctx, host, cmd)
	}
	if aboutExpiry(cmd.Script) {
		return m.runWithUnits(ctx, host, cmd)
	}
	if !strings.Contains(cmd.Script, "/etc/ssh") {
		return remote.Output{}, nil
	}
	run := exec.CommandContext(context.WithoutCancel(ctx), "sh", "-c", strings.NewReplacer("/etc/ssh", dir, "/etc/systemd/system", dir, "/dev/console", m.console(host.ID)).Replace(cmd.Script))
	run.Env = []string{"PATH=" + m.bin + ":" + os.Getenv("PATH")}
	var stderr strings.Builder
	run.Stderr = &stderr
	out, err := run.Output()
	if err != nil {
		return remote.Output{}, &remote.ExitError{Machine: host.Name, Code: 1, Stderr: stderr.String()}
	}
	return remote.Output{Stdout: out}, nil
}

// Connect connects to machines directly.
func (m *Machines) Connect(host machine.Machine, hostKeys []string) machine.Shell {
	return shell{m, host, hostKeys}
}

type shell struct {
	machines *Machines
	host     machine.Machine
	hostKeys []string
}

func (s shell) WaitReady(ctx context.Context, _ time.Duration) error {
	_, err := s.machines.Login(ctx, s.host, s.hostKeys)
	return err
}

func (s shell) Run(ctx context.Context, cmd remote.Command) (remote.Output, error) {
	return s.machines.Run(ctx, s.host, s.hostKeys, cmd)
}
