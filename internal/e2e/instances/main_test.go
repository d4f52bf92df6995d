// Package instances_test tests the machines of one cluster of examples/ha-cluster: changes of
// instance type, image, volume and instance profile, replaced and lost machines, and an import of
// everything into an empty state, while clients read and write through the Elastic IP. Package
// lifecycle_test covers the life of the cluster's other resources.
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
