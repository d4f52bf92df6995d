package network

import (
	"context"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

// RuleFilter selects security-group rules. It selects a rule that matches one of its fields. The
// zero value selects none.
type RuleFilter struct {
	DescriptionPrefixes []string // beginnings of the rule's description
	TagKeys             []string // keys of tags that the rule has
}

func (f RuleFilter) empty() bool { return len(f.DescriptionPrefixes)+len(f.TagKeys) == 0 }

func (f RuleFilter) fits(r types.SecurityGroupRule) bool {
	return slices.ContainsFunc(f.DescriptionPrefixes, func(p string) bool { return strings.HasPrefix(sdk.ToString(r.Description), p) }) ||
		slices.ContainsFunc(r.Tags, func(t types.Tag) bool { return slices.Contains(f.TagKeys, sdk.ToString(t.Key)) })
}

// groupRule is a rule of a group. It is comparable.
type groupRule struct {
	group  string
	egress bool
	rule   rule
}

// ignoredRules returns the groups' rules that the filter selects. It is the only call that returns
// the rules' tags.
func ignoredRules(ctx context.Context, c *aws.Client, f RuleFilter, groups map[aws.MachineRole]types.SecurityGroup) (map[groupRule]bool, error) {
	if f.empty() || len(groups) == 0 {
		return nil, nil
	}
	var ids []string
	for _, g := range groups {
		ids = append(ids, sdk.ToString(g.GroupId))
	}
	slices.Sort(ids)
	rules, err := aws.All(ctx, ec2.NewDescribeSecurityGroupRulesPaginator(c.EC2, &ec2.DescribeSecurityGroupRulesInput{Filters: []types.Filter{aws.Filter("group-id", ids...)}}),
		func(p *ec2.DescribeSecurityGroupRulesOutput) []types.SecurityGroupRule { return p.SecurityGroupRules })
	if err != nil {
		return nil, fmt.Errorf("describe the rules of %s: %w", strings.Join(ids, ", "), err)
	}
	out := map[groupRule]bool{}
	for _, r := range rules {
		if f.fits(r) {
			out[groupRule{sdk.ToString(r.GroupId), sdk.ToBool(r.IsEgress), ruleOf(r)}] = true
		}
	}
	return out, nil
}

// ruleOf is rulesOf for a rule that EC2 lists by itself.
func ruleOf(r types.SecurityGroupRule) rule {
	out := rule{protocol: sdk.ToString(r.IpProtocol)}
	out.setPorts(r.FromPort, r.ToPort)
	for _, source := range []*string{r.CidrIpv4, r.CidrIpv6, r.PrefixListId} {
		if s := sdk.ToString(source); s != "" {
			out.source = s
		}
	}
	if r.ReferencedGroupInfo != nil {
		out.source = sdk.ToString(r.ReferencedGroupInfo.GroupId)
	}
	return out
}
