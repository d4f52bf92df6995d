package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

// Cluster is what tests know about a cluster that Terraform has created from examples/ha-cluster or
// a similar configuration.
type Cluster struct {
	WS         *workspace.Workspace
	Kubeconfig string // path of an administrator's kubeconfig
	Endpoint   string
	Addresses  map[string]string // machine -> public address
	HostKeys   map[string]string // machine -> authorized_keys line
	Bastion    string            // machine through which the others are reached; may be empty

	suite *Suite
}

// Cluster returns the cluster of a workspace. Learn fills it after the first apply.
func (s *Suite) Cluster(ws *workspace.Workspace) *Cluster { return &Cluster{WS: ws, suite: s} }

// Learn reads endpoint and machines from the state, and creates a kubeconfig.
func (c *Cluster) Learn(t *testing.T) {
	t.Helper()
	c.LearnThrough(t, "")
}

// LearnThrough is Learn of a cluster whose endpoint is reached through a proxy.
func (c *Cluster) LearnThrough(t *testing.T, proxyURL string) {
	t.Helper()
	c.LearnMachines(t)
	c.Kubeconfig = filepath.Join(c.WS.Dir, "kubeconfig")
	cmd := exec.CommandContext(t.Context(), filepath.Join(c.suite.Bin, "k8s-kubeconfig"), "--cluster", "demo", "--endpoint", c.Endpoint,
		"--proxy-url", proxyURL, "--output", c.Kubeconfig)
	cmd.Env = c.suite.Env()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("k8s-kubeconfig: %v\n%s", err, out)
	}
}

// LearnMachines reads endpoint and machines from the state.
func (c *Cluster) LearnMachines(t *testing.T) {
	t.Helper()
	if err := c.WS.Output(t.Context(), "endpoint", &c.Endpoint); err != nil {
		t.Fatal(err)
	}
	c.Addresses, c.HostKeys = map[string]string{}, map[string]string{}
	resources := c.Resources(t)
	for _, m := range machinesIn(t, resources) {
		c.Addresses[m.Host.Name], c.HostKeys[m.Host.Name] = m.Host.Address, m.Host.HostKey
	}
	if c.HostKeys["controller-0"] == "" || c.HostKeys["worker-0"] == "" {
		t.Fatalf("machines in state: %v", c.Addresses)
	}
	for _, r := range resources {
		if r.Type != "k8s_lb" {
			continue
		}
		var lb struct {
			PublicIP string `json:"public_ip"`
		}
		if err := json.Unmarshal(r.Values, &lb); err != nil {
			t.Fatal(err)
		}
		c.Addresses["lb-0"] = lb.PublicIP
	}
}

// Machine is a machine in the state.
type Machine struct {
	ID   string `json:"id"` // id of its instance
	Role string `json:"role"`
	Host struct {
		Name    string `json:"name"`
		Address string `json:"address"`
		HostKey string `json:"host_key"`
	} `json:"host"`
}

// Machines returns the machines in the state.
func (c *Cluster) Machines(t *testing.T) []Machine {
	t.Helper()
	return machinesIn(t, c.Resources(t))
}

func machinesIn(t *testing.T, resources []Resource) []Machine {
	t.Helper()
	var out []Machine
	for _, r := range resources {
		if r.Type != "k8s_machine" {
			continue
		}
		var m Machine
		if err := json.Unmarshal(r.Values, &m); err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

// Etcdctl is the beginning of an etcdctl command that asks the member on its own controller.
const Etcdctl = "/usr/local/bin/etcdctl --endpoints https://127.0.0.1:2379 --cacert /etc/etcd/pki/ca.crt --cert /etc/etcd/pki/server.crt --key /etc/etcd/pki/server.key "

// Members returns the ids of etcd's voters, by machine.
func (c *Cluster) Members(t *testing.T) map[string]string {
	t.Helper()
	var out string
	Eventually(t, time.Minute, "the members of etcd", func() (err error) { // the command needs a leader
		out, err = c.suite.TryConsole(t.Context(), "controller-0", Etcdctl+"member list")
		return err
	})
	members := map[string]string{}
	for line := range strings.Lines(out) {
		// ID, status, name, peer addresses, client addresses, is learner
		f := strings.Split(strings.TrimSpace(line), ", ")
		if len(f) == 6 && f[1] == "started" && f[5] == "false" {
			members[f[2]] = f[0]
		}
	}
	return members
}

// Kubectl runs kubectl as the administrator and fails the test on an error.
func (c *Cluster) Kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.suite.Kubectl(t.Context(), c.Kubeconfig, nil, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Stop ends a test whose step has failed. The log gets what the cluster says of its nodes, pods,
// PodDisruptionBudgets and latest events.
func (c *Cluster) Stop(t *testing.T) {
	t.Helper()
	for _, args := range [][]string{{"nodes"}, {"pods", "--all-namespaces"}, {"poddisruptionbudgets", "--all-namespaces", "--output=yaml"}, {"events", "--all-namespaces", "--sort-by=.lastTimestamp"}} {
		if c.Kubeconfig == "" {
			break // it has none yet
		}
		out, err := c.suite.Kubectl(t.Context(), c.Kubeconfig, nil, append([]string{"get", "--output=wide", "--request-timeout=10s"}, args...)...)
		lines := strings.SplitAfter(out, "\n")
		t.Logf("kubectl get %s: %v\n%s", args[0], err, strings.Join(lines[max(0, len(lines)-100):], ""))
	}
	t.FailNow()
}

// Create creates the objects of manifests as the administrator.
func (c *Cluster) Create(t *testing.T, manifests string) {
	t.Helper()
	if _, err := c.suite.Kubectl(t.Context(), c.Kubeconfig, strings.NewReader(manifests), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// Sh runs a script as root on a machine. The machine's host key must be the pinned one.
func (c *Cluster) Sh(t *testing.T, machine, script string) string {
	t.Helper()
	out, err := c.TrySh(t.Context(), machine, script)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TrySh is Sh, but returns the error. The output combines both streams.
func (c *Cluster) TrySh(ctx context.Context, machine, script string) (string, error) {
	out, err := c.run(ctx, machine, strings.NewReader(script), "sh -s")
	if err != nil {
		return out, fmt.Errorf("%s: %w\n%s\n%s", machine, err, script, out)
	}
	return out, nil
}

// Send runs a command as root on a machine, which reads what from gives.
func (c *Cluster) Send(ctx context.Context, machine string, from io.Reader, command string) error {
	if out, err := c.run(ctx, machine, from, command); err != nil {
		return fmt.Errorf("%s: %s: %w\n%s", machine, command, err, out)
	}
	return nil
}

func (c *Cluster) run(ctx context.Context, machine string, stdin io.Reader, command string) (string, error) {
	client, err := c.connect(ctx, machine)
	if err != nil {
		return "", err
	}
	defer func() { _ = client.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = client.Close() })
	defer stop()
	session, err := client.NewSession()
	if err != nil {
		return "", err
	}
	session.Stdin = stdin
	out, err := session.CombinedOutput("sudo -n " + command)
	return string(out), err
}

// connect logs in to a machine, through the bastion if there is one.
func (c *Cluster) connect(ctx context.Context, machine string) (*ssh.Client, error) {
	key, err := os.ReadFile(c.suite.SSH)
	if err != nil {
		return nil, err
	}
	signer, err := ssh.ParsePrivateKey(key)
	if err != nil {
		return nil, err
	}
	pinned, _, _, _, err := ssh.ParseAuthorizedKey([]byte(c.HostKeys[machine]))
	if err != nil {
		return nil, fmt.Errorf("host key: %w", err)
	}
	const patience = 10 * time.Second
	dial := (&net.Dialer{Timeout: patience}).DialContext
	if c.Bastion != "" && machine != c.Bastion {
		bastion, err := c.connect(ctx, c.Bastion)
		if err != nil {
			return nil, fmt.Errorf("bastion %s: %w", c.Bastion, err)
		}
		context.AfterFunc(ctx, func() { _ = bastion.Close() })
		dial = bastion.DialContext
	}
	conn, err := dial(ctx, "tcp", net.JoinHostPort(c.Addresses[machine], "22"))
	if err != nil {
		return nil, err
	}
	connection, channels, requests, err := ssh.NewClientConn(conn, machine, &ssh.ClientConfig{
		User:              "admin",
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback:   ssh.FixedHostKey(pinned),
		HostKeyAlgorithms: []string{pinned.Type()},
		Timeout:           patience,
	})
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return ssh.NewClient(connection, channels, requests), nil
}

// Apply runs terraform apply, fails the test on an error, and returns the output.
func (c *Cluster) Apply(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.WS.Apply(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Destroy runs terraform destroy. It fails the test on an error, or if anything is left in the
// account.
func (c *Cluster) Destroy(t *testing.T) {
	t.Helper()
	if _, err := c.WS.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.suite.Empty(t)
}

// NoChanges fails the test unless a plan is empty.
func (c *Cluster) NoChanges(t *testing.T) {
	t.Helper()
	changes, text, err := c.WS.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if changes {
		t.Fatalf("the plan is not empty:\n%s", text)
	}
}

// Units returns the units of all machines, see Suite.Units.
func (c *Cluster) Units(t *testing.T) map[string]Unit {
	t.Helper()
	return c.suite.Units(t, slices.Collect(maps.Keys(c.Addresses))...)
}
