package ec2_test

import (
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
)

func tcp(port int32, cidr string) types.IpPermission {
	return types.IpPermission{IpProtocol: aws.String("tcp"), FromPort: &port, ToPort: &port, IpRanges: []types.IpRange{{CidrIp: &cidr}}}
}

func fromGroup(port int32, id string) types.IpPermission {
	p := tcp(port, "")
	p.IpRanges, p.UserIdGroupPairs = nil, []types.UserIdGroupPair{{GroupId: &id}}
	return p
}

func authorize(t *testing.T, l *cloudtest.Lab, group string, perms ...types.IpPermission) ([]types.SecurityGroupRule, error) {
	t.Helper()
	out, err := l.AuthorizeSecurityGroupIngress(t.Context(), &awsec2.AuthorizeSecurityGroupIngressInput{GroupId: &group, IpPermissions: perms})
	if err != nil {
		return nil, err
	}
	return out.SecurityGroupRules, nil
}

func TestSecurityGroupRefusals(t *testing.T) {
	l := cloudtest.New(t, func(l *cloudtest.Lab) { l.Quotas = ec2.Quotas{RulesPerGroup: 3} })
	s := l.NewSite(t)
	l.Run(t, s.RunInput())
	referenced := l.NewSecurityGroup(t, s.VPC, "referenced")
	rules := cloudtest.Must[[]types.SecurityGroupRule](t)(authorize(t, l, s.Group, tcp(22, "198.51.100.7/32"), fromGroup(6443, referenced)))
	elsewhere := cloudtest.Must[*awsec2.CreateVpcOutput](t)(l.CreateVpc(t.Context(), &awsec2.CreateVpcInput{CidrBlock: aws.String("10.9.0.0/16")})).Vpc
	foreign := l.NewSecurityGroup(t, *elsewhere.VpcId, "foreign")

	ctx := t.Context()
	create := func(name, description string) error {
		_, err := l.CreateSecurityGroup(ctx, &awsec2.CreateSecurityGroupInput{GroupName: &name, Description: &description, VpcId: &s.VPC})
		return err
	}
	allow := func(p types.IpPermission) error {
		_, err := authorize(t, l, s.Group, p)
		return err
	}
	revoke := func(in *awsec2.RevokeSecurityGroupIngressInput) error {
		in.GroupId = &s.Group
		_, err := l.RevokeSecurityGroupIngress(ctx, in)
		return err
	}
	for _, tc := range []struct {
		name, code string
		call       func() error
	}{
		{"name taken", "InvalidGroup.Duplicate", func() error { return create("web", "web") }},
		{"name reserved", "InvalidParameterValue", func() error { return create("default", "d") }},
		{"name like an id", "InvalidParameterValue", func() error { return create("sg-web", "d") }},
		{"name not ASCII", "InvalidParameterValue", func() error { return create("wéb", "d") }},
		{"no VPC", "VPCIdNotSpecified", func() error {
			_, err := l.CreateSecurityGroup(ctx, &awsec2.CreateSecurityGroupInput{GroupName: aws.String("x"), Description: aws.String("x")})
			return err
		}},
		{"in use by an interface", "DependencyViolation", func() error {
			_, err := l.DeleteSecurityGroup(ctx, &awsec2.DeleteSecurityGroupInput{GroupId: &s.Group})
			return err
		}},
		{"referenced by a rule", "DependencyViolation", func() error {
			_, err := l.DeleteSecurityGroup(ctx, &awsec2.DeleteSecurityGroupInput{GroupId: &referenced})
			return err
		}},
		{"unknown", "InvalidGroup.NotFound", func() error {
			_, err := l.DescribeSecurityGroups(ctx, &awsec2.DescribeSecurityGroupsInput{GroupIds: []string{"sg-00000000000000000"}})
			return err
		}},
		{"id malformed", "InvalidGroupId.Malformed", func() error {
			_, err := l.DescribeSecurityGroups(ctx, &awsec2.DescribeSecurityGroupsInput{GroupIds: []string{"web"}})
			return err
		}},
		{"rule exists", "InvalidPermission.Duplicate", func() error { return allow(tcp(22, "198.51.100.7/32")) }},
		{"rule exists in canonical form", "InvalidPermission.Duplicate", func() error {
			p := tcp(22, "198.51.100.7/32")
			p.IpProtocol = aws.String("6")
			return allow(p)
		}},
		{"rule twice in a request", "InvalidParameterValue", func() error {
			_, err := authorize(t, l, referenced, tcp(1, "0.0.0.0/0"), tcp(1, "0.0.0.0/0"))
			return err
		}},
		{"rule with a bad CIDR", "InvalidParameterValue", func() error { return allow(tcp(23, "198.51.100.7")) }},
		{"rule with a bad port", "InvalidParameterValue", func() error { return allow(tcp(70000, "0.0.0.0/0")) }},
		{"rule without a port", "InvalidParameterValue", func() error {
			return allow(types.IpPermission{IpProtocol: aws.String("tcp"), IpRanges: []types.IpRange{{CidrIp: aws.String("0.0.0.0/0")}}})
		}},
		{"rule with an unknown protocol", "InvalidPermission.Malformed", func() error {
			return allow(types.IpPermission{IpProtocol: aws.String("carrier-pigeon"), IpRanges: []types.IpRange{{CidrIp: aws.String("0.0.0.0/0")}}})
		}},
		{"rule without a source", "MissingParameter", func() error {
			return allow(types.IpPermission{IpProtocol: aws.String("-1")})
		}},
		{"rule for another VPC's group", "InvalidGroup.NotFound", func() error { return allow(fromGroup(1, foreign)) }},
		{"too many rules", "RulesPerSecurityGroupLimitExceeded", func() error {
			_, err := authorize(t, l, s.Group, tcp(1, "0.0.0.0/0"), tcp(2, "0.0.0.0/0"))
			return err
		}},
		{"revoked by permission, no such rule", "InvalidPermission.NotFound", func() error {
			return revoke(&awsec2.RevokeSecurityGroupIngressInput{IpPermissions: []types.IpPermission{tcp(23, "198.51.100.7/32")}})
		}},
		{"revoked by id, no such rule", "InvalidSecurityGroupRuleId.NotFound", func() error {
			return revoke(&awsec2.RevokeSecurityGroupIngressInput{SecurityGroupRuleIds: []string{"sgr-00000000000000000"}})
		}},
		{"revoked by id in the wrong direction", "InvalidSecurityGroupRuleId.NotFound", func() error {
			_, err := l.RevokeSecurityGroupEgress(ctx, &awsec2.RevokeSecurityGroupEgressInput{GroupId: &s.Group, SecurityGroupRuleIds: []string{*rules[0].SecurityGroupRuleId}})
			return err
		}},
		{"revoked by id, malformed", "InvalidSecurityGroupRuleId.Malformed", func() error {
			return revoke(&awsec2.RevokeSecurityGroupIngressInput{SecurityGroupRuleIds: []string{"22"}})
		}},
		{"modified into an existing rule", "InvalidPermission.Duplicate", func() error {
			_, err := l.ModifySecurityGroupRules(ctx, &awsec2.ModifySecurityGroupRulesInput{GroupId: &s.Group, SecurityGroupRules: []types.SecurityGroupRuleUpdate{{
				SecurityGroupRuleId: rules[1].SecurityGroupRuleId,
				SecurityGroupRule:   &types.SecurityGroupRuleRequest{IpProtocol: aws.String("tcp"), FromPort: aws.Int32(22), ToPort: aws.Int32(22), CidrIpv4: aws.String("198.51.100.7/32")},
			}}})
			return err
		}},
		{"more groups than an interface takes", "SecurityGroupsPerInterfaceLimitExceeded", func() error {
			in := s.RunInput()
			for n := range 5 {
				in.SecurityGroupIds = append(in.SecurityGroupIds, l.NewSecurityGroup(t, s.VPC, fmt.Sprintf("g%d", n)))
			}
			_, err := l.RunInstances(t.Context(), in)
			return err
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { cloudtest.Refused(t, tc.call(), tc.code) })
	}
}

// TestSecurityGroupRules follows a rule from its creation to the network and back.
func TestSecurityGroupRules(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	out := cloudtest.Must[*awsec2.AuthorizeSecurityGroupIngressOutput](t)(l.AuthorizeSecurityGroupIngress(ctx, &awsec2.AuthorizeSecurityGroupIngressInput{
		GroupId: &s.Group, TagSpecifications: cloudtest.Tags(types.ResourceTypeSecurityGroupRule, "cluster", "demo"),
		IpPermissions: []types.IpPermission{tcp(22, "198.51.100.7/24"), fromGroup(6443, s.Group), {
			IpProtocol: aws.String("-1"), IpRanges: []types.IpRange{{CidrIp: aws.String("10.240.0.0/24"), Description: aws.String("nodes")}},
		}},
	}))
	if len(out.SecurityGroupRules) != 3 {
		t.Fatalf("made %d rules", len(out.SecurityGroupRules))
	}
	ssh := out.SecurityGroupRules[0]
	if *ssh.CidrIpv4 != "198.51.100.0/24" || *ssh.FromPort != 22 || *ssh.IsEgress || *ssh.Tags[0].Value != "demo" {
		t.Errorf("the SSH rule is %+v", ssh)
	}
	found := cloudtest.Must[*awsec2.DescribeSecurityGroupRulesOutput](t)(l.DescribeSecurityGroupRules(ctx, &awsec2.DescribeSecurityGroupRulesInput{
		Filters: []types.Filter{cloudtest.Filter("group-id", s.Group), cloudtest.Filter("tag:cluster", "demo")},
	}))
	if len(found.SecurityGroupRules) != 3 { // the default egress rule has no tag
		t.Errorf("found %d rules by tag", len(found.SecurityGroupRules))
	}
	ingress := func() map[string]int {
		got := map[string]int{}
		for _, g := range l.Network.VPC(t, s.VPC).SecurityGroups {
			if g.ID != s.Group {
				continue
			}
			for _, r := range g.Ingress {
				peer := r.GroupID
				if r.CIDR.IsValid() {
					peer = r.CIDR.String()
				}
				got[peer] = r.FromPort
			}
		}
		return got
	}
	if got := ingress(); got["198.51.100.0/24"] != 22 || got[s.Group] != 6443 || got["10.240.0.0/24"] != -1 || len(got) != 3 {
		t.Errorf("the network was told %v", got)
	}

	cloudtest.Must[*awsec2.ModifySecurityGroupRulesOutput](t)(l.ModifySecurityGroupRules(ctx, &awsec2.ModifySecurityGroupRulesInput{
		GroupId: &s.Group, SecurityGroupRules: []types.SecurityGroupRuleUpdate{{
			SecurityGroupRuleId: ssh.SecurityGroupRuleId,
			SecurityGroupRule: &types.SecurityGroupRuleRequest{
				IpProtocol: aws.String("tcp"), FromPort: aws.Int32(2222), ToPort: aws.Int32(2222), CidrIpv4: aws.String("203.0.113.1/32"), Description: aws.String("moved"),
			},
		}},
	}))
	cloudtest.Must[*awsec2.UpdateSecurityGroupRuleDescriptionsIngressOutput](t)(l.UpdateSecurityGroupRuleDescriptionsIngress(ctx, &awsec2.UpdateSecurityGroupRuleDescriptionsIngressInput{
		GroupId: &s.Group, SecurityGroupRuleDescriptions: []types.SecurityGroupRuleDescription{{SecurityGroupRuleId: ssh.SecurityGroupRuleId, Description: aws.String("again")}},
	}))
	one := cloudtest.Must[*awsec2.DescribeSecurityGroupRulesOutput](t)(l.DescribeSecurityGroupRules(ctx, &awsec2.DescribeSecurityGroupRulesInput{SecurityGroupRuleIds: []string{*ssh.SecurityGroupRuleId}}))
	if r := one.SecurityGroupRules[0]; *r.FromPort != 2222 || *r.Description != "again" || *r.CidrIpv4 != "203.0.113.1/32" {
		t.Errorf("the modified rule is %+v", r)
	}

	revoked := cloudtest.Must[*awsec2.RevokeSecurityGroupIngressOutput](t)(l.RevokeSecurityGroupIngress(ctx, &awsec2.RevokeSecurityGroupIngressInput{
		GroupId: &s.Group, SecurityGroupRuleIds: []string{*ssh.SecurityGroupRuleId},
	}))
	if len(revoked.RevokedSecurityGroupRules) != 1 {
		t.Errorf("revoked %+v", revoked.RevokedSecurityGroupRules)
	}
	cloudtest.Must[*awsec2.RevokeSecurityGroupIngressOutput](t)(l.RevokeSecurityGroupIngress(ctx, &awsec2.RevokeSecurityGroupIngressInput{
		GroupId: &s.Group, IpPermissions: []types.IpPermission{fromGroup(6443, s.Group)},
	}))
	if got := ingress(); len(got) != 1 {
		t.Errorf("after revoking the network was told %v", got)
	}
	group := cloudtest.Must[*awsec2.DescribeSecurityGroupsOutput](t)(l.DescribeSecurityGroups(ctx, &awsec2.DescribeSecurityGroupsInput{
		Filters: []types.Filter{cloudtest.Filter("group-name", "we?"), cloudtest.Filter("ip-permission.cidr", "10.240.*")},
	})).SecurityGroups[0]
	if len(group.IpPermissions) != 1 || *group.IpPermissions[0].IpRanges[0].Description != "nodes" || len(group.IpPermissionsEgress) != 1 {
		t.Errorf("the group is %+v", group)
	}
	if egress := group.IpPermissionsEgress[0]; *egress.IpProtocol != "-1" || egress.FromPort != nil || *egress.IpRanges[0].CidrIp != "0.0.0.0/0" {
		t.Errorf("the default egress rule is %+v", egress)
	}
	cloudtest.Must[*awsec2.DeleteSecurityGroupOutput](t)(l.DeleteSecurityGroup(ctx, &awsec2.DeleteSecurityGroupInput{GroupId: &s.Group}))
}
