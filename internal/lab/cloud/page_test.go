package cloud_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/elbv2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iamapi"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ssm"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/sts"
)

var update = flag.Bool("update", false, "write the list of actions into the guide")

// TestPage compares the guide's list of actions with those that are served.
func TestPage(t *testing.T) {
	const page, begin, end = "../../../templates/guides/local-ec2-api.md", "<!-- actions: begin -->\n", "<!-- actions: end -->\n"
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(raw), begin)
	listed, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no list of actions", page)
	}
	var want strings.Builder
	for _, service := range []struct {
		name    string
		actions []string
	}{{"EC2", ec2.Actions()}, {"ELB", elbv2.Actions()}, {"SSM", ssm.Actions()}, {"STS", sts.Actions()}, {"IAM", iamapi.Actions()}, {"Service Quotas", cloud.QuotaActions()}, {"ECR", cloud.ECRActions()}} {
		fmt.Fprintf(&want, "\n**%s** (%d): `%s`\n", service.name, len(service.actions), strings.Join(service.actions, "`, `"))
	}
	want.WriteString("\n")
	if *update {
		if err := os.WriteFile(page, []byte(before+begin+want.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if listed != want.String() {
		t.Errorf("the actions served have changed: go test ./internal/lab/cloud -run TestPage -update writes them into %s; then say there what they enforce", page)
	}
}
