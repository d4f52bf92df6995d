package ec2

import (
	"slices"
	"strconv"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// rule is one security group rule. Exactly one of CIDR, CIDR6 and RefGroup is set. Protocol is
// "-1", "tcp", "udp", "icmp", "icmpv6" or a number; From and To are ports, or ICMP type and code;
// -1 means all.
type rule struct {
	ID          string
	GroupID     string
	Egress      bool
	Protocol    string
	From, To    int
	CIDR        string
	CIDR6       string
	RefGroup    string
	Description string
}

// sameTraffic reports whether two rules allow the same traffic. EC2 ignores the description.
func (r rule) sameTraffic(o rule) bool {
	r.ID, r.Description, o.ID, o.Description = "", "", "", ""
	return r == o
}

func (t *tx) newRule(r rule) *rule {
	r.ID = t.newID(kindRule.prefix)
	t.st.Rules[r.ID] = &r
	return &r
}

var ruleActions = map[string]action{
	"DescribeSecurityGroupRules":    reads(describeRules),
	"AuthorizeSecurityGroupIngress": writes(func(t *tx, in *authorizeRequest) (any, error) { return authorize(t, in, false) }),
	"AuthorizeSecurityGroupEgress":  writes(func(t *tx, in *authorizeRequest) (any, error) { return authorize(t, in, true) }),
	"RevokeSecurityGroupIngress":    writes(func(t *tx, in *revokeRequest) (any, error) { return revoke(t, in, false) }),
	"RevokeSecurityGroupEgress":     writes(func(t *tx, in *revokeRequest) (any, error) { return revoke(t, in, true) }),
	"ModifySecurityGroupRules":      writes(modifyRules),
	"UpdateSecurityGroupRuleDescriptionsIngress": writes(func(t *tx, in *describeAsRequest) (any, error) {
		return updateDescriptions(t, in, false)
	}),
	"UpdateSecurityGroupRuleDescriptionsEgress": writes(func(t *tx, in *describeAsRequest) (any, error) {
		return updateDescriptions(t, in, true)
	}),
}

type authorizeRequest struct {
	permissionRequest
	TagSpecifications []tagSpecification `query:"TagSpecification"`
}

type authorizeResponse struct {
	Return bool       `xml:"return"`
	Rules  []ruleItem `xml:"securityGroupRuleSet>item"`
}

func authorize(t *tx, in *authorizeRequest, egress bool) (any, error) {
	g, rules, err := t.permissions(in.permissionRequest, egress)
	if err != nil {
		return nil, err
	}
	if len(rules) == 0 {
		return nil, missing("ipPermissions")
	}
	if err := checkSpecs(in.TagSpecifications, kindRule); err != nil {
		return nil, err
	}
	have := t.rulesOf(g.ID)
	for i, r := range rules {
		if slices.ContainsFunc(rules[:i], r.sameTraffic) {
			return nil, invalidValue("The same permission must not appear multiple times")
		}
		if slices.ContainsFunc(have, func(h *rule) bool { return h.sameTraffic(r) }) {
			return nil, wire.Refuse("InvalidPermission.Duplicate", `the specified rule "%s" already exists`, r)
		}
	}
	inDirection := len(slices.DeleteFunc(have, func(r *rule) bool { return r.Egress != egress }))
	if inDirection+len(rules) > t.c.cfg.Quotas.RulesPerGroup {
		return nil, wire.Refuse("RulesPerSecurityGroupLimitExceeded", "The maximum number of rules per security group has been reached.")
	}
	out := authorizeResponse{Return: true}
	for _, r := range rules {
		made := t.newRule(r)
		if err := t.applySpecs(in.TagSpecifications, kindRule, made.ID); err != nil {
			return nil, err
		}
		out.Rules = append(out.Rules, t.ruleItem(made))
	}
	return out, nil
}

type revokeRequest struct {
	permissionRequest
	RuleIds []string `query:"SecurityGroupRuleId"`
}

type revokedItem struct {
	ID       string `xml:"securityGroupRuleId"`
	GroupID  string `xml:"groupId"`
	Egress   bool   `xml:"isEgress"`
	Protocol string `xml:"ipProtocol"`
	From     int    `xml:"fromPort"`
	To       int    `xml:"toPort"`
	CIDR     string `xml:"cidrIpv4,omitempty"`
	CIDR6    string `xml:"cidrIpv6,omitempty"`
	RefGroup string `xml:"referencedGroupId,omitempty"`
}

type revokeResponse struct {
	Return  bool          `xml:"return"`
	Revoked []revokedItem `xml:"revokedSecurityGroupRuleSet>item"`
	// Unknown are the permissions without a rule, of a group in a default VPC.
	Unknown []permissionItem `xml:"unknownIpPermissionSet>item"`
}

// revoke removes rules by id or by permission. A permission without a rule is refused, and nothing is
// revoked. In a default VPC it is only named.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RevokeSecurityGroupIngress.html
func revoke(t *tx, in *revokeRequest, egress bool) (any, error) {
	g, rules, err := t.permissions(in.permissionRequest, egress)
	if err != nil {
		return nil, err
	}
	if len(rules) > 0 && len(in.RuleIds) > 0 {
		return nil, wire.Refuse("InvalidParameterCombination", "Security group rule ids and ipPermissions may not be specified in the same request")
	}
	if len(rules) == 0 && len(in.RuleIds) == 0 {
		return nil, missing("ipPermissions")
	}
	var doomed []*rule
	for _, id := range in.RuleIds {
		r, err := t.ruleIn(g, id, egress)
		if err != nil {
			return nil, err
		}
		doomed = append(doomed, r)
	}
	out := revokeResponse{Return: true}
	have := t.rulesOf(g.ID)
	for _, r := range rules {
		i := slices.IndexFunc(have, func(h *rule) bool { return h.sameTraffic(r) })
		if i < 0 && t.st.VPCs[g.VPC].Default {
			out.Unknown = t.gather(out.Unknown, &r)
			continue
		}
		if i < 0 {
			return nil, wire.Refuse("InvalidPermission.NotFound", "The specified rule does not exist in this security group.")
		}
		doomed = append(doomed, have[i])
	}
	for _, r := range doomed {
		out.Revoked = append(out.Revoked, revokedItem{r.ID, r.GroupID, r.Egress, r.Protocol, r.From, r.To, r.CIDR, r.CIDR6, r.RefGroup})
		t.drop(r.ID)
		delete(t.st.Rules, r.ID)
	}
	return out, nil
}

// ruleIn returns a group's rule of one direction.
func (t *tx) ruleIn(g *group, id string, egress bool) (*rule, error) {
	r, err := find(t, kindRule, t.st.Rules, "securityGroupRuleId", id)
	if err != nil {
		return nil, err
	}
	if r.GroupID != g.ID || r.Egress != egress {
		return nil, kindRule.notFoundError(id)
	}
	return r, nil
}

type modifyRulesRequest struct {
	request
	GroupId string
	Rules   []struct {
		SecurityGroupRuleId string
		SecurityGroupRule   struct {
			IpProtocol        string
			FromPort          *int
			ToPort            *int
			CidrIpv4          string
			CidrIpv6          string
			ReferencedGroupId string
			Description       string
		}
	} `query:"SecurityGroupRule"`
}

func modifyRules(t *tx, in *modifyRulesRequest) (any, error) {
	g, err := find(t, kindGroup, t.st.Groups, "groupId", in.GroupId)
	if err != nil {
		return nil, err
	}
	if len(in.Rules) == 0 {
		return nil, missing("securityGroupRules")
	}
	for _, u := range in.Rules {
		old, err := find(t, kindRule, t.st.Rules, "securityGroupRuleId", u.SecurityGroupRuleId)
		if err != nil {
			return nil, err
		}
		if old.GroupID != g.ID {
			return nil, kindRule.notFoundError(old.ID)
		}
		p := permission{IpProtocol: u.SecurityGroupRule.IpProtocol, FromPort: u.SecurityGroupRule.FromPort, ToPort: u.SecurityGroupRule.ToPort}
		if c := u.SecurityGroupRule.CidrIpv4; c != "" {
			p.IpRanges = []ipRange{{CidrIp: c}}
		}
		if c := u.SecurityGroupRule.CidrIpv6; c != "" {
			p.Ipv6Ranges = []ipv6Range{{CidrIpv6: c}}
		}
		if id := u.SecurityGroupRule.ReferencedGroupId; id != "" {
			p.Groups = []userGroupPair{{GroupId: id}}
		}
		rules, err := t.expand(g, p, old.Egress)
		if err != nil {
			return nil, err
		}
		if len(rules) != 1 {
			return nil, wire.Refuse("InvalidParameterCombination", "A security group rule has exactly one source or destination")
		}
		changed := rules[0]
		changed.ID, changed.Description = old.ID, u.SecurityGroupRule.Description
		for _, h := range t.rulesOf(g.ID) {
			if h.ID != old.ID && h.sameTraffic(changed) {
				return nil, wire.Refuse("InvalidPermission.Duplicate", `the specified rule "%s" already exists`, changed)
			}
		}
		*old = changed
	}
	return done{true}, nil
}

type describeAsRequest struct {
	permissionRequest
	Descriptions []struct {
		SecurityGroupRuleId string
		Description         string
	} `query:"SecurityGroupRuleDescription"`
}

func updateDescriptions(t *tx, in *describeAsRequest, egress bool) (any, error) {
	g, rules, err := t.permissions(in.permissionRequest, egress)
	if err != nil {
		return nil, err
	}
	if len(rules) == 0 && len(in.Descriptions) == 0 {
		return nil, missing("ipPermissions")
	}
	for _, d := range in.Descriptions {
		r, err := t.ruleIn(g, d.SecurityGroupRuleId, egress)
		if err != nil {
			return nil, err
		}
		r.Description = d.Description
	}
	have := t.rulesOf(g.ID)
	for _, r := range rules {
		i := slices.IndexFunc(have, func(h *rule) bool { return h.sameTraffic(r) })
		if i < 0 {
			return nil, wire.Refuse("InvalidPermission.NotFound", "The specified rule does not exist in this security group.")
		}
		have[i].Description = r.Description
	}
	return done{true}, nil
}

type ruleItem struct {
	ID          string      `xml:"securityGroupRuleId"`
	ARN         string      `xml:"securityGroupRuleArn"`
	GroupID     string      `xml:"groupId"`
	OwnerID     string      `xml:"groupOwnerId"`
	Egress      bool        `xml:"isEgress"`
	Protocol    string      `xml:"ipProtocol"`
	From        int         `xml:"fromPort"`
	To          int         `xml:"toPort"`
	CIDR        string      `xml:"cidrIpv4,omitempty"`
	CIDR6       string      `xml:"cidrIpv6,omitempty"`
	Referenced  *referenced `xml:"referencedGroupInfo,omitempty"`
	Description string      `xml:"description,omitempty"`
	Tags        []tag       `xml:"tagSet>item"`
}

type referenced struct {
	GroupID string `xml:"groupId"`
	OwnerID string `xml:"userId"`
}

func (t *tx) ruleItem(r *rule) ruleItem {
	item := ruleItem{
		ID: r.ID, ARN: t.c.arn("security-group-rule/" + r.ID), GroupID: r.GroupID, OwnerID: t.c.cfg.AccountID, Egress: r.Egress,
		Protocol: r.Protocol, From: r.From, To: r.To, CIDR: r.CIDR, CIDR6: r.CIDR6, Description: r.Description, Tags: t.tags(r.ID),
	}
	if r.RefGroup != "" {
		item.Referenced = &referenced{r.RefGroup, t.c.cfg.AccountID}
	}
	return item
}

var ruleFields = fields[rule]{
	"group-id":               func(_ *tx, r *rule) []string { return one(r.GroupID) },
	"security-group-rule-id": func(_ *tx, r *rule) []string { return one(r.ID) },
}

type describeRulesRequest struct {
	describeRequest
	RuleIds []string `query:"SecurityGroupRuleId"`
}

type describeRulesResponse struct {
	Rules     []ruleItem `xml:"securityGroupRuleSet>item"`
	NextToken string     `xml:"nextToken,omitempty"`
}

func describeRules(t *tx, in *describeRulesRequest) (any, error) {
	items, next, err := describe(t, selection[rule]{kindRule, t.st.Rules, "securityGroupRuleId", in.RuleIds, ruleFields, in.describeRequest, 5}, t.ruleItem)
	return describeRulesResponse{items, next}, err
}

func port(n int) string { return strconv.Itoa(n) }
