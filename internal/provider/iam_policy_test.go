package provider_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// neededElsewhere are actions that this test's job does not need, and what needs them. The
// end-to-end tests run under the same policies, and package cluster checks that the first two are
// called.
var neededElsewhere = map[string]string{
	"ec2:DescribeNetworkInterfaces":   "finds out who uses an address or a subnet that EC2 has not released in time",
	"ec2:DescribeInstanceStatus":      "without it a plan warns: see TestScheduledEvents of package machines",
	"ec2:CreateNetworkInterface":      "EC2 wants it permitted when the action that makes an endpoint makes the endpoint's interface",
	"iam:CreateServiceLinkedRole":     "EC2 wants it permitted for the service-linked roles of EC2 Instance Connect and of Spot instances: see TestSpotPolicy",
	"ec2-instance-connect:OpenTunnel": "needed by ssh.instance_connect: this test's machines have no SSH",
	"ec2:DescribeTags":                "called at the end of an apply, which settles its claims; without it the next refresh settles them",
}

// TestPolicies runs the main job, changes, repairs, a replacement and the destruction under exactly
// the policies of examples/iam: each of their actions is called, some by the damage of this test
// alone. Then it runs it again without one of them: the error names the action. With K8S_KILLS=all,
// which make soak PART=kills-calls sets, it does that for each action. This also finds actions that only
// this test needs.
func TestPolicies(t *testing.T) {
	t.Parallel()
	everyday, destroy := providertest.ReadPolicy(t, "everyday.json"), providertest.ReadPolicy(t, "destroy.json")
	whole := providertest.NewRestricted(t, everyday.Without(""), destroy.Without(""))
	if failure := whole.Job(true); failure != "" {
		t.Fatal(failure)
	}
	called := whole.Account.Calls()
	var actions []string
	for _, s := range slices.Concat(everyday.Statement, destroy.Statement) {
		actions = append(actions, providertest.StatementActions(s)...)
	}
	slices.Sort(actions)
	for _, action := range slices.Compact(actions) {
		service, name, _ := strings.Cut(action, ":")
		if neededElsewhere[action] != "" {
			continue
		}
		if called[name] == 0 && service != "iam" {
			t.Errorf("nobody calls %s: remove it from the policy, or say in neededElsewhere who needs it", action)
		}
		if !providertest.EveryKill && !slices.Contains(tried, action) {
			continue
		}
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			providertest.Missed(t, action, providertest.NewRestricted(t, everyday.Without(action), destroy.Without(action)).Job(true))
		})
	}
}

// tried are actions of every kind: to read, to create, to tag, of another service, and to destroy.
var tried = []string{"ec2:DescribeVpcs", "ec2:RunInstances", "ec2:CreateTags", "iam:PassRole", "ssm:PutParameter", "ec2:DeleteVolume", "ec2:DescribeInstanceAttribute"}

// TestPolicyAfterAnInterruption continues a create that ended before the machine had a host key of
// its own, under the policy and without the action with which it finds
// out how the machine was launched.
func TestPolicyAfterAnInterruption(t *testing.T) {
	t.Parallel()
	everyday, destroy := providertest.ReadPolicy(t, "everyday.json"), providertest.ReadPolicy(t, "destroy.json")
	for _, without := range []string{"", "ec2:DescribeInstanceAttribute"} {
		t.Run("without "+without, func(t *testing.T) {
			t.Parallel()
			r := providertest.NewRestricted(t, everyday.Without(without), destroy.Without(""))
			network := r.Instance("k8s_network")
			network.Must(providertest.NetworkConfig())
			ctx := r.Wire.Arm(t.Context(), 0, false)
			r.Wire.DieOn = "ssh"
			k := &providertest.Killed{T: t, Cloud: r.Cloud, Object: r.Instance("k8s_machine")}
			k.Die(ctx, k.Object.Plan(providertest.WorkerConfig(network)))
			if !r.Wire.Dead() {
				t.Fatal("it did not use SSH")
			}
			r.Cloud = r.ProcessOver(t, r.Lossy())
			worker := r.Instance("k8s_machine")
			failure := worker.Attempt(providertest.WorkerConfig(r.Taken(network)))
			if without != "" {
				providertest.Missed(t, without, failure)
				return
			}
			if failure != "" {
				t.Error(failure)
			}
			if n := len(r.Account.Cloud.Overview().Instances); n != 1 {
				t.Errorf("%d instances", n)
			}
		})
	}
}

// TestPoliciesWhenTagsAreUnknown: a condition on a resource's tags also refuses calls about a
// resource that is gone, or that EC2 does not know yet. Such a refusal does not end the job.
func TestPoliciesWhenTagsAreUnknown(t *testing.T) {
	t.Parallel()
	everyday, destroy := providertest.ReadPolicy(t, "everyday.json").Without(""), providertest.ReadPolicy(t, "destroy.json").Without("")
	t.Run("new resources are not known at once", func(t *testing.T) {
		t.Parallel()
		r := providertest.NewRestricted(t, everyday, destroy)
		r.Account.Fault(fault.Fault{Kind: fault.Eventual, Calls: 3})
		if failure := r.Job(false); failure != "" {
			t.Fatal(failure)
		}
	})
	t.Run("answers to deletions are lost", func(t *testing.T) {
		t.Parallel()
		r := providertest.NewRestricted(t, everyday, destroy)
		lost := map[string]bool{}
		r.Loses = func(action string) bool {
			lost[action] = regexp.MustCompile("^(Delete|Detach|Disassociate|Release|Revoke|Terminate)").MatchString(action)
			return lost[action]
		}
		if failure := r.Job(true); failure != "" {
			t.Fatal(failure)
		}
		for _, action := range []string{"DeleteSecurityGroup", "DeleteSubnet", "DeleteVpc", "DetachInternetGateway", "ReleaseAddress", "RevokeSecurityGroupIngress", "TerminateInstances"} {
			if !lost[action] {
				t.Errorf("no answer to %s was lost", action)
			}
		}
	})
}

// TestMember runs the same job as a user who is bound to one cluster, under boundary.json, and finds what member.json
// allows and nobody needs.
func TestMember(t *testing.T) {
	t.Parallel()
	member, boundary := providertest.ReadPolicy(t, "member.json"), providertest.ReadPolicy(t, "boundary.json")
	t.Run("whole", func(t *testing.T) {
		t.Parallel()
		r := providertest.NewMember(t, member.Without(""), boundary.Without(""))
		if failure := r.Job(true); failure != "" {
			t.Fatal(failure)
		}
		called := r.Account.Calls()
		for _, s := range member.Statement {
			for _, action := range providertest.StatementActions(s) {
				service, name, _ := strings.Cut(action, ":")
				if neededElsewhere[action] == "" && called[name] == 0 && service != "iam" {
					t.Errorf("nobody calls %s: remove it from the policy, or say in neededElsewhere who needs it", action)
				}
			}
		}
	})
	t.Run("new resources are not known at once, and answers to deletions are lost", func(t *testing.T) {
		t.Parallel()
		r := providertest.NewMember(t, member.Without(""), boundary.Without(""))
		lost := map[string]bool{}
		r.Loses = func(action string) bool {
			again := lost[action]
			lost[action] = regexp.MustCompile("^(Delete|Detach|Disassociate|Release|Revoke|Terminate)").MatchString(action)
			return lost[action] && !again
		}
		r.Account.Fault(fault.Fault{Kind: fault.Eventual, Calls: 3})
		if failure := r.Job(false); failure != "" {
			t.Fatal(failure)
		}
	})
}

// TestBoundaryKeys: boundary.json names each tag key of package aws, and no pattern of them. A pattern lets a second spelling of the
// cluster's key pass.
func TestBoundaryKeys(t *testing.T) {
	t.Parallel()
	const prefix = "k8s-from-scratch/"
	var allowed, written []string
	for _, s := range providertest.ReadPolicy(t, "boundary.json").Statement {
		if s["Sid"] == "OnlyTheseKeys" {
			for _, key := range s["Condition"].(map[string]any)["ForAnyValue:StringNotLike"].(map[string]any)["aws:TagKeys"].([]any) {
				if key := key.(string); strings.HasPrefix(key, prefix) {
					allowed = append(allowed, key)
				}
				if strings.Contains(strings.ReplaceAll(key.(string), "${aws:PrincipalTag/k8s-cluster}", ""), "*") {
					t.Errorf("%s is a pattern", key)
				}
			}
		}
	}
	err := filepath.WalkDir(filepath.Join("..", "..", "infra", "aws"), func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		source, err := os.ReadFile(name)
		for _, found := range regexp.MustCompile(`"(`+prefix+`[^"]+)"`).FindAllSubmatch(source, -1) {
			written = append(written, string(found[1]))
		}
		return err
	})
	slices.Sort(allowed)
	slices.Sort(written)
	if written = slices.Compact(written); err != nil || len(written) < 13 || !slices.Equal(allowed, written) {
		t.Errorf("%v\nallowed %q\nwritten %q", err, allowed, written)
	}
}
