package network

import (
	"net/netip"
	"testing"
)

func testSlice(t *testing.T) Slice {
	t.Helper()
	s, err := sliceAt(slicesOfRange) // 203.0.113.0/26
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// clusterVPC is a small cluster's VPC. It has a controller and a worker in one subnet, a second
// worker in another, pod routes to the workers, and a public address on the controller.
func clusterVPC() VPC {
	return VPC{
		ID:              "vpc-0a1b2c3d4e5f60718",
		CIDR:            netip.MustParsePrefix("10.240.0.0/16"),
		InternetGateway: true,
		Subnets: []Subnet{
			{ID: "subnet-a", CIDR: netip.MustParsePrefix("10.240.0.0/24"), RouteTableID: "rtb-main"},
			{ID: "subnet-b", CIDR: netip.MustParsePrefix("10.240.1.0/24")},
		},
		RouteTables: []RouteTable{{ID: "rtb-main", Routes: []Route{
			{Destination: netip.MustParsePrefix("10.240.0.0/16"), Target: Target{Kind: Local}},
			{Destination: netip.MustParsePrefix("0.0.0.0/0"), Target: Target{Kind: InternetGateway}},
			{Destination: netip.MustParsePrefix("10.200.0.0/24"), Target: Target{Kind: ToInterface, InterfaceID: "eni-worker-0"}},
			{Destination: netip.MustParsePrefix("10.200.1.0/24"), Target: Target{Kind: ToInterface, InterfaceID: "eni-worker-1"}},
			{Destination: netip.MustParsePrefix("10.200.2.0/24"), Target: Target{Kind: ToInterface, InterfaceID: "eni-gone"}},
			{Destination: netip.MustParsePrefix("192.168.0.0/16"), Target: Target{Kind: Blackhole}},
		}}},
		Interfaces: []Interface{
			{
				ID: "eni-0123456789abcdef0", SubnetID: "subnet-a", PrivateIP: netip.MustParseAddr("10.240.0.10"),
				PublicIP: netip.MustParseAddr("203.0.113.3"), MAC: "02:00:0a:f0:00:0a", SourceDestCheck: true,
				Groups: []string{"sg-controller"},
			},
			{ID: "eni-worker-0", SubnetID: "subnet-a", PrivateIP: netip.MustParseAddr("10.240.0.20"), Groups: []string{"sg-worker"}},
			{ID: "eni-worker-1", SubnetID: "subnet-b", PrivateIP: netip.MustParseAddr("10.240.1.21"), Groups: []string{"sg-worker"}, Stopped: true},
		},
		SecurityGroups: []SecurityGroup{
			{
				ID: "sg-controller",
				Ingress: []Rule{
					{Protocol: "tcp", FromPort: 22, ToPort: 22, CIDR: netip.MustParsePrefix("203.0.113.1/32")},
					{Protocol: "tcp", FromPort: 6443, ToPort: 6443, GroupID: "sg-worker"},
					{Protocol: "tcp", FromPort: 2379, ToPort: 2380, GroupID: "sg-controller"},
					{Protocol: "icmp", FromPort: 8, ToPort: -1, CIDR: netip.MustParsePrefix("0.0.0.0/0")},
					{Protocol: "tcp", FromPort: 80, ToPort: 80, GroupID: "sg-of-nobody"},
				},
				Egress: []Rule{
					{Protocol: "-1", CIDR: netip.MustParsePrefix("0.0.0.0/0")},
					{Protocol: "-1", CIDR: netip.MustParsePrefix("::/0")},
				},
			},
			{
				ID:      "sg-worker",
				Ingress: []Rule{{Protocol: "-1", GroupID: "sg-worker"}, {Protocol: "4", CIDR: netip.MustParsePrefix("10.240.0.0/16")}},
				Egress: []Rule{
					{Protocol: "udp", FromPort: 0, ToPort: 65535, CIDR: netip.MustParsePrefix("10.240.0.0/16")},
					{Protocol: "tcp", FromPort: -1, ToPort: -1, GroupID: "sg-controller"},
				},
			},
		},
	}
}
