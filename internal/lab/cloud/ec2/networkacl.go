package ec2

import "strings"

var networkACLActions = map[string]action{"DescribeNetworkAcls": reads(describeNetworkACLs)}

// networkACL is a VPC's default network ACL, which every subnet has and which allows everything.
// There are no others here. Its id is the VPC's with another prefix.
type networkACL struct{ ID, VPC string }

// networkACLs returns the network ACLs by id.
func (t *tx) networkACLs() map[string]*networkACL {
	out := map[string]*networkACL{}
	for id := range t.st.VPCs {
		a := &networkACL{kindNetworkACL.prefix + strings.TrimPrefix(id, kindVPC.prefix), id}
		out[a.ID] = a
	}
	return out
}

type networkACLItem struct {
	ID           string                  `xml:"networkAclId"`
	VPCID        string                  `xml:"vpcId"`
	Default      bool                    `xml:"default"`
	OwnerID      string                  `xml:"ownerId"`
	Entries      []networkACLEntry       `xml:"entrySet>item"`
	Associations []networkACLAssociation `xml:"associationSet>item"`
	Tags         []tag                   `xml:"tagSet>item"`
}

type networkACLEntry struct {
	Number   int    `xml:"ruleNumber"`
	Protocol string `xml:"protocol"`
	Action   string `xml:"ruleAction"`
	Egress   bool   `xml:"egress"`
	CIDR     string `xml:"cidrBlock"`
}

type networkACLAssociation struct {
	ID       string `xml:"networkAclAssociationId"`
	ACLID    string `xml:"networkAclId"`
	SubnetID string `xml:"subnetId"`
}

func (t *tx) networkACLItem(a *networkACL) networkACLItem {
	item := networkACLItem{ID: a.ID, VPCID: a.VPC, Default: true, OwnerID: t.c.cfg.AccountID, Tags: t.tags(a.ID)}
	for _, egress := range []bool{true, false} {
		// The number of the last rule is shown as * in the console.
		item.Entries = append(item.Entries, networkACLEntry{100, "-1", "allow", egress, "0.0.0.0/0"}, networkACLEntry{32767, "-1", "deny", egress, "0.0.0.0/0"})
	}
	for _, s := range sorted(t.st.Subnets) {
		if s.VPC == a.VPC {
			item.Associations = append(item.Associations, networkACLAssociation{"aclassoc" + strings.TrimPrefix(s.ID, kindSubnet.prefix), a.ID, s.ID})
		}
	}
	return item
}

func ofAssociations(f func(networkACLAssociation) string) func(*tx, *networkACL) []string {
	return func(t *tx, a *networkACL) []string {
		var out []string
		for _, s := range t.networkACLItem(a).Associations {
			out = append(out, f(s))
		}
		return out
	}
}

var networkACLFields = fields[networkACL]{
	"network-acl-id":             func(_ *tx, a *networkACL) []string { return one(a.ID) },
	"vpc-id":                     func(_ *tx, a *networkACL) []string { return one(a.VPC) },
	"default":                    func(*tx, *networkACL) []string { return yesNo(true) },
	"owner-id":                   func(t *tx, _ *networkACL) []string { return one(t.c.cfg.AccountID) },
	"association.association-id": ofAssociations(func(s networkACLAssociation) string { return s.ID }),
	"association.network-acl-id": ofAssociations(func(s networkACLAssociation) string { return s.ACLID }),
	"association.subnet-id":      ofAssociations(func(s networkACLAssociation) string { return s.SubnetID }),
}

type describeNetworkACLsRequest struct {
	describeRequest
	NetworkAclIds []string `query:"NetworkAclId"`
}

type describeNetworkACLsResponse struct {
	ACLs      []networkACLItem `xml:"networkAclSet>item"`
	NextToken string           `xml:"nextToken,omitempty"`
}

func describeNetworkACLs(t *tx, in *describeNetworkACLsRequest) (any, error) {
	items, next, err := describe(t, selection[networkACL]{
		kindNetworkACL, t.networkACLs(), "networkAclId", in.NetworkAclIds, networkACLFields, in.describeRequest, 5,
	}, t.networkACLItem)
	return describeNetworkACLsResponse{items, next}, err
}
