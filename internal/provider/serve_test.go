package provider_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestSettledAtTheEnd applies with Terraform and a provider process of its own. When Terraform has
// ended, everything is settled without a refresh: a second state is refused at once. Terraform kills a process that does not
// end within two seconds, as on a slow computer. So there are three attempts.
func TestSettledAtTheEnd(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("terraform"); err != nil {
		t.Skip("there is no terraform in PATH")
	}
	for more := 2; !settledAtTheEnd(t, more == 0); more-- {
	}
}

// settledAtTheEnd is one attempt. It returns false if the second state was not refused and there will be another attempt.
func settledAtTheEnd(t *testing.T, last bool) bool {
	t.Helper()
	a := account.New(t)
	const resources = `resource "k8s_network" "this" {
  cluster     = "demo"
  admin_cidrs = ["198.51.100.7/32"]
}
resource "k8s_pki" "this" { cluster = "demo" }
`
	mine, theirs := providertest.NewDirectory(t, a, resources), providertest.NewDirectory(t, a, resources)
	if out, err := mine.Run("apply", "-auto-approve"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := theirs.Run("apply", "-auto-approve")
	if words := strings.Join(strings.Fields(strings.ReplaceAll(out, "│", "")), " "); err == nil || strings.Count(words, "belongs to another state") != 2 {
		if !last {
			return false
		}
		t.Errorf("the second state: %v\n%s", err, out)
	}
	if out, err := theirs.Run("destroy", "-auto-approve"); err != nil || !strings.Contains(out, "No objects need to be destroyed") && !strings.Contains(out, "0 destroyed") {
		t.Errorf("the second state's destroy: %v\n%s", err, out)
	}
	if out, err := mine.Run("plan", "-detailed-exitcode"); err != nil {
		t.Errorf("the first state's plan: %v\n%s", err, out)
	}
	if out, err := mine.Run("destroy", "-auto-approve"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	a.Empty()
	return true
}
