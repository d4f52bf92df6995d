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

func TestPermissionsRoundTrip(t *testing.T) {
	groups := map[aws.MachineRole]string{aws.RoleLoadBalancer: "sg-l", aws.RoleController: "sg-c", aws.RoleEtcd: "sg-e", aws.RoleWorker: "sg-w"}
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

// TestSSHFromBastions checks that machines reach each other's SSH only from the role of bastions, and
// that bastions reach the API servers.
func TestSSHFromBastions(t *testing.T) {
	groups := map[aws.MachineRole]string{aws.RoleLoadBalancer: "sg-l", aws.RoleController: "sg-c", aws.RoleEtcd: "sg-e", aws.RoleWorker: "sg-w"}
	for _, bastions := range []aws.MachineRole{aws.RoleLoadBalancer, aws.RoleController, aws.RoleWorker, ""} {
		rules := wantedRules(Spec{BastionRole: bastions}, groups)
		for _, role := range aws.MachineRoles() {
			var from []string
			for _, r := range rules[role] {
				if r.protocol == "tcp" && r.from <= portSSH && portSSH <= r.to {
					from = append(from, r.source)
				}
			}
			if want := groups[bastions]; strings.Join(from, " ") != want {
				t.Errorf("with bastions %q, SSH to %s is open from %q, wanted %q", bastions, role, from, want)
			}
			if api := (rule{"tcp", aws.PortAPI, aws.PortAPI, groups[bastions]}); bastions != "" && (role == aws.RoleLoadBalancer || role == aws.RoleController) && !slices.Contains(rules[role], api) {
				t.Errorf("with bastions %q, %s lacks the rule %s", bastions, role, api)
			}
		}
	}
}
