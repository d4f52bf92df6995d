package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsaccount "github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	ec2lab "github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
)

// fixture is a trial in an account of this process, with programs that stand for terraform and
// kubectl.
type fixture struct {
	*trial
	aws  *awsaccount.Account
	fake string // what the programs do, see testdata
	out  bytes.Buffer
}

func newFixture(t *testing.T, answer string, change ...func(*cloud.Config)) *fixture {
	t.Helper()
	pause, settling, becoming = time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	a := awsaccount.New(t, change...)
	f := &fixture{aws: a, fake: t.TempDir()}
	testdata, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": a.URL, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": awsaccount.AccessKey, "AWS_SECRET_ACCESS_KEY": awsaccount.SecretKey,
		"FAKE": f.fake, "TF_ACC_TERRAFORM_PATH": filepath.Join(testdata, "terraform"), "TF_VAR_cluster": "another", "SSH_AUTH_SOCK": "/nowhere",
	} {
		t.Setenv(name, value)
	}
	f.does(t, "plan.json", planText)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	into, err := os.MkdirTemp("", "") // testdata/kubectl must not find the name of the test in a path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(into) })
	o := options{root: root, into: into, kubectl: filepath.Join(testdata, "kubectl"), image: "example/busybox:1", egress: "http://egress.example.com/",
		adminCIDR: "198.51.100.7/32", yes: answer == "-yes"}
	if f.trial, err = newTrial(t.Context(), o, strings.NewReader(answer), &f.out); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	f.compile = func(_ context.Context, _, dir string, _ ...string) error {
		for _, name := range []string{"terraform-provider-k8s", "k8s-kubeconfig"} {
			if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o700)); err != nil {
				return err
			}
		}
		return nil
	}
	return f
}

// does sets what a program does.
func (f *fixture) does(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(f.fake, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// calls returns the verbs that terraform was called with.
func (f *fixture) calls(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(f.fake, "calls"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// written reads the report, and fails the test if it identifies the account.
func (f *fixture) written(t *testing.T) (r report, page string) {
	t.Helper()
	r, raw, text := readReport(t, f.dir)
	for _, secret := range []string{f.account.id, f.account.arn, awsaccount.AccessKey, awsaccount.SecretKey, "arn:", "10.240.", "203.0.113.", "198.51.100."} {
		if secret == "" || strings.Contains(raw+text, secret) {
			t.Errorf("the report has %q:\n%s\n%s", secret, raw, text)
		}
	}
	return r, text
}

// readReport reads the report in the directory of a trial.
func readReport(t *testing.T, dir string) (r report, raw, page string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	return r, string(data), string(text)
}

// results returns the steps with one result.
func (r report) results(result string) (names []string) {
	for _, s := range r.Steps {
		if s.Result == result {
			names = append(names, s.Name)
		}
	}
	return names
}

func (f *fixture) byHandLeft() bool {
	_, err := os.Stat(f.byHandFile())
	return err == nil
}

// leave makes a VPC and a parameter of the cluster, which the fake destroy leaves.
func (f *fixture) leave(t *testing.T) {
	t.Helper()
	_, err := f.account.client.EC2.CreateVpc(t.Context(), &ec2.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16"), TagSpecifications: []types.TagSpecification{
		{ResourceType: types.ResourceTypeVpc, Tags: []types.Tag{{Key: aws.String(infraaws.TagCluster), Value: aws.String(f.name)}}}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.account.client.SSM.PutParameter(t.Context(), &ssm.PutParameterInput{
		Name: aws.String("/k8s/" + f.name + "/pki/x"), Value: aws.String("v"), Type: ssmtypes.ParameterTypeString})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTrial(t *testing.T) {
	f := newFixture(t, "yes\n")
	if err := f.run(t.Context(), t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, f.out.String())
	}
	if got, want := f.calls(t), []string{"init", "version", "plan", "show", "apply", "output", "second-plan", "destroy"}; !slices.Equal(got, want) {
		t.Errorf("terraform %q, want %q", got, want)
	}
	r, text := f.written(t)
	if got := r.results(passedStep); len(got) != len(r.Steps) || len(got) != 16 {
		t.Errorf("passed: %q of %+v", got, r.Steps)
	}
	for _, want := range []string{
		"not AWS: AWS_ENDPOINT_URL names another endpoint", "about $0.14 an hour in us-east-1", "- CLI: Terraform v1.16.0", "- Kubernetes: 1.36.4", "- nodes: v1.36.4, Debian",
		"| DNS | passed |", "| EC2 | RunInstances | VeryNewCode | 1 | **no** |", "VeryNewCode, which the local EC2 does not know", "the apply warned: Something is odd", "\nNothing.\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	for _, want := range []string{"account  " + f.account.id, "cost     about $0.14",
		"quotas   vCPUs of running On-Demand Standard instances (L-1216C47A): 6 needed, 0 used, limit 1000", "Elastic IPs (L-0263D0A3): 1 needed", "VPCs (L-F678F1CE): 1 needed", "aws-smoke-trial=" + f.name, "==> egress"} {
		if !strings.Contains(f.out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, f.out.String())
		}
	}
	manifests, err := os.ReadFile(filepath.Join(f.fake, "manifests"))
	if err != nil || !strings.Contains(string(manifests), "image: example/busybox:1") {
		t.Errorf("%v\n%s", err, manifests)
	}
	if _, err := os.Stat(f.work()); err == nil || f.byHandLeft() {
		t.Error("the state and the advice are left although nothing else is")
	}
}

// TestWhatTerraformGets looks at the working directory before anything is applied.
func TestWhatTerraformGets(t *testing.T) {
	f := newFixture(t, "no\n")
	if err := f.steps(t.Context(), f.preparation()); err != nil {
		t.Fatal(err)
	}
	vars, err := os.ReadFile(filepath.Join(f.work(), "trial.auto.tfvars.json"))
	if err != nil || !strings.Contains(string(vars), `"cluster": "`+f.name+`"`) || !strings.Contains(string(vars), `"198.51.100.7/32"`) {
		t.Errorf("%v\n%s", err, vars)
	}
	override, err := os.ReadFile(filepath.Join(f.work(), "trial_override.tf"))
	if err != nil || !strings.Contains(string(override), `{ "aws-smoke-trial" = "`+f.name+`" }`) {
		t.Errorf("%v\n%s", err, override)
	}
	for _, kv := range f.ws.Env {
		if strings.HasPrefix(kv, "TF_VAR_") || strings.HasPrefix(kv, "SSH_AUTH_SOCK=") {
			t.Errorf("Terraform gets %s", kv)
		}
	}
	if !f.ws.Apart {
		t.Error("Ctrl-C reaches Terraform twice")
	}
}

// TestQuestion checks that nothing is made without a yes.
func TestQuestion(t *testing.T) {
	for _, answer := range []string{"", "no\n", "y\n", "\n"} {
		f := newFixture(t, answer)
		if err := f.run(t.Context(), t.Context()); !errors.Is(err, errDeclined) {
			t.Errorf("%q: %v", answer, err)
		}
		if slices.Contains(f.calls(t), "apply") {
			t.Errorf("%q: applied", answer)
		}
		if _, err := os.Stat(f.dir); err == nil {
			t.Errorf("%q: %s is left", answer, f.dir)
		}
	}
	f := newFixture(t, "-yes")
	if err := f.run(t.Context(), t.Context()); err != nil || strings.Contains(f.out.String(), "Make it?") {
		t.Errorf("-yes: %v\n%s", err, f.out.String())
	}
}

// TestQuotas makes nothing in an account that has no room, and asks in an account that does not say its quotas.
func TestQuotas(t *testing.T) {
	f := newFixture(t, "-yes", func(c *cloud.Config) { c.Quotas = ec2lab.Quotas{} })
	for range 5 {
		if _, err := f.account.client.EC2.AllocateAddress(t.Context(), &ec2.AllocateAddressInput{}); err != nil {
			t.Fatal(err)
		}
	}
	err := f.run(t.Context(), t.Context())
	for _, want := range []string{"vCPUs of running On-Demand Standard instances (L-1216C47A): 6 needed and 0 used, and the limit is 5", "Elastic IPs (L-0263D0A3): 1 needed and 5 used, and the limit is 5"} {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "VPCs") {
			t.Errorf("%q is missing in %v", want, err)
		}
	}
	if r, _ := f.written(t); slices.Contains(f.calls(t), "apply") || !slices.Equal(r.results(failed), []string{"quotas"}) {
		t.Errorf("terraform %q, %+v", f.calls(t), r.Steps)
	}
	f = newFixture(t, "no\n", func(c *cloud.Config) { c.Quotas = ec2lab.Quotas{} })
	f.aws.Fault(fault.Fault{Kind: fault.Fail, Action: "GetServiceQuota", Code: "AccessDeniedException"})
	if err := f.run(t.Context(), t.Context()); !errors.Is(err, errDeclined) {
		t.Error(err)
	}
	if want := "vCPUs of running On-Demand Standard instances (L-1216C47A): 6 needed, 0 used, limit 5; the limit is the default of AWS: no permission for servicequotas:GetServiceQuota"; !strings.Contains(f.out.String(), want) {
		t.Errorf("%q is missing in\n%s", want, f.out.String())
	}
	f = newFixture(t, "no\n")
	f.aws.Fault(fault.Fault{Kind: fault.Fail, Action: "DescribeInstanceTypes", Code: "UnauthorizedOperation", Status: 403})
	if err := f.run(t.Context(), t.Context()); !errors.Is(err, errDeclined) {
		t.Error(err)
	}
	for _, want := range []string{"? needed, 0 used, limit 1000; vCPUs could not be compared: no permission for ec2:DescribeInstanceTypes", "Elastic IPs (L-0263D0A3): 1 needed, 0 used, limit 32"} {
		if !strings.Contains(f.out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, f.out.String())
		}
	}
}

func TestFailedPlan(t *testing.T) {
	f := newFixture(t, "-yes")
	f.does(t, "plan", "echo 'Error: no credentials for 123456789012' >&2; exit 1")
	if err := f.run(t.Context(), t.Context()); err == nil || !strings.Contains(err.Error(), "no credentials") {
		t.Error(err)
	}
	if calls := f.calls(t); slices.Contains(calls, "apply") || slices.Contains(calls, "destroy") {
		t.Errorf("after a failed plan: %q", calls)
	}
	r, text := f.written(t)
	if !slices.Equal(r.results(failed), []string{"terraform plan"}) || !strings.Contains(text, "no credentials for [account 1]") || !strings.Contains(text, "Nothing was made.") {
		t.Error(text)
	}
}

// TestFailedApply: a trial whose apply fails makes no checks, and destroys.
func TestFailedApply(t *testing.T) {
	f := newFixture(t, "-yes")
	f.does(t, "apply", "echo 'Error: i-0123456789abcdef0 at 203.0.113.10 is gone' >&2; exit 1")
	if err := f.run(t.Context(), t.Context()); err == nil || !strings.Contains(err.Error(), "is gone") {
		t.Error(err)
	}
	r, text := f.written(t)
	if !slices.Equal(r.results(failed), []string{"terraform apply"}) || !slices.Contains(r.results(passedStep), "terraform destroy") || len(r.results(notRun)) != 8 {
		t.Errorf("%+v", r.Steps)
	}
	if !strings.Contains(text, "terraform apply failed: terraform apply: exit status 1\n  Error: [id 1] at [ip ") || f.byHandLeft() {
		t.Error(text)
	}
}

// TestFailedCheck: a trial with a failed check makes all other checks, and destroys.
func TestFailedCheck(t *testing.T) {
	for broken, want := range map[string][]string{
		"logs":        {"logs"},
		"get nodes":   {"nodes"},
		"ping":        {"DNS"},
		"for i in":    {"Service"},
		"/dev/null":   {"egress"},
		"rollout":     {"pods"}, // without pods there are four checks fewer
		"kubeconfig ": {"nodes", "pods"},
	} {
		t.Run(broken, func(t *testing.T) {
			f := newFixture(t, "-yes")
			f.does(t, "broken", broken)
			if err := f.run(t.Context(), t.Context()); err == nil || !strings.Contains(err.Error(), "said no") {
				t.Error(err)
			}
			r, text := f.written(t)
			if got := r.results(failed); !slices.Equal(got, want) {
				t.Errorf("failed: %q, want %q", got, want)
			}
			for _, step := range []string{"empty plan", "terraform destroy", stepLeftovers} {
				if !slices.Contains(r.results(passedStep), step) {
					t.Errorf("%s has not passed:\n%s", step, text)
				}
			}
		})
	}
}

// TestWrongAnswers fails each check with the output of a cluster that does not work.
func TestWrongAnswers(t *testing.T) {
	for step, answer := range map[string]string{
		"nodes":   `case "$*" in *"get nodes"*) echo 'worker-0|False|v1'; exit ;; esac`,
		"pods":    `case "$*" in *"get pods"*) echo 'worker-0=web-a worker-0=web-b'; exit ;; esac`,
		"DNS":     `case "$*" in *ping*) echo 'bad address'; exit ;; esac`,
		"egress":  `case "$*" in *egress.example.com*) echo 'timed out'; exit ;; esac`,
		"logs":    `case "$*" in *logs*) exit ;; esac`,
		"Service": `case "$*" in *"for i in"*) echo 'served by web-a'; exit ;; esac`,
	} {
		t.Run(step, func(t *testing.T) {
			f := newFixture(t, "-yes")
			own := filepath.Join(f.fake, "kubectl")
			if err := os.WriteFile(own, []byte("#!/bin/sh\n"+answer+"\nexec '"+f.kubectl+"' \"$@\"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			f.kubectl = own
			if err := f.run(t.Context(), t.Context()); err == nil {
				t.Error("passed")
			}
			if r, _ := f.written(t); !slices.Equal(r.results(failed), []string{step}) {
				t.Errorf("%+v", r.Steps)
			}
		})
	}
}

func TestPlanNotEmpty(t *testing.T) {
	f := newFixture(t, "-yes")
	f.does(t, "second-plan", "echo '~ drift at 10.240.0.10'; exit 2")
	if err := f.run(t.Context(), t.Context()); err == nil {
		t.Error("no error")
	}
	if r, text := f.written(t); !slices.Equal(r.results(failed), []string{"empty plan"}) || !strings.Contains(text, "~ drift at [ip") {
		t.Error(text)
	}
}

// TestInterrupted ends the trial while Terraform applies. Terraform is interrupted once, and the
// destroying is not ended.
func TestInterrupted(t *testing.T) {
	f := newFixture(t, "-yes")
	f.does(t, "apply", `trap 'echo interrupted >>"$FAKE/calls"; exit 1' INT; echo applying >>"$FAKE/calls"; while :; do sleep 0.05; done`)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for !slices.Contains(f.calls(t), "applying") && t.Context().Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		cancel(errInterrupted)
	}()
	if err := f.run(ctx, t.Context()); !errors.Is(err, errInterrupted) {
		t.Error(err)
	}
	if got, want := f.calls(t), []string{"init", "version", "plan", "show", "apply", "applying", "interrupted", "destroy"}; !slices.Equal(got, want) {
		t.Errorf("terraform %q, want %q", got, want)
	}
	if r, _ := f.written(t); !slices.Contains(r.results(passedStep), stepLeftovers) || f.byHandLeft() {
		t.Errorf("%+v", r.Steps)
	}
}

// TestDestroyFails checks that a failed destroy keeps the state and says how to destroy by hand.
func TestDestroyFails(t *testing.T) {
	f := newFixture(t, "-yes")
	f.does(t, "destroy", "echo 'Error: DependencyViolation' >&2; exit 1")
	if err := f.run(t.Context(), t.Context()); err == nil || !strings.Contains(err.Error(), "DependencyViolation") {
		t.Error(err)
	}
	for _, want := range []string{"cd " + f.work(), f.ws.CLI + " destroy", "AWS_REGION=us-east-1", "Values=k8s-from-scratch/cluster Name=value,Values=" + f.name, "--path /k8s/" + f.name + "\n"} {
		if !strings.Contains(f.out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, f.out.String())
		}
	}
	if _, err := os.Stat(filepath.Join(f.work(), "cli.tfrc")); err != nil || !f.byHandLeft() {
		t.Errorf("what is needed to destroy by hand is gone: %v", err)
	}
}

// TestLeftovers checks that resources with the cluster's tag or path are found, and nothing of
// another cluster.
func TestLeftovers(t *testing.T) {
	f := newFixture(t, "-yes")
	f.leave(t)
	other, err := openAccount(t.Context(), "smoke-other")
	if err != nil {
		t.Fatal(err)
	}
	if left, err := other.leftovers(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("another cluster's: %q, %v", left, err)
	}
	if err := f.run(t.Context(), t.Context()); err == nil || !strings.Contains(err.Error(), "2 left: parameter /k8s/"+f.name+"/pki/x, vpc vpc-") {
		t.Error(err)
	}
	r, text := f.written(t)
	if len(r.Leftovers) != 2 || !strings.Contains(text, "- parameter /k8s/"+f.name+"/pki/x") || !strings.Contains(text, "- vpc [id ") {
		t.Error(text)
	}
	if !f.byHandLeft() || !strings.Contains(f.out.String(), "destroy it by hand") {
		t.Error("nothing says how to destroy by hand")
	}
}
