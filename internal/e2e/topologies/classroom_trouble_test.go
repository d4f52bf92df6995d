package topologies_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// leader returns the machine whose controller manager leads in Bob's cluster.
func (l *class) leader(t *testing.T) string {
	t.Helper()
	holder, _, _ := strings.Cut(l.may(t, "bob", "get", "lease", "kube-controller-manager", "--namespace=kube-system", "--output=jsonpath={.spec.holderIdentity}"), "_")
	return holder
}

func (l *class) testElection(t *testing.T) {
	was := l.leader(t)
	if !strings.HasPrefix(was, "controller-") {
		t.Fatalf("%q leads", was)
	}
	l.root(t, "bob", was, "systemctl stop kube-controller-manager")
	harness.Eventually(t, time.Minute, "another controller manager leads", func() error {
		if now := l.leader(t); now == was {
			return fmt.Errorf("%s leads", now)
		}
		return nil
	})
	l.only(t, "bob")
	l.Apply(t)
	l.NoChanges(t)
}

func (l *class) testRebuild(t *testing.T) {
	before, endpoint := l.instances(t, "bob", "running"), l.endpoints["bob"]
	l.root(t, "bob", "controller-0", "systemctl stop etcd; rm -rf /var/lib/etcd/member /etc/kubernetes/pki") // Bob has tried something
	cy := l.working(t, "cy")
	l.set(t, "rebuild", map[string]int{"bob": 2})
	l.only(t, "bob")
	began := time.Now()
	l.apply(t, "rebuild", map[string]int{"bob": 2})
	t.Logf("a small cluster was made anew in %s", time.Since(began).Round(time.Second))
	if n := cy.Failures(t); n > 0 {
		t.Errorf("Cy noticed it: %d requests failed", n)
	}
	l.NoChanges(t)
	after := l.instances(t, "bob", "running")
	if len(after) != len(before) || slices.ContainsFunc(after, func(id string) bool { return slices.Contains(before, id) }) {
		t.Errorf("the instances were %v, and are %v", before, after)
	}
	if l.endpoints["bob"] != endpoint {
		t.Errorf("the endpoint was %s, and is %s", endpoint, l.endpoints["bob"])
	}
	// The kubeconfig is the one that Bob had, and what he had made is gone.
	if out := l.may(t, "bob", "get", "deployments", "--output=name"); strings.TrimSpace(out) != "" {
		t.Errorf("there still are\n%s", out)
	}
	l.may(t, "bob", "wait", "--for=condition=Ready", "nodes", "--all", "--timeout=60s")

	// The new cluster has the snapshot's Nodes of former machines until the second apply.
	l.apply(t, "back_to_lesson", map[string]string{"ada": "1", "bob": "1"})
	l.Apply(t)
	l.NoChanges(t)
	l.may(t, "bob", "rollout", "status", "deployment/web", "--timeout=120s")
	l.may(t, "bob", "wait", "--for=condition=Ready", "nodes", "--all", "--timeout=60s")
}

func (l *class) testBroken(t *testing.T) {
	for _, file := range []string{"break.sh", "labs.sh"} {
		if err := os.WriteFile(filepath.Join(l.desk("ada"), file), harness.Must[[]byte](t)(os.ReadFile(filepath.Join(suite.Root, "examples", "labs", file))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cy := l.working(t, "cy")
	config := fmt.Sprintf("IdentityFile %s\nIdentitiesOnly yes\n%s\n", filepath.Join(l.dir, "ada"), l.read(t, "class/ada/ssh_config"))
	if err := os.WriteFile(filepath.Join(l.desk("ada"), "ssh_config"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "break.sh", "kubelet")
	cmd.Dir = l.desk("ada")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	l.only(t, "ada")
	l.Apply(t)
	l.NoChanges(t)
	l.may(t, "ada", "wait", "--for=condition=Ready", "nodes", "--all", "--timeout=60s")
	if n := cy.Failures(t); n > 0 {
		t.Errorf("Cy noticed it: %d requests failed", n)
	}
}

// testFailing makes clusters for two students in workspaces of their own. The name of one is taken: somebody else has a cluster of
// that name in the account.
func (l *class) testFailing(t *testing.T) {
	taken := harness.Must[*ec2.CreateVpcOutput](t)(l.api.CreateVpc(t.Context(), &ec2.CreateVpcInput{CidrBlock: aws.String("10.99.0.0/16"), TagSpecifications: []types.TagSpecification{{
		ResourceType: types.ResourceTypeVpc, Tags: []types.Tag{{Key: aws.String("k8s-from-scratch/cluster"), Value: aws.String("eve")}, {Key: aws.String("k8s-from-scratch/kind"), Value: aws.String("network")},
			{Key: aws.String("k8s-from-scratch/name"), Value: aws.String("vpc")}, {Key: aws.String("k8s-from-scratch/claim"), Value: aws.String("0123456789abcdef-1")},
			{Key: aws.String("k8s-from-scratch/settled"), Value: aws.String("0123456789abcdef 2026-12-01T08:00:00Z")}}}}}))
	each := class{Cluster: suite.Cluster(suite.Workspace(t, "classroom-each", suite.CLI, filepath.Join(suite.Root, "examples", "classroom"))),
		api: l.api, dir: l.dir, settings: map[string]any{}}
	each.set(t, "students", map[string]any{"eve": map[string]any{"size": "one"}, "fay": map[string]any{"size": "one"}})
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "sh", append([]string{filepath.Join(suite.Root, "examples", "classroom", "each.sh")}, args...)...)
		cmd.Dir, cmd.Env = each.WS.Dir, append(slices.Clone(each.WS.Env), "TERRAFORM="+each.WS.CLI, "PATH="+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	defer func() {
		if out, err := run("destroy", "-auto-approve"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		harness.Must[*ec2.DeleteVpcOutput](t)(l.api.DeleteVpc(context.WithoutCancel(t.Context()), &ec2.DeleteVpcInput{VpcId: taken.Vpc.VpcId}))
	}()
	out, err := run("apply", "-auto-approve", "-no-color")
	if err == nil || out != "failed for eve: see each/eve.log\n" {
		t.Errorf("%v\n%s", err, out)
	}
	why := string(harness.Must[[]byte](t)(os.ReadFile(filepath.Join(each.WS.Dir, "each", "eve.log"))))
	harness.Says(t, why, `module.student["eve"].k8s_network.this`)
	_, why, _ = strings.Cut(why, "Error: ")
	t.Logf("%s\n%s", out, why)
	if got := l.instances(t, "fay", "running"); len(got) != 1 {
		t.Errorf("Fay's cluster has %d instances", len(got))
	}
	if out, err := run("plan", "-detailed-exitcode"); err == nil || out != "failed for eve: see each/eve.log\n" {
		t.Errorf("the second plan: %v\n%s", err, out)
	}
	l.NoChanges(t)
}
