package network

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// routeOut gives a router a route to an address in the internet.
func (l *lab) routeOut(place string, to netip.Addr) {
	l.t.Helper()
	router, _, closeRouter, err := open(l.slice.namespace(place))
	if err != nil {
		l.t.Fatal(err)
	}
	defer closeRouter()
	out := route{Table: unix.RT_TABLE_MAIN, Kind: unix.RTN_UNICAST, Destination: netip.PrefixFrom(to, 32), Via: uplinkOutside, Link: uplinkName}
	if err := syncRoutes(router, []route{out}, false); err != nil {
		l.t.Fatal(err)
	}
}

func withPublicAddresses(t *testing.T) *lab {
	l := newLab(t, threeInterfaces())
	l.iface("eni-a").PublicIP = l.public(0)
	l.iface("eni-b").PublicIP = l.public(1)
	l.apply()
	for _, place := range []string{operator, "eni-a", "eni-b", "eni-c"} {
		l.serve(place, l.address(place)+":80")
	}
	return l
}

// address returns a place's own address.
func (l *lab) address(place string) string {
	if place == operator {
		return l.slice.Operator.String()
	}
	return l.iface(place).PrivateIP.String()
}

func TestPublicAddress(t *testing.T) {
	l := withPublicAddresses(t)
	inward := l.public(1).String() + ":80"
	if seen := l.reaches(operator, inward); seen != l.slice.Operator.String() {
		t.Errorf("the operator is seen as %s", seen)
	}
	l.dropped(operator, l.public(1).String()+":81")
	if seen := l.reaches("eni-a", l.slice.Operator.String()+":80"); seen != l.public(0).String() {
		t.Errorf("A is seen as %s from outside, want its public address", seen)
	}
	l.dropped("eni-c", l.slice.Operator.String()+":80") // no public address, no way out
	outside := l.slice.Operator.String() + ":9"
	received := l.receive(operator, outside)
	l.send("eni-c", ipC+":0", outside)
	if sender, err := received(patience); err == nil {
		t.Errorf("a packet without a public address got out, from %s", sender)
	}
	l.send("eni-a", ipA+":0", outside)
	if sender, err := received(answerWithin); err != nil || sender != l.public(0).String() {
		t.Errorf("a packet from A: %s %v", sender, err)
	}

	l.dropped(operator, l.public(5).String()+":80")
	l.dropped("eni-a", l.public(5).String()+":80")
	l.dropped("eni-a", "192.0.2.2:80") // not routed, as the real internet
	l.dropped("eni-a", "8.8.8.8:53")
}

// TestServersInTheInternet checks that servers see instances only with their public addresses.
func TestServersInTheInternet(t *testing.T) {
	l := withPublicAddresses(t)
	for _, addr := range l.slice.Servers() {
		listener, err := l.ListenInternet(t.Context(), netip.AddrPortFrom(addr, 80))
		if err != nil {
			t.Fatal(err)
		}
		serveOn(t, listener)
		server := addr.String() + ":80"
		if seen := l.reaches("eni-a", server); seen != l.public(0).String() {
			t.Errorf("A is seen as %s, want its public address", seen)
		}
		if seen := l.reaches(operator, server); seen != l.slice.Operator.String() {
			t.Errorf("the operator is seen as %s", seen)
		}
		l.dropped("eni-c", server) // no public address
	}
	server := l.slice.Servers()[0].String() + ":80"
	l.iface("eni-a").SourceDestCheck = false
	l.apply()
	l.addAddress("eni-a", podB)
	l.droppedFrom("eni-a", podB, server) // the gateway translates only an instance's own address
}

// TestInternetDropsPrivateSources sends from a router, which does not translate its own packets.
func TestInternetDropsPrivateSources(t *testing.T) {
	l := withPublicAddresses(t)
	server := netip.AddrPortFrom(l.slice.Servers()[0], 9)
	// The router's own packets are not translated.
	for _, test := range []struct {
		source string
		passes bool
	}{
		{"10.240.0.1", false},
		{"100.64.0.1", false},
		{"192.0.2.7", true}, // foreign, but not private
	} {
		if test.source != "10.240.0.1" {
			l.addAddress("vpc-1", test.source)
		}
		l.routeOut("vpc-1", server.Addr())
		received := l.datagrams(internetID, server.String())
		l.send("vpc-1", test.source+":0", server.String())
		if got := received(waitFor(test.passes)); (got > 0) != test.passes {
			t.Errorf("from %s: received %d bytes", test.source, got)
		}
	}
}

func TestNoGatewayNoWayOut(t *testing.T) {
	l := withPublicAddresses(t)
	l.reaches("eni-a", l.slice.Operator.String()+":80")
	l.cfg.VPCs[0].InternetGateway = false
	l.apply()
	l.dropped("eni-a", l.slice.Operator.String()+":80")
	l.dropped(operator, l.public(1).String()+":80")
	l.reaches("eni-a", ipB+":80")
}

func TestPublicAddressMoves(t *testing.T) {
	l := withPublicAddresses(t)
	moving := l.public(0).String() + ":80"
	c, err := l.dial(operator, "", moving, answerWithin)
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.dial(operator, "", l.public(1).String()+":80", answerWithin)
	if err != nil {
		t.Fatal(err)
	}
	for n := range l.cfg.VPCs[0].SecurityGroups {
		l.cfg.VPCs[0].SecurityGroups[n].Ingress = rules("-1", 0, 0, anyCIDR)
	}
	l.apply()
	atA, atC := l.receive("eni-a", ipA+":9"), l.receive("eni-c", ipC+":9")
	flow := func() { l.send(operator, l.slice.Operator.String()+":5005", l.public(0).String()+":9") }
	flow()
	if _, err := atA(answerWithin); err != nil {
		t.Fatal(err)
	}
	l.iface("eni-a").PublicIP, l.iface("eni-c").PublicIP = l.iface("eni-c").PublicIP, l.iface("eni-a").PublicIP
	l.apply()
	if err := c.alive(patience); err == nil {
		t.Error("an old flow still reaches the address's former interface")
	}
	if err := other.alive(answerWithin); err != nil {
		t.Errorf("a flow to another address was cut: %v", err)
	}
	flow()
	if _, err := atC(answerWithin); err != nil {
		t.Errorf("a flow to the address does not follow it to its new interface: %v", err)
	}
	l.reaches(operator, moving)
	if seen := l.reaches("eni-c", l.slice.Operator.String()+":80"); seen != l.public(0).String() {
		t.Errorf("C is seen as %s, want the address it was given", seen)
	}
	l.dropped("eni-a", l.slice.Operator.String()+":80")
}

func TestHairpin(t *testing.T) {
	l := withPublicAddresses(t)
	viaB := l.public(1).String() + ":80"
	if seen := l.reaches("eni-a", viaB); seen != l.public(0).String() {
		t.Errorf("A is seen as %s through B's public address, want %s", seen, l.public(0))
	}
	if seen := l.reaches("eni-b", viaB); seen != l.public(1).String() {
		t.Errorf("B sees itself as %s through its public address", seen)
	}
	// A group's members are its interfaces, not their public addresses.
	l.cfg.VPCs[0].SecurityGroups[1].Ingress = []Rule{{Protocol: "-1", GroupID: "sg-a"}, {Protocol: "-1", GroupID: "sg-b"}}
	l.apply()
	l.reaches("eni-a", ipB+":80")
	l.dropped("eni-a", viaB)
	l.dropped("eni-b", viaB)
	l.cfg.VPCs[0].SecurityGroups[1].Ingress = rules("tcp", 80, 80, l.public(0).String()+"/32")
	l.apply()
	l.reaches("eni-a", viaB)
	l.dropped("eni-b", viaB)
}

func TestOverlappingVPCs(t *testing.T) {
	twin := threeInterfaces()
	twin.ID = "vpc-2"
	for n := range twin.Subnets {
		twin.Subnets[n].ID += "-twin"
	}
	for n := range twin.Interfaces {
		twin.Interfaces[n].ID += "-twin"
		twin.Interfaces[n].SubnetID += "-twin"
		twin.Interfaces[n].Groups[0] += "-twin"
		twin.SecurityGroups[n].ID += "-twin"
	}
	twin.RouteTables[0].ID += "-twin"
	for n := range twin.Subnets {
		twin.Subnets[n].RouteTableID += "-twin"
	}
	l := newLab(t, threeInterfaces(), twin)
	l.iface("eni-a").PublicIP = l.public(0)
	l.iface("eni-b-twin").PublicIP = l.public(1)
	l.apply()
	l.serve("eni-b-twin", ":80")
	l.reaches("eni-a-twin", ipB+":80")
	if _, err := l.dial("eni-a", "", ipB+":80", answerWithin); err == nil {
		t.Error("a VPC reaches the other one's interface of the same private address")
	}
	if seen := l.reaches("eni-a", l.public(1).String()+":80"); seen != l.public(0).String() {
		t.Errorf("between VPCs: seen as %s, want %s", seen, l.public(0))
	}
}
