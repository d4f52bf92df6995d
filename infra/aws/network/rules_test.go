package network

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// TestFindings checks the text of findings about the default route and rules.
func TestFindings(t *testing.T) {
	route := func(to, gateway string, state types.RouteState) types.RouteTable {
		return types.RouteTable{Routes: []types.Route{{DestinationCidrBlock: &to, GatewayId: &gateway, State: state}}}
	}
	for _, tt := range []struct {
		found []finding.Finding
		want  string
	}{
		{diffDefaultRoute(route("0.0.0.0/0", "igw-1", types.RouteStateActive), "igw-1"), ""},
		{diffDefaultRoute(route("0.0.0.0/0", "igw-1", types.RouteStateBlackhole), "igw-1"), "route 0.0.0.0/0: found igw-1 (blackhole), wanted igw-1"},
		{diffDefaultRoute(route("0.0.0.0/0", "igw-2", types.RouteStateActive), "igw-1"), "route 0.0.0.0/0: found igw-2 (active), wanted igw-1"},
		{diffDefaultRoute(route("10.0.0.0/8", "igw-1", types.RouteStateActive), "igw-1"), "route 0.0.0.0/0: missing, wanted igw-1"},
	} {
		if got := finding.Words(tt.found); got != tt.want {
			t.Errorf("%q, wanted %q", got, tt.want)
		}
	}
	groups := map[aws.MachineRole]string{aws.RoleWorker: "sg-w"}
	for r, want := range map[rule][2]string{
		{"tcp", 22, 22, "0.0.0.0/0"}:     {"tcp 22 from 0.0.0.0/0", "outgoing tcp 22 to 0.0.0.0/0"},
		{"udp", 30000, 32767, "sg-w"}:    {"udp 30000-32767 from group worker", "outgoing udp 30000-32767 to group worker"},
		{protocol: "-1", source: "::/0"}: {"all traffic from ::/0", "outgoing all traffic to ::/0"},
	} {
		if in, out := r.in(groups, false), r.in(groups, true); in != want[0] || out != want[1] {
			t.Errorf("%q and %q, wanted %q", in, out, want)
		}
	}
}

// TestCheckRules counts the rules as findRules makes them.
func TestCheckRules(t *testing.T) {
	networks := func(n int) (out []netip.Prefix) {
		for i := range n {
			out = append(out, netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}), 32))
		}
		return out
	}
	names := map[aws.MachineRole]string{roleConnect: "connect"}
	for _, group := range Groups() {
		names[group] = string(group)
	}
	for _, tt := range []struct {
		spec        Spec
		field, says string // says is empty if the networks fit
	}{
		{spec: Spec{AdminCIDRs: networks(30), BastionRole: aws.RoleLoadBalancer, InstanceConnect: true}},
		{spec: Spec{AdminCIDRs: networks(55), BastionRole: aws.RoleController, InstanceConnect: true, NodePortCIDRs: networks(28)}},
		{spec: Spec{AdminCIDRs: networks(55), BastionRole: aws.RoleLoadBalancer, InstanceConnect: true}},
		{spec: Spec{AdminCIDRs: networks(45), ControllerPods: true, BastionRole: aws.RoleWorker, InstanceConnect: true}},
		{spec: Spec{AdminCIDRs: slices.Repeat(networks(1), 80)}},
		{Spec{AdminCIDRs: networks(56)}, "admin_cidrs", "56 networks are given, and 55 fit: AWS allows 60 rules in a security group unless the account's quota is higher: the apply would fail. In the group of role controller each network needs a rule for the API, and 5 further rules"},
		{Spec{AdminCIDRs: networks(46), ControllerPods: true}, "admin_cidrs", "46 networks are given, and 45 fit"},
		{Spec{AdminCIDRs: networks(1), NodePortCIDRs: networks(29)}, "nodeport_cidrs", "29 networks are given, and 28 fit"},
	} {
		errs := CheckRules(tt.spec)
		most := 0
		for _, rules := range wantedRules(tt.spec, names) {
			most = max(most, len(set(rules)))
		}
		if fits := most <= rulesPerGroup; fits != (len(errs) == 0) {
			t.Errorf("%d rules in a group: %v", most, errs.Err())
		}
		if tt.says == "" && len(errs) == 0 {
			continue
		}
		if len(errs) != 1 || errs[0].Field != tt.field || !strings.Contains(errs[0].Err.Error(), tt.says) {
			t.Errorf("%d networks: %v, wanted %s: %s", len(tt.spec.AdminCIDRs), errs.Err(), tt.field, tt.says)
		}
	}
}

func TestPermissionsRoundTrip(t *testing.T) {
	groups := map[aws.MachineRole]string{aws.RoleLoadBalancer: "sg-l", aws.RoleController: "sg-c", aws.RoleEtcd: "sg-e", aws.RoleWorker: "sg-w", GroupSSH: "sg-s"}
	spec := Spec{AdminCIDRs: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.0.2.0/24")}}
	for role, rules := range wantedRules(spec, groups) {
		missing, unexpected := diffRules(rules, rulesOf(permissions(rules)))
		if len(missing)+len(unexpected) > 0 {
			t.Errorf("%s: lost %v, gained %v", role, missing, unexpected)
		}
	}
	foreign := []rule{{"tcp", 1, 2, "2001:db8::/32"}, {"udp", 53, 53, "pl-123"}, {"-1", 0, 0, "sg-other"}}
	if got := rulesOf(permissions(foreign)); !slices.Equal(got, foreign) {
		t.Errorf("got %v, wanted %v", got, foreign)
	}
	want := []string{"tcp 1-2 from 2001:db8::/32", "udp 53 from pl-123", "all traffic from sg-other"}
	for i, r := range foreign {
		if r.String() != want[i] {
			t.Errorf("got %q, wanted %q", r, want[i])
		}
	}
}

// TestSSHFromBastions checks that SSH is open in the group ssh only, there from the role of bastions, and that bastions reach
// the API servers.
func TestSSHFromBastions(t *testing.T) {
	groups := map[aws.MachineRole]string{aws.RoleLoadBalancer: "sg-l", aws.RoleController: "sg-c", aws.RoleEtcd: "sg-e", aws.RoleWorker: "sg-w", GroupSSH: "sg-s"}
	for _, bastions := range []aws.MachineRole{aws.RoleLoadBalancer, aws.RoleController, aws.RoleWorker, ""} {
		rules := wantedRules(Spec{BastionRole: bastions}, groups)
		for _, group := range Groups() {
			var from []string
			for _, r := range rules[group] {
				if r.protocol == "tcp" && r.letsSSH() {
					from = append(from, r.source)
				}
			}
			want := ""
			if group == GroupSSH {
				want = groups[bastions]
			}
			if strings.Join(from, " ") != want {
				t.Errorf("with bastions %q, SSH in %s is open from %q, wanted %q", bastions, group, from, want)
			}
			if api := (rule{"tcp", aws.PortAPI, aws.PortAPI, groups[bastions]}); bastions != "" && (group == aws.RoleLoadBalancer || group == aws.RoleController) && !slices.Contains(rules[group], api) {
				t.Errorf("with bastions %q, %s lacks the rule %s", bastions, group, api)
			}
		}
	}
}
