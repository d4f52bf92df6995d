package install_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
)

// TestSmokeAsks runs the guide's `make aws-smoke` from a clone until it asks, and says no. Package
// awssmoke has what comes then, with machines.
func TestSmokeAsks(t *testing.T) {
	a := account.New(t)
	home, clone := newHome(t), cloned(t)
	step := block(t, "make aws-smoke")
	for from, to := range map[string]string{"eu-central-1": "us-east-1", "make aws-smoke": "make aws-smoke ARGS='-admin-cidr 198.51.100.7/32 -kubectl true'"} {
		if !strings.Contains(step, from) {
			t.Fatalf("%q is not in %q", from, step)
		}
		step = strings.ReplaceAll(step, from, to)
	}
	for _, cli := range both(t) {
		out, err := try(t, a, home, clone, cli, `export TF_ACC_TERRAFORM_PATH=$CLI; echo no | `+step)
		if err == nil {
			t.Errorf("no error although the answer was no:\n%s", out)
		}
		for _, want := range []string{
			"account  123456789012, as arn:aws:iam::", "region   us-east-1", "about $0.29 an hour in us-east-1", "6 t3.medium, 120 GiB of gp3, 6 public IPv4 addresses", "nothing was made",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: %q is missing in\n%s", cli, want, out)
			}
		}
	}
	a.Empty()
	if left, err := filepath.Glob(filepath.Join(clone, ".aws-smoke", "*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}
