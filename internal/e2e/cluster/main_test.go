// Package cluster_test runs the project's main job end to end: real Terraform applies
// examples/ha-cluster to the local EC2, and the resulting cluster is used and destroyed.
package cluster_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

var suite *harness.Suite

// debian is the release that machines boot: this is the test of an installation.
const debian = "13"

func TestMain(m *testing.M) { os.Exit(harness.MainOn(m, debian, func(s *harness.Suite) { suite = s })) }

// cluster is the cluster under test.
type cluster struct{ *harness.Cluster }

func newCluster(t *testing.T, name, cli string) *cluster {
	t.Helper()
	ws := suite.Workspace(t, name, cli, filepath.Join(suite.Root, "examples", "ha-cluster"))
	suite.Bind(t, ws, "demo")
	return &cluster{suite.Cluster(ws)}
}

// privateMaterial returns lines of every private key and secret of a running cluster that must
// appear in no state, plan or log.
func (c *cluster) privateMaterial(t *testing.T) []string {
	t.Helper()
	var found []string
	for machine := range c.Addresses {
		out := c.Sh(t, machine, `find /etc/kubernetes /etc/etcd /etc/ssh /etc/haproxy /var/lib/kubelet/pki -type f 2>/dev/null | xargs -r grep -l -s 'PRIVATE KEY' | xargs -r cat; cat /etc/kubernetes/encryption-config.yaml 2>/dev/null || true`)
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
