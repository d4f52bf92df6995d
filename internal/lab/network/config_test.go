package network

import (
	"net/netip"
	"strings"
	"testing"
)

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
		{"NAT gateway in a group", func(v *VPC) { v.Interfaces[1].NATGateway = true }, "neither groups nor"},
		{"load balancer with a check", func(v *VPC) { v.Interfaces[0].Balancer = &Balancer{} }, "no source/destination check"},
		{"port of a listener twice", func(v *VPC) { v.Interfaces[1].Balancer = &Balancer{[]Listener{{Port: 80}, {Port: 80}}} }, "repeated port 80"},
		{"IPv6 target", func(v *VPC) {
			v.Interfaces[1].Balancer = &Balancer{[]Listener{{Port: 80, Targets: []netip.AddrPort{netip.MustParseAddrPort("[::1]:80")}}}}
		}, "invalid target"},
		{"load balancer in a group", func(v *VPC) { v.Interfaces[1].Balancer = &Balancer{[]Listener{{Port: 80}}} }, ""},
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
