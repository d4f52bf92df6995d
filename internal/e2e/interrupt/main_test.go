// Package interrupt_test interrupts applies: the provider or the Terraform CLI is killed, EC2
// refuses and delays calls, machines die or are cut off. In every case nothing is lost, and the
// next apply converges.
//
// K8S_INTERRUPT_COUNT sets the number of kills, as `make soak PART=kills-1` does.
// K8S_INTERRUPT_SEED repeats the random choices of an earlier run, as far as the speed of the
// computer allows.
package interrupt_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

var suite *harness.Suite

func TestMain(m *testing.M) {
	// Installations are what is interrupted. make soak interrupts those of Debian 13.
	os.Exit(harness.MainOn(m, "12", func(s *harness.Suite) { suite = s }))
}

// fromEnvironment returns a number from the environment.
func fromEnvironment(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// source returns the random source of a test, seeded by K8S_INTERRUPT_SEED or the clock.
func source(t *testing.T) *rand.Rand {
	t.Helper()
	seed := fromEnvironment(t, "K8S_INTERRUPT_SEED", uint64(time.Now().UnixNano()))
	t.Logf("K8S_INTERRUPT_SEED=%d repeats these choices", seed)
	return rand.New(rand.NewPCG(seed, seed))
}

// cluster is the six-machine example in its own working directory.
type cluster struct {
	*harness.Cluster
	revision int
	// quiet is how long a plan takes without failures.
	quiet time.Duration
}

func newCluster(t *testing.T, name string) *cluster {
	t.Helper()
	ws := suite.Workspace(t, name, suite.CLI, filepath.Join(suite.Root, "examples", "ha-cluster"))
	return &cluster{Cluster: suite.Cluster(ws)}
}

// change writes another revision of the configuration. It changes tags in EC2, the API servers'
// certificates and flags, the kubelets and the Node objects.
func (c *cluster) change(t *testing.T) {
	t.Helper()
	c.revision++
	override := fmt.Sprintf(`
resource "k8s_machine" "controller" {
  tags = { revision = "%[1]d" }
}

resource "k8s_control_plane" "this" {
  extra_sans = ["revision-%[1]d.example"]
  extra_args = { kube_apiserver = { event-ttl = "%[2]dm" } }
}

resource "k8s_worker_pool" "this" {
  labels         = { revision = "%[1]d" }
  kubelet_config = merge(var.elsewhere.kubelet_config, { maxPods = %[2]d })
}
`, c.revision, 50+c.revision%50)
	if err := c.WS.WriteFile("change_override.tf", override); err != nil {
		t.Fatal(err)
	}
}
