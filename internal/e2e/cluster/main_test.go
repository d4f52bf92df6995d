// Package cluster_test runs the project's main job end to end: real Terraform
// applies examples/ha-cluster to the local EC2, and the cluster that comes of
// it is used, damaged, repaired and destroyed.
package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

var suite *harness.Suite

func TestMain(m *testing.M) { os.Exit(harness.Main(m, func(s *harness.Suite) { suite = s })) }

// cluster is what the tests know of the cluster under test.
type cluster struct {
	ws         *workspace.Workspace
	kubeconfig string
	endpoint   string
	addresses  map[string]string // machine -> public address
	hostKeys   map[string]string // machine -> authorized_keys line
}

// up applies the example and learns what the tests need from its state.
func up(t *testing.T, name, cli string) *cluster {
	t.Helper()
	c := &cluster{ws: suite.Workspace(t, name, cli, filepath.Join(suite.Root, "examples", "ha-cluster"))}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of every command is %s", filepath.Join(suite.Dir, name+".log"))
		}
	})
	if _, err := c.ws.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.learn(t)
	return c
}

// learn reads endpoint and machines from the state and makes a kubeconfig.
func (c *cluster) learn(t *testing.T) {
	t.Helper()
	if err := c.ws.Output(t.Context(), "endpoint", &c.endpoint); err != nil {
		t.Fatal(err)
	}
	c.addresses, c.hostKeys = map[string]string{}, map[string]string{}
	for _, r := range c.resources(t) {
		if r.Type != "k8s_machine" {
			continue
		}
		var m struct {
			Host struct {
				Name    string `json:"name"`
				Address string `json:"address"`
				HostKey string `json:"host_key"`
			} `json:"host"`
		}
		if err := json.Unmarshal(r.Values, &m); err != nil {
			t.Fatal(err)
		}
		c.addresses[m.Host.Name], c.hostKeys[m.Host.Name] = m.Host.Address, m.Host.HostKey
	}
	if len(c.addresses) < 6 {
		t.Fatalf("machines in state: %v", c.addresses)
	}
	c.addresses["lb-0"] = strings.TrimSuffix(strings.TrimPrefix(c.endpoint, "https://"), ":6443")
	c.kubeconfig = filepath.Join(c.ws.Dir, "kubeconfig")
	cmd := exec.CommandContext(t.Context(), filepath.Join(suite.Bin, "k8s-kubeconfig"), "--cluster", "demo", "--endpoint", c.endpoint, "--output", c.kubeconfig)
	cmd.Env = suite.Env()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("k8s-kubeconfig: %v\n%s", err, out)
	}
}

type resource struct {
	Address string          `json:"address"`
	Type    string          `json:"type"`
	Values  json.RawMessage `json:"values"`
}

func (c *cluster) resources(t *testing.T) []resource {
	t.Helper()
	out, err := c.ws.Run(t.Context(), "show", "-json", "-no-color")
	if err != nil {
		t.Fatal(err)
	}
	var state struct {
		Values struct {
			RootModule struct {
				Resources []resource `json:"resources"`
			} `json:"root_module"`
		} `json:"values"`
	}
	if err := json.Unmarshal([]byte(out), &state); err != nil {
		t.Fatal(err)
	}
	return state.Values.RootModule.Resources
}

// kubectl runs kubectl as the administrator and fails the test on an error.
func (c *cluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := suite.Kubectl(t.Context(), c.kubeconfig, nil, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (c *cluster) create(t *testing.T, manifest string) {
	t.Helper()
	if _, err := suite.Kubectl(t.Context(), c.kubeconfig, strings.NewReader(manifest), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// sh runs a script as root on a machine, whose host key must be the pinned one.
func (c *cluster) sh(t *testing.T, machine, script string) string {
	t.Helper()
	out, err := c.trySh(t.Context(), machine, script)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (c *cluster) trySh(ctx context.Context, machine, script string) (string, error) {
	key, err := os.ReadFile(suite.SSH)
	if err != nil {
		return "", err
	}
	signer, err := ssh.ParsePrivateKey(key)
	if err != nil {
		return "", err
	}
	pinned, _, _, _, err := ssh.ParseAuthorizedKey([]byte(c.hostKeys[machine]))
	if err != nil {
		return "", fmt.Errorf("host key of %s: %w", machine, err)
	}
	client, err := ssh.Dial("tcp", c.addresses[machine]+":22", &ssh.ClientConfig{
		User:              "admin",
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback:   ssh.FixedHostKey(pinned),
		HostKeyAlgorithms: []string{pinned.Type()},
		Timeout:           10 * time.Second,
	})
	if err != nil {
		return "", fmt.Errorf("%s: %w", machine, err)
	}
	defer func() { _ = client.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = client.Close() })
	defer stop()
	session, err := client.NewSession()
	if err != nil {
		return "", err
	}
	session.Stdin = strings.NewReader(script)
	out, err := session.CombinedOutput("sudo -n sh -s")
	if err != nil {
		return string(out), fmt.Errorf("%s: %w\n%s\n%s", machine, err, script, out)
	}
	return string(out), nil
}

// noChanges fails when a plan is not empty.
func (c *cluster) noChanges(t *testing.T) {
	t.Helper()
	changes, text, err := c.ws.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if changes {
		t.Fatalf("the plan is not empty:\n%s", text)
	}
}

// leftovers lists what the local EC2 still holds.
func leftovers(t *testing.T) []string {
	t.Helper()
	var state map[string]json.RawMessage
	if err := suite.Control(t.Context(), "GET", "/_lab/state", nil, &state); err != nil {
		t.Fatal(err)
	}
	var left []string
	for kind, v := range state {
		var items []json.RawMessage
		if json.Unmarshal(v, &items) != nil {
			continue
		}
		for _, i := range items {
			left = append(left, kind+" "+string(i))
		}
	}
	slices.Sort(left)
	return left
}

// secrets is every private key and secret of a running cluster that must
// appear in no state, plan or log.
func (c *cluster) privateMaterial(t *testing.T) []string {
	t.Helper()
	var found []string
	for machine := range c.addresses {
		out := c.sh(t, machine, `find /etc/kubernetes /etc/etcd /etc/ssh /etc/haproxy /var/lib/kubelet/pki -type f 2>/dev/null | xargs -r grep -l -s 'PRIVATE KEY' | xargs -r cat; cat /etc/kubernetes/encryption-config.yaml 2>/dev/null || true`)
		for line := range strings.Lines(out) {
			line = strings.TrimSpace(line)
			if s, ok := strings.CutPrefix(line, "secret: "); ok {
				found = append(found, s)
			}
			if len(line) == 64 && !strings.ContainsAny(line, " -:") {
				found = append(found, line)
			}
		}
	}
	if len(found) < 20 {
		t.Fatalf("only %d lines of private keys found on the machines: the check would prove nothing", len(found))
	}
	return found
}

func readAll(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
