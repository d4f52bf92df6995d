// Package lifecycle_test follows one cluster of examples/ha-cluster through
// its life: real Terraform installs it with an older release, in an adopted VPC
// with two subnets and two route tables, upgrades it, replaces machines it has
// lost and scales it, while clients go on reading and writing through the
// Elastic IP.
package lifecycle_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

const (
	before = "1.35.4"
	after  = harness.KubernetesVersion
)

var suite *harness.Suite

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, func(s *harness.Suite) { suite = s }, "--kubernetes", "v"+after+",v"+before))
}

// cluster is the cluster under test and what is configured of it.
type cluster struct {
	*harness.Cluster
	main string // the example's main.tf, in the adopted VPC
	vars map[string]any
	site *site
}

// set changes the configuration's variables.
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
