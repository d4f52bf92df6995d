package lifecycle_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// testBastion reaches the machines through lb-0. Until the network lets SSH in from there, the plan
// warns and says what to set.
func (c *cluster) testBastion(t *testing.T) {
	const provider, network = "provider \"k8s\" {}\n", "  admin_cidrs = var.admin_cidrs\n"
	if !strings.Contains(c.main, provider) || !strings.Contains(c.main, network) {
		t.Fatal("the example has another provider or network")
	}
	write := func(main string) {
		t.Helper()
		if err := c.WS.WriteFile("main.tf", main); err != nil {
			t.Fatal(err)
		}
	}
	main := strings.Replace(c.main, provider, fmt.Sprintf(`provider "k8s" {
  ssh = {
    connect_timeout = "3s"
    bastion         = { address = %q, host_keys = [%q] }
  }
}
`, c.Addresses["lb-0"], c.HostKeys["lb-0"]), 1)
	write(main)
	changes, text, err := c.WS.Plan(t.Context())
	if err != nil || changes {
		t.Fatalf("changes %v, %v:\n%s", changes, err, text)
	}
	harness.Says(t, text, "Machine controller-0 cannot be reached", "Machine worker-0 cannot be reached", "set bastion_role of k8s_network")
	if strings.Contains(harness.Flat(text), "Machine lb-0 cannot be reached") {
		t.Errorf("the bastion is not reached directly:\n%s", text)
	}

	write(strings.Replace(main, network, network+"  bastion_role = \"lb\"\n", 1))
	c.Apply(t)
	changes, text, err = c.WS.Plan(t.Context())
	if err != nil || changes || strings.Contains(harness.Flat(text), "cannot be reached") {
		t.Errorf("changes %v, %v:\n%s", changes, err, text)
	}

	write(c.main)
	c.Apply(t)
	c.NoChanges(t)
}
