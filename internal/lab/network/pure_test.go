package network

import (
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

var update = flag.Bool("update", false, "rewrite golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestRenderRuleset(t *testing.T) {
	private := clusterVPC()
	private.InternetGateway = false
	for name, vpc := range map[string]VPC{
		"cluster.nft": clusterVPC(),
		"private.nft": private,
		"empty.nft":   {ID: "vpc-1", CIDR: netip.MustParsePrefix("10.0.0.0/16")},
	} {
		t.Run(name, func(t *testing.T) { golden(t, name, renderRuleset(vpc)) })
	}
}

func TestRenderRulesetIgnoresOrder(t *testing.T) {
	shuffled := clusterVPC()
	i, g := shuffled.Interfaces, shuffled.SecurityGroups
	i[0], i[2] = i[2], i[0]
	g[0], g[1] = g[1], g[0]
	if diff := cmp.Diff(renderRuleset(clusterVPC()), renderRuleset(shuffled)); diff != "" {
		t.Error(diff)
	}
	if i[0].ID != "eni-worker-1" {
		t.Error("rendering reordered the caller's interfaces")
	}
}

func TestPlanRouter(t *testing.T) {
	private := clusterVPC()
	private.InternetGateway = false
	for name, vpc := range map[string]VPC{"cluster.plan": clusterVPC(), "private.plan": private} {
		t.Run(name, func(t *testing.T) {
			plan := planRouter(vpc)
			var b strings.Builder
			for _, addr := range plan.Addresses {
				fmt.Fprintln(&b, "address", addr)
			}
			for _, l := range plan.Links {
				fmt.Fprintf(&b, "link %s (%s) gateway %s\n", l.Name, l.alias(), l.Gateway)
			}
			for _, r := range plan.Rules {
				fmt.Fprintln(&b, "rule", r)
			}
			for _, r := range plan.Routes {
				fmt.Fprintln(&b, "route", r)
			}
			golden(t, name, b.String())
		})
	}
}

func TestPlanInternet(t *testing.T) {
	var got []string
	for _, r := range planInternet(testSlice(t), Config{VPCs: []VPC{clusterVPC()}}) {
		got = append(got, r.String())
	}
	want := []string{
		"203.0.113.1/32 dev operator src 203.0.113.2",
		"203.0.113.3/32 via 169.254.255.2 dev " + shortName(clusterVPC().ID),
		"blackhole 0.0.0.0/0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTableNumbersStay(t *testing.T) {
	vpc := clusterVPC()
	before := vpc.tableNumbers()["rtb-main"]
	for n := range 50 {
		vpc.Subnets = append(vpc.Subnets, Subnet{ID: fmt.Sprintf("subnet-%d", n), RouteTableID: fmt.Sprintf("rtb-%d", n)})
	}
	if after := vpc.tableNumbers()["rtb-main"]; after != before {
		t.Errorf("table number went from %d to %d when others came", before, after)
	}
	seen := map[int]string{}
	for id, number := range vpc.tableNumbers() {
		if other, taken := seen[number]; taken {
			t.Errorf("%s and %s share table %d", id, other, number)
		}
		seen[number] = id
	}
}

func TestValidate(t *testing.T) {
	for _, test := range []struct {
		name   string
		spoil  func(*VPC)
		reason string // empty: valid
	}{
		{"as it is", func(*VPC) {}, ""},
		{"identifier that would break out of a ruleset", func(v *VPC) { v.Interfaces[0].ID = `eni-"; }` }, "malformed identifier"},
		{"identifier that is one of our names", func(v *VPC) { v.ID = internetID }, "malformed identifier"},
		{"identifier used twice", func(v *VPC) { v.Interfaces[1].ID = v.Interfaces[2].ID }, "already used"},
		{"IPv6 VPC", func(v *VPC) { v.CIDR = netip.MustParsePrefix("fd00::/64") }, "not a canonical IPv4 CIDR"},
		{"subnet with host bits", func(v *VPC) { v.Subnets[0].CIDR = netip.MustParsePrefix("10.240.0.1/24") }, "not a canonical"},
		{"subnet outside the VPC", func(v *VPC) { v.Subnets[0].CIDR = netip.MustParsePrefix("10.241.0.0/24") }, "inside 10.240.0.0/16"},
		{"subnet around the VPC", func(v *VPC) { v.Subnets[0].CIDR = netip.MustParsePrefix("10.0.0.0/8") }, "inside 10.240.0.0/16"},
		{"unknown route table", func(v *VPC) { v.Subnets[0].RouteTableID = "rtb-x" }, `no route table "rtb-x"`},
		{"unknown subnet", func(v *VPC) { v.Interfaces[0].SubnetID = "subnet-x" }, `no subnet "subnet-x"`},
		{"address outside the subnet", func(v *VPC) { v.Interfaces[0].PrivateIP = netip.MustParseAddr("10.240.1.9") }, "is not in"},
		{"gateway's address", func(v *VPC) { v.Interfaces[0].PrivateIP = netip.MustParseAddr("10.240.0.1") }, "belongs to the router"},
		{"resolver's address", func(v *VPC) { v.Interfaces[0].PrivateIP = netip.MustParseAddr("10.240.0.2") }, "belongs to the router"},
		{"private address used twice", func(v *VPC) { v.Interfaces[0].PrivateIP = v.Interfaces[1].PrivateIP }, "already used"},
		{"public address of another slice", func(v *VPC) { v.Interfaces[0].PublicIP = netip.MustParseAddr("203.0.113.70") }, "not a public address"},
		{"operator's address", func(v *VPC) { v.Interfaces[0].PublicIP = netip.MustParseAddr("203.0.113.1") }, "not a public address"},
		{"server's address", func(v *VPC) { v.Interfaces[0].PublicIP = netip.MustParseAddr("203.0.113.62") }, "not a public address"},
		{"public address used twice", func(v *VPC) { v.Interfaces[1].PublicIP = v.Interfaces[0].PublicIP }, "already used"},
		{"multicast MAC", func(v *VPC) { v.Interfaces[0].MAC = "01:00:5e:00:00:01" }, "not a unicast MAC"},
		{"unknown group", func(v *VPC) { v.Interfaces[0].Groups = []string{"sg-x"} }, `no security group "sg-x"`},
		{"unknown protocol", func(v *VPC) { v.SecurityGroups[0].Ingress[0].Protocol = "sctp" }, "unknown protocol"},
		{"reversed ports", func(v *VPC) { v.SecurityGroups[0].Ingress[0].FromPort = 23 }, "invalid port range 23-22"},
		{"port too large", func(v *VPC) { v.SecurityGroups[0].Ingress[0].ToPort = 65536 }, "invalid port range"},
		{"ICMP type too large", func(v *VPC) { v.SecurityGroups[0].Ingress[3].FromPort = 256 }, "invalid ICMP type"},
		{"rule for nobody", func(v *VPC) { v.SecurityGroups[0].Ingress[0].CIDR = netip.Prefix{} }, "neither CIDR nor group"},
	} {
		t.Run(test.name, func(t *testing.T) {
			vpc := clusterVPC()
			test.spoil(&vpc)
			err := Config{VPCs: []VPC{vpc}}.validate(testSlice(t))
			switch {
			case test.reason == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.reason != "" && (err == nil || !strings.Contains(err.Error(), test.reason)):
				t.Errorf("got %v, want an error saying %q", err, test.reason)
			}
		})
	}
}

func TestShortName(t *testing.T) {
	names := map[string]bool{}
	for _, id := range []string{"eni-1", "vpc-0a1b2c3d4e5f60718", "eni-00000000000000001", "eni-00000000000000002"} {
		name := shortName(id)
		if len(name) > 15 || names[name] {
			t.Errorf("%s: unusable name %s", id, name)
		}
		names[name] = true
	}
}

func TestSlices(t *testing.T) {
	seen := map[netip.Addr]bool{}
	for index := range sliceCount {
		s, err := sliceAt(index)
		if err != nil {
			t.Fatal(err)
		}
		addrs := s.PublicIPs()
		if len(addrs) != 58 {
			t.Errorf("slice %d has %d public addresses", index, len(addrs))
		}
		for _, addr := range slices.Concat(addrs, s.Servers(), []netip.Addr{s.Operator, s.internet()}) {
			if seen[addr] || !s.Prefix.Contains(addr) {
				t.Errorf("slice %d: %s is outside or not the slice's alone", index, addr)
			}
			seen[addr] = true
		}
	}
	if _, err := sliceAt(sliceCount); err == nil {
		t.Error("a slice too many")
	}
}

func TestStaleFlows(t *testing.T) {
	filter := staleFlows{
		cidr:    netip.MustParsePrefix("10.240.0.0/16"),
		present: map[netip.Addr]bool{netip.MustParseAddr("10.240.0.10"): true, netip.MustParseAddr("10.240.0.11"): true},
		public:  map[netip.Addr]netip.Addr{netip.MustParseAddr("10.240.0.10"): netip.MustParseAddr("203.0.113.3")},
	}
	for _, test := range []struct {
		name                   string
		sender, dialled        string
		receiver, senderAsSeen string
		stale                  bool
	}{
		{"between interfaces", "10.240.0.10", "10.240.0.11", "10.240.0.11", "10.240.0.10", false},
		{"between pods", "10.200.0.5", "10.200.1.5", "10.200.1.5", "10.200.0.5", false},
		{"to an interface that is gone", "10.240.0.10", "10.240.0.12", "10.240.0.12", "10.240.0.10", true},
		{"from an interface that is gone", "10.240.0.12", "10.240.0.10", "10.240.0.10", "10.240.0.12", true},
		{"in through the public address", "203.0.113.1", "203.0.113.3", "10.240.0.10", "203.0.113.1", false},
		{"in through another's public address", "203.0.113.1", "203.0.113.3", "10.240.0.11", "203.0.113.1", true},
		{"out with the public address", "10.240.0.10", "203.0.113.1", "203.0.113.1", "203.0.113.3", false},
		{"out with a former public address", "10.240.0.10", "203.0.113.1", "203.0.113.1", "203.0.113.4", true},
		{"out with a public address taken away", "10.240.0.11", "203.0.113.1", "203.0.113.1", "203.0.113.4", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			flow := &netlink.ConntrackFlow{
				Forward: netlink.IPTuple{SrcIP: net.ParseIP(test.sender), DstIP: net.ParseIP(test.dialled)},
				Reverse: netlink.IPTuple{SrcIP: net.ParseIP(test.receiver), DstIP: net.ParseIP(test.senderAsSeen)},
			}
			if got := filter.MatchConntrackFlow(flow); got != test.stale {
				t.Errorf("stale: %v, want %v", got, test.stale)
			}
		})
	}
}
