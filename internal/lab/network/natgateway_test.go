package network

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const ipNAT = "10.240.0.5"

// natVPC has a NAT gateway in the subnet of A and B, and routes to it in the subnet of C. C forwards for pods.
func natVPC(public netip.Addr) VPC {
	vpc := threeInterfaces()
	vpc.Subnets[1].RouteTableID = "rtb-2"
	vpc.RouteTables = append(vpc.RouteTables, RouteTable{ID: "rtb-2", Routes: []Route{
		{Destination: everywhere, Target: Target{Kind: ToInterface, InterfaceID: "eni-nat"}},
	}})
	vpc.Interfaces = append(vpc.Interfaces, Interface{
		ID: "eni-nat", SubnetID: "subnet-1", PrivateIP: netip.MustParseAddr(ipNAT), PublicIP: public, NATGateway: true,
	})
	for n := range vpc.SecurityGroups {
		vpc.SecurityGroups[n].Ingress = rules("-1", 0, 0, anyCIDR)
	}
	return vpc
}

func withNATGateway(t *testing.T) *lab {
	l := newLab(t, natVPC(netip.Addr{}))
	l.iface("eni-nat").PublicIP = l.public(0)
	l.apply()
	l.serve(operator, l.address(operator)+":80")
	return l
}

func TestNATGateway(t *testing.T) {
	l := withNATGateway(t)
	outside := l.slice.Operator.String()
	if seen := l.reaches("eni-c", outside+":80"); seen != l.public(0).String() {
		t.Errorf("C is seen as %s from outside, want the NAT gateway's public address %s", seen, l.public(0))
	}
	received := l.receive(operator, outside+":9")
	l.send("eni-c", ipC+":0", outside+":9")
	if sender, err := received(answerWithin); err != nil || sender != l.public(0).String() {
		t.Errorf("UDP: from %s, %v", sender, err)
	}
	if err := l.ping("eni-c", outside, answerWithin); err != nil {
		t.Errorf("ping: %v", err)
	}
	l.dropped("eni-a", outside+":80") // in the public subnet, without a public address

	// Through a public address of the VPC itself.
	l.iface("eni-b").PublicIP = l.public(1)
	l.apply()
	l.serve("eni-b", ":80")
	if seen := l.reaches("eni-c", l.public(1).String()+":80"); seen != l.public(0).String() {
		t.Errorf("B sees C as %s through its public address", seen)
	}

	// Nothing comes in through it, and it answers nobody.
	l.serve("eni-c", ":80")
	l.serve("eni-nat", ":80")
	for _, place := range []string{operator, "eni-a"} {
		l.dropped(place, l.public(0).String()+":80")
	}
	l.dropped("eni-c", ipNAT+":80")
	l.dropped("eni-a", ipNAT+":80")
	if seen := l.reaches("eni-a", ipC+":80"); seen != ipA {
		t.Errorf("within the VPC A is seen as %s", seen)
	}

	l.addAddress("eni-c", ipB)
	l.send("eni-c", ipB+":0", outside+":9")
	if sender, err := received(patience); err == nil {
		t.Errorf("a packet with B's address went out through the NAT gateway, as %s", sender)
	}
	// It forwards TCP, UDP and ICMP alone.
	const experimental = 253
	if err := l.sendProtocol("eni-c", outside, experimental); err != nil {
		t.Fatal(err)
	}
	if before, after := l.flows("vpc-1", experimental), l.flows("eni-nat", experimental); before != 1 || after != 0 {
		t.Errorf("another protocol: %d flows reach the NAT gateway, and it forwards %d", before, after)
	}
}

// TestNATGatewayNeedsARoute checks what the NAT gateway's own subnet decides.
func TestNATGatewayNeedsARoute(t *testing.T) {
	l := withNATGateway(t)
	outside := l.slice.Operator.String() + ":80"
	l.reaches("eni-c", outside)
	for _, target := range []Target{{Kind: Blackhole}, {Kind: ToInterface, InterfaceID: "eni-nat"}} { // the second route leads back to the NAT gateway
		l.cfg.VPCs[0].RouteTables[0].Routes[0].Target = target
		l.apply()
		l.dropped("eni-c", outside)
	}
	l.cfg.VPCs[0].RouteTables[0].Routes[0].Target = Target{Kind: InternetGateway}
	l.cfg.VPCs[0].InternetGateway = false
	l.apply()
	l.dropped("eni-c", outside)
	l.cfg.VPCs[0].InternetGateway = true
	l.iface("eni-nat").PublicIP = netip.Addr{} // a private NAT gateway
	l.apply()
	l.dropped("eni-c", outside)
	l.iface("eni-nat").PublicIP = l.public(1)
	l.iface("eni-nat").Stopped = true // pending
	l.apply()
	l.dropped("eni-c", outside)
	l.iface("eni-nat").Stopped = false
	l.apply()
	if seen := l.reaches("eni-c", outside); seen != l.public(1).String() {
		t.Errorf("seen as %s", seen)
	}
}

// TestNATGatewayForPods checks that other sources than instances are translated, and that answers take the
// route table of the NAT gateway's subnet.
func TestNATGatewayForPods(t *testing.T) {
	l := withNATGateway(t)
	outside := l.slice.Operator.String() + ":80"
	l.addAddress("eni-c", podC)
	l.iface("eni-c").SourceDestCheck = false
	l.apply()
	l.droppedFrom("eni-c", podC, outside) // the answers do not find the pod
	public := &l.cfg.VPCs[0].RouteTables[0].Routes
	*public = append(*public, Route{Destination: netip.MustParsePrefix(podNet), Target: Target{Kind: ToInterface, InterfaceID: "eni-c"}})
	l.apply()
	if seen := l.reachesFrom("eni-c", podC, outside); seen != l.public(0).String() {
		t.Errorf("a pod is seen as %s, want %s", seen, l.public(0))
	}
}

// TestNATGatewayFlows checks that a flow outlives a new Manager and changes that do not concern it,
// and ends once the NAT gateway has forgotten it.
func TestNATGatewayFlows(t *testing.T) {
	l := withNATGateway(t)
	outside := l.slice.Operator.String() + ":80"
	c, err := l.dial("eni-c", "", outside, answerWithin)
	if err != nil {
		t.Fatal(err)
	}
	l.iface("eni-a").PublicIP = l.public(3)
	l.apply()
	l.Close()
	if l.Manager, err = Open(t.Context(), l.slice); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	l.apply()
	if err := c.alive(answerWithin); err != nil {
		t.Errorf("the flow was cut: %v", err)
	}
	inside, _, closeInside, err := open(l.slice.namespace("eni-nat"))
	if err != nil {
		t.Fatal(err)
	}
	defer closeInside()
	if err := inside.ConntrackTableFlush(netlink.ConntrackTable); err != nil { // what 350 s without a packet do
		t.Fatal(err)
	}
	if err := c.alive(answerWithin); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("a flow that it has forgotten: %v, want a reset", err)
	}
	l.reaches("eni-c", outside)
}

func TestNATGatewayReportsLargePackets(t *testing.T) {
	l := withNATGateway(t)
	outside := l.slice.Operator.String()
	for _, test := range []struct {
		size int
		fits bool
	}{{1500, true}, {1501, false}} {
		received := l.datagrams(operator, outside+":9")
		err := l.sendWhole("eni-c", outside+":9", test.size-28, waitFor(!test.fits))
		if !test.fits && !errors.Is(err, unix.EMSGSIZE) || test.fits && err != nil {
			t.Errorf("%d bytes: %v", test.size, err)
		}
		if got := received(waitFor(test.fits)); (got == test.size-28) != test.fits {
			t.Errorf("%d bytes: received %d", test.size, got)
		}
	}
}

// TestCut checks that a cut interface is silent in both directions, also for flows that exist, and that
// they continue afterwards.
func TestCut(t *testing.T) {
	l := withNATGateway(t)
	l.iface("eni-a").PublicIP = l.public(1)
	l.apply()
	metadata, err := l.ListenTCP(t.Context(), "vpc-1", "169.254.169.254:80")
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, metadata)
	for _, place := range []string{"eni-a", "eni-b", "eni-c"} {
		l.serve(place, l.address(place)+":80")
	}
	outside, inward := l.slice.Operator.String()+":80", l.public(1).String()+":80"
	flows := map[string]*conn{}
	for what, from := range map[string][2]string{
		"from outside": {operator, inward}, "to outside": {"eni-a", outside}, "to its neighbour": {"eni-a", ipB + ":80"}, "from the other subnet": {"eni-c", ipA + ":80"},
	} {
		if flows[what], err = l.dial(from[0], "", from[1], answerWithin); err != nil {
			t.Fatal(err)
		}
	}
	// A, B and the NAT gateway are in the zone.
	zone := []string{"eni-a", "eni-b", "eni-nat"}
	for _, id := range zone {
		l.iface(id).Cut = true
	}
	l.apply()
	for what, c := range flows {
		if err := c.alive(patience); err == nil {
			t.Errorf("the flow %s goes on", what)
		}
	}
	l.dropped(operator, inward)
	l.dropped("eni-a", ipB+":80")
	l.dropped("eni-a", ipC+":80")
	l.dropped("eni-c", ipA+":80")
	l.dropped("eni-c", outside) // through the NAT gateway
	l.reaches("eni-a", "169.254.169.254:80")

	for _, id := range zone {
		l.iface(id).Cut = false
	}
	l.apply()
	for what, c := range flows {
		if err := c.alive(answerWithin); err != nil {
			t.Errorf("the flow %s does not continue: %v", what, err)
		}
	}
	l.reaches("eni-c", outside)
}

// sendProtocol sends a packet of an IP protocol.
func (l *lab) sendProtocol(place, to string, protocol int) error {
	return l.at(place, func() error {
		raw, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
		if err != nil {
			return err
		}
		defer unix.Close(raw) //nolint:errcheck // written only
		return unix.Sendto(raw, make([]byte, 32), 0, &unix.SockaddrInet4{Addr: netip.MustParseAddr(to).As4()})
	})
}

// flows returns the number of flows of an IP protocol that a namespace tracks.
func (l *lab) flows(place string, protocol uint8) int {
	l.t.Helper()
	inside, _, closeInside, err := open(l.slice.namespace(place))
	if err != nil {
		l.t.Fatal(err)
	}
	defer closeInside()
	tracked, err := inside.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	if err != nil {
		l.t.Fatal(err)
	}
	n := 0
	for _, f := range tracked {
		if f.Forward.Protocol == protocol {
			n++
		}
	}
	return n
}
