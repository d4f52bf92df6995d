package ec2

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// permissionRequest has the parameters with which Authorize, Revoke and UpdateDescriptions name
// rules: a list, or flat parameters for a single rule.
type permissionRequest struct {
	request
	GroupId       string
	GroupName     string
	IpPermissions []permission

	IpProtocol string
	FromPort   *int
	ToPort     *int
	CidrIp     string
}

type permission struct {
	IpProtocol    string
	FromPort      *int
	ToPort        *int
	IpRanges      []ipRange
	Ipv6Ranges    []ipv6Range
	Groups        []userGroupPair
	PrefixListIds []struct{ PrefixListId, Description string }
}

type ipRange struct{ CidrIp, Description string }

type ipv6Range struct{ CidrIpv6, Description string }

type userGroupPair struct{ GroupId, GroupName, UserId, VpcId, Description string }

// permissions returns the group and the rules that a request names.
func (t *tx) permissions(in permissionRequest, egress bool) (*group, []rule, error) {
	if in.GroupId == "" && in.GroupName != "" {
		return nil, nil, wire.Refuse("InvalidGroup.NotFound", "The security group '%s' does not exist in default VPC", in.GroupName)
	}
	g, err := find(t, kindGroup, t.st.Groups, "groupId", in.GroupId)
	if err != nil {
		return nil, nil, err
	}
	perms := in.IpPermissions
	if in.IpProtocol != "" {
		if len(perms) > 0 {
			return nil, nil, wire.Refuse("InvalidParameterCombination", "The parameter ipPermissions may not be used in combination with ipProtocol")
		}
		perms = []permission{{IpProtocol: in.IpProtocol, FromPort: in.FromPort, ToPort: in.ToPort, IpRanges: []ipRange{{CidrIp: in.CidrIp}}}}
	}
	var rules []rule
	for _, p := range perms {
		more, err := t.expand(g, p, egress)
		if err != nil {
			return nil, nil, err
		}
		rules = append(rules, more...)
	}
	return g, rules, nil
}

// expand returns one rule for every source or destination of a permission.
func (t *tx) expand(g *group, p permission, egress bool) ([]rule, error) {
	base := rule{GroupID: g.ID, Egress: egress}
	var err error
	if base.Protocol, base.From, base.To, err = protocolAndPorts(p); err != nil {
		return nil, err
	}
	var out []rule
	for _, c := range p.IpRanges {
		cidr, err := netip.ParsePrefix(c.CidrIp)
		if err != nil || !cidr.Addr().Is4() {
			return nil, invalidValue("CIDR block %s is malformed", c.CidrIp)
		}
		r := base
		r.CIDR, r.Description = cidr.Masked().String(), c.Description
		out = append(out, r)
	}
	for _, c := range p.Ipv6Ranges {
		cidr, err := netip.ParsePrefix(c.CidrIpv6)
		if err != nil || !cidr.Addr().Is6() {
			return nil, invalidValue("CIDR block %s is malformed", c.CidrIpv6)
		}
		r := base
		r.CIDR6, r.Description = cidr.Masked().String(), c.Description
		out = append(out, r)
	}
	for _, pair := range p.Groups {
		ref, err := find(t, kindGroup, t.st.Groups, "groupId", pair.GroupId)
		if err != nil {
			return nil, err
		}
		if ref.VPC != g.VPC {
			return nil, wire.Refuse("InvalidGroup.NotFound", "You have specified two resources that belong to different networks.")
		}
		if pair.UserId != "" && pair.UserId != t.c.cfg.AccountID {
			return nil, kindGroup.notFoundError(pair.GroupId)
		}
		r := base
		r.RefGroup, r.Description = ref.ID, pair.Description
		out = append(out, r)
	}
	for _, l := range p.PrefixListIds {
		return nil, wire.Refuse("InvalidPrefixListID.NotFound", "The prefix list ID '%s' does not exist", l.PrefixListId)
	}
	for _, r := range out {
		if len(r.Description) > 255 {
			return nil, invalidValue("Invalid rule description. Valid descriptions are strings less than 256 characters.")
		}
	}
	if len(out) == 0 {
		return nil, missing("ipRanges, ipv6Ranges, prefixListIds or groups of ipPermissions")
	}
	return out, nil
}

var protocolNames = map[string]string{"6": "tcp", "17": "udp", "1": "icmp", "58": "icmpv6", "all": "-1"}

func protocolAndPorts(p permission) (protocol string, from, to int, err error) {
	if p.IpProtocol == "" {
		return "", 0, 0, missing("ipProtocol")
	}
	protocol = strings.ToLower(p.IpProtocol)
	if name, ok := protocolNames[protocol]; ok {
		protocol = name
	}
	from, to = -1, -1
	if p.FromPort != nil {
		from = *p.FromPort
	}
	if p.ToPort != nil {
		to = *p.ToPort
	}
	switch protocol {
	case "tcp", "udp":
		if p.FromPort == nil || p.ToPort == nil {
			return "", 0, 0, invalidValue("Invalid value 'Must specify both from and to ports with TCP/UDP.' for portRange.")
		}
		if from == -1 && to == -1 {
			return protocol, 0, 65535, nil
		}
		if from < 0 || to > 65535 || from > to {
			return "", 0, 0, invalidValue("Invalid value 'Invalid %s port range %d-%d.' for portRange.", strings.ToUpper(protocol), from, to)
		}
	case "icmp", "icmpv6":
		if from < -1 || from > 255 || to < -1 || to > 255 {
			return "", 0, 0, invalidValue("Invalid value 'ICMP type/code %d/%d' for portRange.", from, to)
		}
	default:
		if n, err := strconv.Atoi(protocol); err != nil || n < -1 || n > 255 {
			return "", 0, 0, wire.Refuse("InvalidPermission.Malformed", `Unsupported IP protocol "%s" - supported: [icmp, icmpv6, tcp, udp, -1]`, p.IpProtocol)
		}
		from, to = -1, -1
	}
	return protocol, from, to, nil
}

// String formats a rule as in EC2's messages.
func (r rule) String() string {
	peer := r.CIDR + r.CIDR6 + r.RefGroup
	if r.Protocol == "-1" {
		return fmt.Sprintf("peer: %s, ALL, ALLOW", peer)
	}
	return fmt.Sprintf("peer: %s, %s, from port: %d, to port: %d, ALLOW", peer, strings.ToUpper(r.Protocol), r.From, r.To)
}
