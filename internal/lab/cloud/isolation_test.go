package cloud_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	awselb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest/isolation"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
)

// refused reports whether an error is a refusal by the policies.
func refused(err error) bool {
	return slices.Contains([]string{"UnauthorizedOperation", "AccessDeniedException", "AccessDenied"}, cloudtest.Code(err))
}

// TestIsolation: Ada makes and changes her own cluster, and 40 attacks on Bob's end with the codes that AWS has for
// them.
func TestIsolation(t *testing.T) {
	c, p := isolation.NewClass(t), isolation.ReadPolicies(t)
	ada := c.As(t, c.Tags(), p.Without("boundary", -1), p.Without("member", -1), p.Without("load-balancers", -1))
	for _, r := range c.Attacks() {
		t.Run(r.Name, func(t *testing.T) {
			as := ada
			if r.Untagged {
				as = c.As(t, nil, p.Without("boundary", -1), p.Without("member", -1))
				defer c.As(t, c.Tags(), p.Without("boundary", -1), p.Without("member", -1), p.Without("load-balancers", -1))
			}
			cloudtest.Refused(t, r.Do(t, as, false), r.Want)
		})
	}
	for _, r := range c.Own() {
		t.Run(r.Name, func(t *testing.T) {
			if err := r.Do(t, ada, true); !slices.Contains([]string{"", "DryRunOperation", "ResourceLimitExceeded", "DependencyViolation", "IncorrectState"}, cloudtest.Code(err)) {
				t.Error(err)
			}
		})
	}
}

// TestBoundary: under the boundary, a user with all rights gives machines roles of the own cluster only, and reaches parameters
// and objects of it only.
func TestBoundary(t *testing.T) {
	c, p := isolation.NewClass(t), isolation.ReadPolicies(t)
	ada := c.As(t, c.Tags(), p.Without("boundary", -1), cloudtest.Everything)
	for _, r := range c.Ceiling() {
		t.Run(r.Name, func(t *testing.T) { cloudtest.Refused(t, r.Do(t, ada, true), r.Want) })
	}
}

// TestEveryStatementCounts: without any one statement of the policies, some attack or some request of Ada's own ends
// otherwise. Statements of the boundary are tried with a user who has all other rights.
func TestEveryStatementCounts(t *testing.T) {
	c, p := isolation.NewClass(t), isolation.ReadPolicies(t)
	results := func(t *testing.T, name string, index int) string {
		given := []string{p.Without(name, index)}
		boundary := ""
		switch name {
		case "boundary":
			boundary, given = given[0], []string{cloudtest.Everything}
		}
		var out []byte
		ada := c.As(t, c.Tags(), boundary, given...)
		for _, r := range slices.Concat(c.Attacks(), c.Own(), c.Ceiling()) {
			if r.Untagged {
				ada = c.As(t, nil, boundary, given...)
			}
			result := byte('-')
			if refused(r.Do(t, ada, true)) {
				result = 'x'
			}
			out = append(out, result)
			if r.Untagged {
				ada = c.As(t, c.Tags(), boundary, given...)
			}
		}
		return string(out)
	}
	for _, name := range []string{"member", "boundary", "load-balancers"} {
		whole := results(t, name, -1)
		for n, s := range p.Statements(name) {
			id := s.(map[string]any)["Sid"].(string)
			t.Run(name+" "+id, func(t *testing.T) {
				if got := results(t, name, n); got == whole {
					t.Errorf("nothing notices that it is missing: %s", got)
				}
			})
		}
	}
}

// TestLeftoversPolicy: a member deletes what controllers in the own cluster have left, and nothing that is shared or that
// controllers in another cluster have made. Each statement of leftovers.json is needed.
func TestLeftoversPolicy(t *testing.T) {
	c, p := isolation.NewClass(t), isolation.ReadPolicies(t)
	ctx := t.Context()
	group := func(key, value string) string {
		name := "k8s-" + value + "-" + strings.ReplaceAll(key, "/", "-")
		return *cloudtest.Must[*awsec2.CreateSecurityGroupOutput](t)(c.CreateSecurityGroup(ctx, &awsec2.CreateSecurityGroupInput{
			GroupName: &name, Description: &name, VpcId: &c.Ada.VPC, TagSpecifications: cloudtest.Tags(types.ResourceTypeSecurityGroup, key, value),
		})).GroupId
	}
	balancers := map[string]string{}
	for _, name := range []string{"ada", "bob"} {
		balancers[name] = *cloudtest.Must[*awselb.CreateLoadBalancerOutput](t)(c.ELB.CreateLoadBalancer(ctx, &awselb.CreateLoadBalancerInput{
			Name: aws.String("k8s-" + name), Type: elbtypes.LoadBalancerTypeEnumNetwork, Scheme: elbtypes.LoadBalancerSchemeEnumInternal, Subnets: []string{c.Ada.Subnet},
			Tags: []elbtypes.Tag{{Key: aws.String("kubernetes.io/cluster/" + name), Value: aws.String("owned")}},
		})).LoadBalancers[0].LoadBalancerArn
	}
	groups := []struct {
		id      string
		allowed bool
	}{
		{group("kubernetes.io/cluster/ada", "owned"), true}, {group("elbv2.k8s.aws/cluster", "ada"), true},
		{group("kubernetes.io/cluster/ada", "shared"), false}, {group("kubernetes.io/cluster/bob", "owned"), false}, {group("elbv2.k8s.aws/cluster", "bob"), false},
		{group("team", "a"), false}, {c.Bob.Group, false},
	}
	results := func(index int) (out []bool) {
		ada := c.As(t, c.Tags(), p.Without("boundary", -1), p.Without("member", -1), strings.ReplaceAll(p.Without("leftovers", index), "CLUSTER", "ada"))
		for _, g := range groups {
			_, err := ada.DeleteSecurityGroup(ctx, &awsec2.DeleteSecurityGroupInput{DryRun: aws.Bool(true), GroupId: &g.id})
			out = append(out, !refused(err))
		}
		return out
	}
	whole := results(-1)
	for n, g := range groups {
		if whole[n] != g.allowed {
			t.Errorf("group %d: allowed %t", n, whole[n])
		}
	}
	for n := range p.Statements("leftovers") {
		if slices.Equal(results(n), whole) {
			t.Errorf("nothing notices that statement %d is missing", n)
		}
	}
	ada := c.As(t, c.Tags(), p.Without("boundary", -1), p.Without("member", -1), strings.ReplaceAll(p.Without("leftovers", -1), "CLUSTER", "ada"))
	for name, want := range map[string]string{"ada": "", "bob": "AccessDenied"} {
		arn := balancers[name]
		_, err := ada.ELB.DeleteLoadBalancer(ctx, &awselb.DeleteLoadBalancerInput{LoadBalancerArn: &arn})
		cloudtest.Refused(t, err, want)
	}
}

// TestPolicySizes: IAM counts no white space.
func TestPolicySizes(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "examples", "iam", "*.json"))
	if err != nil || len(files) < 9 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := iam.Parse(raw); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := iam.CheckSize(iam.MaxManaged, "it", string(raw)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
