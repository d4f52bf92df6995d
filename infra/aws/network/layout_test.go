package network

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func TestSubnets(t *testing.T) {
	zones := func(n int) []string { return make([]string, n) }
	prefix := netip.MustParsePrefix
	for _, tt := range []struct {
		name              string
		vpc, node, public string
		zones             int
		nat               NATGateways
		subnets, problems string
	}{
		{"one zone", "10.240.0.0/16", "10.240.0.0/24", "", 1, NoNATGateways, "10.240.0.0/24", ""},
		{"as large as the VPC", "10.240.0.0/16", "10.240.0.0/16", "", 1, NoNATGateways, "10.240.0.0/16", ""},
		{"larger than the VPC", "10.240.0.0/17", "10.240.0.0/16", "", 1, NoNATGateways, "10.240.0.0/16",
			"node_cidr|Network outside its range|10.240.0.0/16 does not lie within 10.240.0.0/17."},
		{"elsewhere", "10.240.0.0/16", "10.241.0.0/24", "", 1, NoNATGateways, "10.241.0.0/24",
			"node_cidr|Network outside its range|10.241.0.0/24 does not lie within 10.240.0.0/16."},
		{"VPC not known", "", "10.240.0.0/16", "", 1, NoNATGateways, "10.240.0.0/16", ""},
		{"subnet not known", "10.240.0.0/16", "", "", 1, NoNATGateways, "invalid Prefix", ""},
		{"three zones", "10.240.0.0/16", "10.240.0.0/24", "", 3, NoNATGateways, "10.240.0.0/24 10.240.1.0/24 10.240.2.0/24", ""},
		{"three private zones", "10.240.0.0/16", "10.240.0.0/24", "10.240.128.0/28", 3, NATGatewayPerZone,
			"10.240.0.0/24 10.240.1.0/24 10.240.2.0/24 10.240.128.0/28 10.240.128.16/28 10.240.128.32/28", ""},
		{"no room for the third zone", "10.240.0.0/23", "10.240.0.0/24", "", 3, NoNATGateways, "10.240.0.0/24 10.240.1.0/24 10.240.2.0/24",
			"node_cidr|Network outside its range|10.240.2.0/24, the network of zone 3 after 10.240.0.0/24, does not lie within 10.240.0.0/23."},
		{"the addresses end", "255.255.0.0/16", "255.255.255.0/24", "", 2, NoNATGateways, "255.255.255.0/24 invalid Prefix",
			"node_cidr|Network outside its range|There is no network for zone 2 after 255.255.255.0/24."},
		{"public within private", "10.240.0.0/16", "10.240.0.0/24", "10.240.0.128/28", 1, OneNATGateway, "10.240.0.0/24 10.240.0.128/28",
			"public_cidr|Overlapping networks|10.240.0.128/28 overlaps 10.240.0.0/24, the network of the machines in zone 1."},
		{"private within the second public", "10.240.0.0/16", "10.240.2.0/24", "10.240.0.0/23", 2, OneNATGateway, "10.240.2.0/24 10.240.3.0/24 10.240.0.0/23 10.240.2.0/23",
			"public_cidr|Overlapping networks|10.240.2.0/23, the network of zone 2 after 10.240.0.0/23, overlaps 10.240.2.0/24, the network of the machines in zone 1."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := Spec{Zones: zones(tt.zones), NATGateways: tt.nat}
			for to, text := range map[*netip.Prefix]string{&spec.VPCCIDR: tt.vpc, &spec.NodeCIDR: tt.node, &spec.PublicCIDR: tt.public} {
				if text != "" {
					*to = prefix(text)
				}
			}
			var subnets []string
			for _, s := range PlannedSubnets(spec) {
				subnets = append(subnets, s.CIDR.String())
			}
			if got := strings.Join(subnets, " "); got != tt.subnets {
				t.Errorf("subnets %s, wanted %s", got, tt.subnets)
			}
			var problems []string
			for _, e := range CheckSubnets(spec) {
				problems = append(problems, e.Field+"|"+e.Problem+"|"+e.Err.Error())
			}
			if got := strings.Join(problems, "; "); got != tt.problems {
				t.Errorf("problems %s, wanted %s", got, tt.problems)
			}
		})
	}
}

func TestDefaultPublicCIDR(t *testing.T) {
	for _, tt := range []struct{ vpc, node, want string }{
		{"10.240.0.0/16", "10.240.0.0/24", "10.240.128.0/24"},
		{"10.240.0.0/16", "10.240.7.0/24", "10.240.128.0/24"},
		{"10.240.0.0/23", "10.240.0.0/24", "10.240.1.0/24"},
		{"10.240.0.0/24", "10.240.0.0/24", "invalid Prefix"},
	} {
		if got := DefaultPublicCIDR(netip.MustParsePrefix(tt.vpc), netip.MustParsePrefix(tt.node)); got.String() != tt.want {
			t.Errorf("in %s beside %s: %s, wanted %s", tt.vpc, tt.node, got, tt.want)
		}
	}
}

func TestRouteTables(t *testing.T) {
	for nat, want := range map[NATGateways]string{
		NoNATGateways:     "[public] map[] []",
		OneNATGateway:     "[public private-0 private-1] map[private-0:0 private-1:0] [0]",
		NATGatewayPerZone: "[public private-0 private-1] map[private-0:0 private-1:1] [0 1]",
	} {
		spec := Spec{Zones: []string{"", ""}, NATGateways: nat}
		names, natOf := spec.tables()
		if got := fmt.Sprint(names, natOf, spec.natZones()); got != want {
			t.Errorf("%q: tables %s, wanted %s", nat, got, want)
		}
	}
}
