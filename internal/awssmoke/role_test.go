package main

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
)

// second reads the report of the trial that a role made.
func (f *fixture) second(t *testing.T) (r report, page, dir string) {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(f.into, "smoke-*"))
	if err != nil {
		t.Fatal(err)
	}
	dirs = slices.DeleteFunc(dirs, func(d string) bool { return d == f.dir })
	if len(dirs) != 1 {
		t.Fatalf("trials beside the first: %q", dirs)
	}
	r, raw, text := readReport(t, dirs[0])
	if strings.Contains(raw+text, "arn:") || strings.Contains(text, cloud.DefaultAccountID) {
		t.Errorf("the report identifies the account:\n%s", text)
	}
	return r, text, dirs[0]
}

// TestRole: the second trial is a small one by a role with the documented policies, which is gone at the end.
func TestRole(t *testing.T) {
	f := newFixture(t, "-yes")
	f.does(t, "apply", `cp trial_override.tf trial.auto.tfvars.json "$FAKE"`)
	if err := f.again(t.Context(), t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, f.out.String())
	}
	r, text, _ := f.second(t)
	for _, want := range []string{"- rights of the provider: a role with everyday.json and destroy.json of examples/iam\n", "| role | passed |", "| delete the role | passed |", "| empty plan | passed |"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if strings.Contains(text, "were refused\n\nA refusal") || len(r.Denials) > 0 {
		t.Error(text)
	}
	override, err := os.ReadFile(filepath.Join(f.fake, "trial_override.tf"))
	if err != nil || !strings.Contains(string(override), `assume_role = { role_arn = "arn:aws:iam::123456789012:role/`+r.Name+`"`) {
		t.Errorf("%v\n%s", err, override)
	}
	vars, err := os.ReadFile(filepath.Join(f.fake, "trial.auto.tfvars.json"))
	if err != nil || !strings.Contains(string(vars), `"controllers": 1`) || !strings.Contains(string(vars), `"workers": 1`) {
		t.Errorf("%v\n%s", err, vars)
	}
	if _, roles := f.aws.Cloud.Identities().List(); len(roles) != 0 {
		t.Errorf("left: %+v", roles)
	}
}

// TestDenials: the report says which action was refused under the policies, and which condition did not hold.
func TestDenials(t *testing.T) {
	f := newFixture(t, "-yes")
	said, err := json.Marshal(map[string]any{"context": map[string]any{
		"action": "ec2:TerminateInstances", "resource": "arn:aws:ec2:us-east-1:123456789012:instance/i-0123456789abcdef0",
		"conditions": map[string]any{"items": []any{map[string]any{"key": "aws:ResourceTag/Name", "values": map[string]any{"items": []any{map[string]any{"value": "x"}}}}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	denied := base64.RawURLEncoding.EncodeToString([]byte(`{"explicitDeny":true,"context":{"action":"ec2:DeleteVpc","resource":"arn:aws:ec2:us-east-1:123456789012:vpc/vpc-1"}}`))
	f.does(t, "apply", `echo "[DEBUG] AWS refused a call: action=DeleteVpc code=UnauthorizedOperation encoded=`+denied+` service=EC2
[DEBUG] AWS refused a call: action=TerminateInstances code=UnauthorizedOperation encoded=`+base64.RawURLEncoding.EncodeToString(said)+` service=EC2
[DEBUG] AWS refused a call: action=GetParameter code=AccessDeniedException service=SSM
[DEBUG] AWS refused a call: action=AssumeRole code=AccessDenied service=STS" >>"$TF_LOG_PATH"; exit 1`)
	if err := f.again(t.Context(), t.Context()); err == nil {
		t.Error("no error")
	}
	r, text, _ := f.second(t)
	for _, want := range []string{
		"## Permissions that were refused", "- ec2:TerminateInstances on instance\n", "wants StringLike aws:ResourceTag/k8s-from-scratch/cluster \"*\", and the request lacks the key",
		"- ssm:GetParameter\n  - statement KeepKeys allows it, perhaps for other resources\n", "a permission was refused: ec2:TerminateInstances",
		"- ec2:DeleteVpc on vpc\n  - a statement of another policy denies it",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if !slices.Contains(r.results(passedStep), "delete the role") || strings.Contains(text, "AssumeRole\n") { // the caller's
		t.Error(text)
	}
}

// TestNoRole: who may not make a role is told how to do without, and nothing is made.
func TestNoRole(t *testing.T) {
	f := newFixture(t, "-yes")
	f.aws.Fault(fault.Fault{Kind: fault.Fail, Action: "CreateRole", Code: "AccessDenied", Status: 403})
	if err := f.again(t.Context(), t.Context()); err == nil || !strings.Contains(err.Error(), "-once leaves it out") {
		t.Error(err)
	}
	if r, _, _ := f.second(t); slices.Contains(f.calls(t), "apply") || !slices.Equal(r.results(failed), []string{"role"}) {
		t.Errorf("terraform %q, %+v", f.calls(t), r.Steps)
	}
}

// TestRoleCannotDestroy: the caller destroys what the role may not, and the trial has failed.
func TestRoleCannotDestroy(t *testing.T) {
	f := newFixture(t, "-yes")
	f.does(t, "destroy", `if grep -q assume_role trial_override.tf; then echo 'Error: UnauthorizedOperation' >&2; exit 1; fi`)
	if err := f.again(t.Context(), t.Context()); err == nil || !strings.Contains(err.Error(), "terraform destroy by the role") {
		t.Error(err)
	}
	r, text, dir := f.second(t)
	if !slices.Contains(r.results(passedStep), "terraform destroy") || !slices.Contains(r.results(passedStep), "delete the role") || !strings.Contains(text, "terraform destroy by the role") {
		t.Error(text)
	}
	if _, err := os.Stat(filepath.Join(dir, "destroy-by-hand.txt")); err == nil {
		t.Error("it says how to destroy what is gone")
	}
}

// TestRoleIsDeleted: a role whose creation was not answered is deleted all the same, and so is one with which the plan fails.
func TestRoleIsDeleted(t *testing.T) {
	for name, spoil := range map[string]func(f *fixture){
		"no answer": func(f *fixture) {
			f.aws.Fault(fault.Fault{Kind: fault.Fail, Action: "GetRole", Code: "ServiceFailure", Status: 400})
		},
		"no plan": func(f *fixture) { f.does(t, "plan", "exit 1") },
	} {
		f := newFixture(t, "-yes")
		spoil(f)
		if err := f.again(t.Context(), t.Context()); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, roles := f.aws.Cloud.Identities().List(); len(roles) != 0 {
			t.Errorf("%s: left: %+v", name, roles)
		}
		if r, _, _ := f.second(t); !slices.Contains(r.results(passedStep), "delete the role") {
			t.Errorf("%s: %+v", name, r.Steps)
		}
	}
}

// TestTrusting: every process of a caller with a role has a session of its own, and each may assume the trial's role.
func TestTrusting(t *testing.T) {
	const account = "arn:aws-us-gov:iam::123456789012:"
	for caller, want := range map[string]string{
		account + "user/x/ada": `"AWS":"` + account + `user/x/ada"`,
		"arn:aws-us-gov:sts::123456789012:assumed-role/AWSReservedSSO_Admin/ada": `"aws:PrincipalArn":["` + account + `role/AWSReservedSSO_Admin","` + account + `role/*/AWSReservedSSO_Admin"]`,
	} {
		if got, err := trusting(caller); err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %s, %v", caller, got, err)
		}
	}
}

// TestRoleByRole: the caller is a session of a role.
func TestRoleByRole(t *testing.T) {
	f := newFixture(t, "-yes")
	admin := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}`
	if _, err := f.aws.Cloud.Identities().PutRole("admin", iam.Entity{Path: "/x/", Policies: []string{admin}}, ""); err != nil {
		t.Fatal(err)
	}
	made, err := f.account.client.STS.AssumeRole(t.Context(), &sts.AssumeRoleInput{RoleArn: aws.String("arn:aws:iam::123456789012:role/x/admin"), RoleSessionName: aws.String("ada")})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", *made.Credentials.AccessKeyId)
	t.Setenv("AWS_SECRET_ACCESS_KEY", *made.Credentials.SecretAccessKey)
	t.Setenv("AWS_SESSION_TOKEN", *made.Credentials.SessionToken)
	if err := f.again(t.Context(), t.Context()); err != nil {
		t.Error(err)
	}
}
