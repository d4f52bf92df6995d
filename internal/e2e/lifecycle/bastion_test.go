package lifecycle_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// testBastion reaches the machines through lb-0. Until the network lets SSH in from there, the plan
// warns and says what to set. The network then has thirty admin_cidrs as well.
func (c *cluster) testBastion(t *testing.T) {
	const network = "  admin_cidrs = var.admin_cidrs\n"
	if !strings.Contains(c.main, network) {
		t.Fatal("the example has another network")
	}
	write := func(name, text string) {
		t.Helper()
		if err := c.WS.WriteFile(name, text); err != nil {
			t.Fatal(err)
		}
	}
	write("bastion_override.tf", fmt.Sprintf(`provider "k8s" {
  ssh = {
    connect_timeout = "8s"
    bastion         = { address = %q, host_keys = [%q] }
  }
}
`, c.Addresses["lb-0"], c.HostKeys["lb-0"]))
	changes, text, err := c.WS.Plan(t.Context())
	if err != nil || changes {
		t.Fatalf("changes %v, %v:\n%s", changes, err, text)
	}
	harness.Says(t, text, "Machine controller-0 cannot be reached", "Machine worker-0 cannot be reached", "set bastion_role of k8s_network")
	if strings.Contains(harness.Flat(text), "Machine lb-0 cannot be reached") {
		t.Errorf("the bastion is not reached directly:\n%s", text)
	}

	const thirty = "  admin_cidrs = concat(var.admin_cidrs, [for i in range(29) : \"203.0.113.${i}/32\"])\n"
	write("main.tf", strings.Replace(c.main, network, thirty+"  bastion_role = \"lb\"\n", 1))
	c.Apply(t)
	changes, text, err = c.WS.Plan(t.Context())
	if err != nil || changes || strings.Contains(harness.Flat(text), "cannot be reached") {
		t.Errorf("changes %v, %v:\n%s", changes, err, text)
	}

	write("main.tf", c.main)
	write("bastion_override.tf", "")
	c.Apply(t)
	c.NoChanges(t)
}
