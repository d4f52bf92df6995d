package ec2

import (
	"regexp"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

type group struct {
	ID          string
	VPC         string
	Name        string
	Description string
}

const defaultGroupName = "default"

var groupActions = map[string]action{
	"CreateSecurityGroup":    writes(createGroup),
	"DeleteSecurityGroup":    writes(deleteGroup),
	"DescribeSecurityGroups": reads(describeGroups),
}

// newGroup makes a group with EC2's default rule, which allows all egress.
func (t *tx) newGroup(vpcID, name, description string) *group {
	g := &group{ID: t.newID(kindGroup.prefix), VPC: vpcID, Name: name, Description: description}
	t.st.Groups[g.ID] = g
	t.newRule(rule{GroupID: g.ID, Egress: true, Protocol: "-1", From: -1, To: -1, CIDR: "0.0.0.0/0"})
	return g
}

func (t *tx) dropGroup(id string) {
	for ruleID, r := range t.st.Rules {
		if r.GroupID == id {
			t.drop(ruleID)
			delete(t.st.Rules, ruleID)
		}
	}
	t.drop(id)
	delete(t.st.Groups, id)
}

// rulesOf returns the rules of a group, ordered by id.
func (t *tx) rulesOf(groupID string) []*rule {
	return slices.DeleteFunc(sorted(t.st.Rules), func(r *rule) bool { return r.GroupID != groupID })
}

var groupText = regexp.MustCompile(`^[a-zA-Z0-9 ._\-:/()#,@\[\]+=&;{}!$*]{1,255}$`)

type createGroupRequest struct {
	request
	GroupName         string
	GroupDescription  string
	VpcId             *string
	TagSpecifications []tagSpecification `query:"TagSpecification"`
}

type createGroupResponse struct {
	GroupID string `xml:"groupId"`
	ARN     string `xml:"securityGroupArn"`
	Tags    []tag  `xml:"tagSet>item"`
	Return  bool   `xml:"return"`
}

func createGroup(t *tx, in *createGroupRequest) (any, error) {
	switch {
	case in.GroupName == "":
		return nil, missing("groupName")
	case in.GroupDescription == "":
		return nil, missing("groupDescription")
	}
	v, err := t.vpcOrDefault(in.VpcId)
	if err != nil {
		return nil, err
	}
	switch {
	case !groupText.MatchString(in.GroupName):
		return nil, invalidValue("Value (%s) for parameter GroupName is invalid. Character sets beyond ASCII are not supported.", in.GroupName)
	case strings.HasPrefix(in.GroupName, "sg-"):
		return nil, invalidValue("Group names may not be in the format sg-*.")
	case in.GroupName == defaultGroupName:
		return nil, invalidValue("Cannot use reserved security group name: %s", in.GroupName)
	case !groupText.MatchString(in.GroupDescription):
		return nil, invalidValue("Value (%s) for parameter GroupDescription is invalid. Character sets beyond ASCII are not supported.", in.GroupDescription)
	}
	for _, g := range t.st.Groups {
		if g.VPC == v.ID && g.Name == in.GroupName {
			return nil, wire.Refuse("InvalidGroup.Duplicate", "The security group '%s' already exists for VPC '%s'", in.GroupName, v.ID)
		}
	}
	if len(t.st.Groups) >= t.c.cfg.Quotas.SecurityGroups {
		return nil, wire.Refuse("SecurityGroupLimitExceeded", "The maximum number of security groups has been reached.")
	}
	if err := checkSpecs(in.TagSpecifications, kindGroup); err != nil {
		return nil, err
	}
	g := t.newGroup(v.ID, in.GroupName, in.GroupDescription)
	if err := t.applySpecs(in.TagSpecifications, kindGroup, g.ID); err != nil {
		return nil, err
	}
	return createGroupResponse{g.ID, t.c.arn("security-group/" + g.ID), t.tags(g.ID), true}, nil
}

type groupIDRequest struct {
	request
	GroupId string
}

func deleteGroup(t *tx, in *groupIDRequest) (any, error) {
	g, err := find(t, kindGroup, t.st.Groups, "groupId", in.GroupId)
	if err != nil {
		return nil, err
	}
	if g.Name == defaultGroupName {
		return nil, wire.Refuse("CannotDelete", `the specified group: "%s" name: "%s" cannot be deleted by a user`, g.ID, g.Name)
	}
	for _, e := range t.st.Interfaces {
		if slices.Contains(e.Groups, g.ID) {
			return nil, dependency("resource %s has a dependent object", g.ID)
		}
	}
	for _, r := range t.st.Rules {
		if r.RefGroup == g.ID && r.GroupID != g.ID {
			return nil, dependency("resource %s has a dependent object", g.ID)
		}
	}
	t.dropGroup(g.ID)
	return struct {
		Return  bool   `xml:"return"`
		GroupID string `xml:"groupId"`
	}{true, g.ID}, nil
}

type groupItem struct {
	ID          string           `xml:"groupId"`
	Name        string           `xml:"groupName"`
	Description string           `xml:"groupDescription"`
	VPCID       string           `xml:"vpcId"`
	OwnerID     string           `xml:"ownerId"`
	ARN         string           `xml:"securityGroupArn"`
	Ingress     []permissionItem `xml:"ipPermissions>item"`
	Egress      []permissionItem `xml:"ipPermissionsEgress>item"`
	Tags        []tag            `xml:"tagSet>item"`
}

// permissionItem combines the rules of one protocol and port range.
type permissionItem struct {
	Protocol   string      `xml:"ipProtocol"`
	From       *int        `xml:"fromPort"`
	To         *int        `xml:"toPort"`
	Ranges     []rangeItem `xml:"ipRanges>item"`
	Ranges6    []range6    `xml:"ipv6Ranges>item"`
	GroupPairs []groupPair `xml:"groups>item"`
}

type rangeItem struct {
	CIDR        string `xml:"cidrIp"`
	Description string `xml:"description,omitempty"`
}

type range6 struct {
	CIDR        string `xml:"cidrIpv6"`
	Description string `xml:"description,omitempty"`
}

type groupPair struct {
	GroupID     string `xml:"groupId"`
	OwnerID     string `xml:"userId"`
	Description string `xml:"description,omitempty"`
}

func (t *tx) groupItem(g *group) groupItem {
	item := groupItem{
		ID: g.ID, Name: g.Name, Description: g.Description, VPCID: g.VPC, OwnerID: t.c.cfg.AccountID,
		ARN: t.c.arn("security-group/" + g.ID), Tags: t.tags(g.ID),
	}
	for _, r := range t.rulesOf(g.ID) {
		if t.c.faults.Hidden(r.ID, t.now) {
			continue
		}
		if r.Egress {
			item.Egress = t.gather(item.Egress, r)
		} else {
			item.Ingress = t.gather(item.Ingress, r)
		}
	}
	return item
}

func (t *tx) gather(perms []permissionItem, r *rule) []permissionItem {
	i := slices.IndexFunc(perms, func(p permissionItem) bool {
		return p.Protocol == r.Protocol && (p.From == nil || (*p.From == r.From && *p.To == r.To))
	})
	if i < 0 {
		p := permissionItem{Protocol: r.Protocol}
		switch r.Protocol {
		case "tcp", "udp", "icmp", "icmpv6": // other protocols have no ports
			from, to := r.From, r.To
			p.From, p.To = &from, &to
		}
		perms, i = append(perms, p), len(perms)
	}
	switch {
	case r.CIDR != "":
		perms[i].Ranges = append(perms[i].Ranges, rangeItem{r.CIDR, r.Description})
	case r.CIDR6 != "":
		perms[i].Ranges6 = append(perms[i].Ranges6, range6{r.CIDR6, r.Description})
	default:
		perms[i].GroupPairs = append(perms[i].GroupPairs, groupPair{r.RefGroup, t.c.cfg.AccountID, r.Description})
	}
	return perms
}

// eachRule returns a function that collects a value of a group's rules of one direction.
func eachRule(egress bool, f func(*rule) string) func(*tx, *group) []string {
	return func(t *tx, g *group) []string {
		var out []string
		for _, r := range t.rulesOf(g.ID) {
			if r.Egress == egress {
				out = append(out, one(f(r))...)
			}
		}
		return out
	}
}

var groupFields = fields[group]{
	"group-id":                       func(_ *tx, g *group) []string { return one(g.ID) },
	"group-name":                     func(_ *tx, g *group) []string { return one(g.Name) },
	"description":                    func(_ *tx, g *group) []string { return one(g.Description) },
	"vpc-id":                         func(_ *tx, g *group) []string { return one(g.VPC) },
	"owner-id":                       func(t *tx, _ *group) []string { return one(t.c.cfg.AccountID) },
	"ip-permission.cidr":             eachRule(false, func(r *rule) string { return r.CIDR }),
	"ip-permission.from-port":        eachRule(false, func(r *rule) string { return port(r.From) }),
	"ip-permission.to-port":          eachRule(false, func(r *rule) string { return port(r.To) }),
	"ip-permission.protocol":         eachRule(false, func(r *rule) string { return r.Protocol }),
	"ip-permission.group-id":         eachRule(false, func(r *rule) string { return r.RefGroup }),
	"egress.ip-permission.cidr":      eachRule(true, func(r *rule) string { return r.CIDR }),
	"egress.ip-permission.from-port": eachRule(true, func(r *rule) string { return port(r.From) }),
	"egress.ip-permission.to-port":   eachRule(true, func(r *rule) string { return port(r.To) }),
	"egress.ip-permission.protocol":  eachRule(true, func(r *rule) string { return r.Protocol }),
	"egress.ip-permission.group-id":  eachRule(true, func(r *rule) string { return r.RefGroup }),
}

type describeGroupsRequest struct {
	describeRequest
	GroupIds   []string `query:"GroupId"`
	GroupNames []string `query:"GroupName"`
}

type describeGroupsResponse struct {
	Groups    []groupItem `xml:"securityGroupInfo>item"`
	NextToken string      `xml:"nextToken,omitempty"`
}

func describeGroups(t *tx, in *describeGroupsRequest) (any, error) {
	if len(in.GroupNames) > 0 { // names refer to groups of a default VPC, which are not known by them here
		return nil, wire.Refuse("InvalidGroup.NotFound", "The security group '%s' does not exist in default VPC", in.GroupNames[0])
	}
	items, next, err := describe(t, selection[group]{kindGroup, t.st.Groups, "groupId", in.GroupIds, groupFields, in.describeRequest, 5}, t.groupItem)
	return describeGroupsResponse{items, next}, err
}
