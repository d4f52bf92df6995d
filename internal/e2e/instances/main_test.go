// Package instances_test is about the machines beneath one cluster of
// examples/ha-cluster: their instance type, image and volume changed, machines
// replaced and lost, and everything imported into an empty state, while clients
// go on reading and writing through the Elastic IP. What the cluster's own
// resources do in their life is in package lifecycle_test.
package instances_test

import (
	"os"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

var suite *harness.Suite

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, func(s *harness.Suite) { suite = s }))
}
