package network

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// Ports of the cluster. https://kubernetes.io/docs/reference/networking/ports-and-protocols/
const (
	portSSH         = 22
	portEtcdClient  = 2379
	portEtcdPeer    = 2380
	portKubelet     = 10250
	portNodePortMin = 30000
	portNodePortMax = 32767
)

// rule is one rule of a security group. It is comparable.
type rule struct {
	protocol string // "tcp", "udp", "-1" for all
	from, to int32  // 0, 0 with "-1"
	source   string // CIDR, group id or prefix list id
}

// String returns an incoming rule for people.
func (r rule) String() string { return r.traffic() + " from " + r.source }

// traffic describes what the rule allows.
func (r rule) traffic() string {
	switch {
	case r.protocol == "-1":
		return "all traffic"
	case r.from == -1:
		return r.protocol
	case r.from == r.to:
		return r.protocol + " " + strconv.Itoa(int(r.from))
	default:
		return fmt.Sprintf("%s %d-%d", r.protocol, r.from, r.to)
	}
}

// letsSSH reports whether a rule lets in SSH.
func (r rule) letsSSH() bool {
	return r.protocol == "-1" || r.protocol == "tcp" && r.from <= portSSH && portSSH <= r.to
}

// in describes the rule of a group, with roles instead of group ids.
func (r rule) in(groups map[aws.MachineRole]string, egress bool) string {
	for role, id := range groups {
		if id == r.source {
			r.source = "group " + string(role)
		}
	}
	if egress {
		return "outgoing " + r.traffic() + " to " + r.source
	}
	return r.String()
}

// wantedRules returns the ingress rules of each group: only what is needed, with groups referring to
// each other. The ids of all groups must be known.
func wantedRules(spec Spec, groups map[aws.MachineRole]string) map[aws.MachineRole][]rule {
	out := map[aws.MachineRole][]rule{}
	allow := func(role aws.MachineRole, protocol string, from, to int32, sources ...string) {
		for _, s := range sources {
			out[role] = append(out[role], rule{protocol, from, to, s})
		}
	}
	lb, controller, members, worker := groups[aws.RoleLoadBalancer], groups[aws.RoleController], groups[aws.RoleEtcd], groups[aws.RoleWorker]
	admins := cidrStrings(spec.AdminCIDRs)

	bastions := groups[spec.BastionRole]
	allow(GroupSSH, "tcp", portSSH, portSSH, admins...)
	if bastions != "" {
		allow(GroupSSH, "tcp", portSSH, portSSH, bastions)
	}
	if spec.InstanceConnect {
		allow(GroupSSH, "tcp", portSSH, portSSH, groups[roleConnect])
	}
	allow(aws.RoleLoadBalancer, "tcp", aws.PortAPI, aws.PortAPI, append(admins, controller, worker)...)
	if bastions == lb && bastions != "" {
		allow(aws.RoleLoadBalancer, "tcp", aws.PortAPI, aws.PortAPI, bastions) // to a private endpoint
	}
	// A single controller may be the address of the cluster, without a load balancer. Who may log
	// in to it may reach its API server.
	allow(aws.RoleController, "tcp", aws.PortAPI, aws.PortAPI, append(admins, lb, controller, worker)...)
	// Members of one cluster may be on controllers and on machines of their own, while they move.
	allow(aws.RoleController, "tcp", portEtcdClient, portEtcdPeer, controller, members)
	allow(aws.RoleEtcd, "tcp", portEtcdClient, portEtcdPeer, controller, members)
	if spec.ControllerPods {
		for _, r := range podTraffic {
			allow(aws.RoleController, r.protocol, r.from, r.to, controller, worker)
		}
	}
	allow(aws.RoleWorker, "tcp", portKubelet, portKubelet, controller, worker)
	// Pod traffic may use any port, and its destination is not the address of a machine, so a
	// narrower rule is impossible.
	allow(aws.RoleWorker, "-1", 0, 0, controller, worker)
	for _, protocol := range []string{"tcp", "udp"} {
		allow(aws.RoleWorker, protocol, portNodePortMin, portNodePortMax, cidrStrings(spec.NodePortCIDRs)...)
	}
	return out
}

// rulesPerGroup is how many incoming rules AWS allows a security group, unless the account's quota L-0EA8095F is higher.
// https://docs.aws.amazon.com/vpc/latest/userguide/amazon-vpc-limits.html
const rulesPerGroup = 60

// CheckRules returns an error on admin_cidrs or nodeport_cidrs if its networks need more rules in a security group than AWS
// allows by default. What the account allows is not known here.
func CheckRules(spec Spec) (errs invalid.Fields) {
	names := map[aws.MachineRole]string{roleConnect: string(roleConnect)}
	for _, group := range Groups() {
		names[group] = string(group)
	}
	rules := wantedRules(spec, names)
	check := func(field string, networks []netip.Prefix, group aws.MachineRole, each int, needs string) {
		n := len(cidrStrings(networks))
		others := len(set(rules[group])) - n*each
		if fit := (rulesPerGroup - others) / each; n > fit {
			errs.Say(field, "More networks than fit by default", "%d networks are given, and %d fit: AWS allows %d rules in a security group unless the account's quota is higher: the apply would "+
				"fail. In the group of role %s each network needs %s, and %d further rules are needed. Write fewer, wider networks, or ask for more: Service Quotas, Amazon VPC, Inbound or "+
				"outbound rules per security group (L-0EA8095F).", n, fit, rulesPerGroup, group, needs, others)
		}
	}
	check("admin_cidrs", spec.AdminCIDRs, aws.RoleController, 1, "a rule for the API") // the group with the most rules for them
	check("nodeport_cidrs", spec.NodePortCIDRs, aws.RoleWorker, 2, "two rules")
	return errs
}

// podTraffic is what reaches pods on controllers. A rule cannot tell a pod from its machine, so ports are
// left out on which every controller listens and no pod need: those of SSH and of etcd.
var podTraffic = []rule{
	{protocol: "tcp", from: 0, to: portSSH - 1},
	{protocol: "tcp", from: portSSH + 1, to: portEtcdClient - 1},
	{protocol: "tcp", from: portEtcdPeer + 1, to: 65535},
	{protocol: "udp", from: 0, to: 65535},
	{protocol: "icmp", from: -1, to: -1},
}

// wantedEgress is the same for every role, because machines download and pull images.
var wantedEgress = []rule{{protocol: "-1", source: "0.0.0.0/0"}}

// egressIPv6 is a rule that EC2 also gives new groups in a VPC with IPv6 addresses. The machines
// have none.
var egressIPv6 = rule{protocol: "-1", source: "::/0"}

// rulesOf returns the rules in EC2's permissions.
func rulesOf(permissions []types.IpPermission) []rule {
	var out []rule
	for _, p := range permissions {
		r := rule{protocol: sdk.ToString(p.IpProtocol)}
		r.setPorts(p.FromPort, p.ToPort)
		add := func(source *string) {
			r.source = sdk.ToString(source)
			out = append(out, r)
		}
		for _, x := range p.IpRanges {
			add(x.CidrIp)
		}
		for _, x := range p.Ipv6Ranges {
			add(x.CidrIpv6)
		}
		for _, x := range p.UserIdGroupPairs {
			add(x.GroupId)
		}
		for _, x := range p.PrefixListIds {
			add(x.PrefixListId)
		}
	}
	return out
}

// setPorts sets the ports for protocols that have some. For others EC2 returns none in one response
// and -1 in another.
func (r *rule) setPorts(from, to *int32) {
	switch r.protocol {
	case "tcp", "udp", "icmp", "icmpv6":
		r.from, r.to = sdk.ToInt32(from), sdk.ToInt32(to)
	}
}

// permissions is the inverse of rulesOf, with as few entries as possible.
func permissions(rules []rule) []types.IpPermission {
	type port struct {
		protocol string
		from, to int32
	}
	byPort := map[port]*types.IpPermission{}
	var order []port
	for _, r := range rules {
		k := port{r.protocol, r.from, r.to}
		p := byPort[k]
		if p == nil {
			p = &types.IpPermission{IpProtocol: sdk.String(r.protocol)}
			if r.protocol != "-1" {
				p.FromPort, p.ToPort = sdk.Int32(r.from), sdk.Int32(r.to)
			}
			byPort[k] = p
			order = append(order, k)
		}
		prefix, err := netip.ParsePrefix(r.source)
		switch {
		case err == nil && prefix.Addr().Is4():
			p.IpRanges = append(p.IpRanges, types.IpRange{CidrIp: sdk.String(r.source)})
		case err == nil:
			p.Ipv6Ranges = append(p.Ipv6Ranges, types.Ipv6Range{CidrIpv6: sdk.String(r.source)})
		case len(r.source) > 3 && r.source[:3] == "pl-":
			p.PrefixListIds = append(p.PrefixListIds, types.PrefixListId{PrefixListId: sdk.String(r.source)})
		default:
			p.UserIdGroupPairs = append(p.UserIdGroupPairs, types.UserIdGroupPair{GroupId: sdk.String(r.source)})
		}
	}
	var out []types.IpPermission
	for _, k := range order {
		out = append(out, *byPort[k])
	}
	return out
}

// diffRules returns the rules to add to found and those to remove from it.
func diffRules(wanted, found []rule) (missing, unexpected []rule) {
	want, have := set(wanted), set(found)
	for _, r := range wanted {
		if !have[r] {
			missing = append(missing, r)
			have[r] = true
		}
	}
	for _, r := range found {
		if !want[r] {
			unexpected = append(unexpected, r)
			want[r] = true
		}
	}
	return missing, unexpected
}

func set(rules []rule) map[rule]bool {
	out := make(map[rule]bool, len(rules))
	for _, r := range rules {
		out[r] = true
	}
	return out
}

func cidrStrings(prefixes []netip.Prefix) []string {
	unique := map[string]bool{}
	for _, p := range prefixes {
		unique[p.String()] = true
	}
	return slices.Sorted(maps.Keys(unique))
}

// prefix returns the rule's source if that is an IPv4 network.
func (r rule) prefix() (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(r.source)
	return p, err == nil && p.Addr().Is4()
}
