// Package lifecycle_test covers the life of one cluster of examples/ha-cluster: real Terraform
// installs it with an older release, in an adopted VPC with two subnets and two route tables,
// upgrades it, replaces lost machines and scales it, while clients read and write through the
// Elastic IP.
package lifecycle_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// way lists the Kubernetes releases of the cluster, oldest first: upstream's last two, or those in
// K8S_UPGRADES.
var way = strings.Split(cmp.Or(os.Getenv("K8S_UPGRADES"), harness.KubernetesVersion+","+harness.NextKubernetesVersion), ",")

var suite *harness.Suite

func TestMain(m *testing.M) {
	if len(way) < 2 {
		fmt.Fprintf(os.Stderr, "K8S_UPGRADES=%s must be two releases or more, with commas between them\n", os.Getenv("K8S_UPGRADES"))
		os.Exit(2)
	}
	// kubectl always has the same release.
	os.Exit(harness.Main(m, func(s *harness.Suite) { suite = s }, "--kubernetes", "v"+strings.Join(append(way, harness.KubernetesVersion), ",v")))
}

// cluster is the cluster under test and its configuration.
type cluster struct {
	*harness.Cluster
	main string // the example's main.tf, in the adopted VPC
	vars map[string]any
	site *site
	// version is the cluster's present Kubernetes release.
	version string
}

// set sets the configuration's variables.
func (c *cluster) set(t *testing.T, vars map[string]any) {
	t.Helper()
	for k, v := range vars {
		c.vars[k] = v
	}
	b, err := json.Marshal(c.vars)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.WS.WriteFile("test.auto.tfvars.json", string(b)); err != nil {
		t.Fatal(err)
	}
}
