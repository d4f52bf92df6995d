package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
)

func TestOpenPortIsOpenAndBlockedPortIsBlocked(t *testing.T) {
	l := newLab(t, threeInterfaces())
	for _, place := range []string{"eni-b", "eni-c"} {
		l.serve(place, ":80")
		l.serve(place, ":81")
	}
	for _, to := range []string{ipB, ipC} { // the same subnet, and another
		if seen := l.reaches("eni-a", to+":80"); seen != ipA {
			t.Errorf("%s sees %s, want %s", to, seen, ipA)
		}
		l.dropped("eni-a", to+":81")
	}
	l.dropped("eni-b", ipC+":81")
}

// TestNobodyIsSilent checks that the network reports neither that an address is unused nor that its
// machine does not answer ARP, which a router knows after 3 s.
func TestNobodyIsSilent(t *testing.T) {
	l := newLab(t, threeInterfaces())
	for _, addr := range []string{"10.240.0.99:80", "10.240.1.99:80", "10.240.77.1:80"} {
		l.dropped("eni-a", addr)
	}
	if err := l.at("eni-b", func() error { return os.WriteFile("/proc/sys/net/ipv4/conf/all/arp_ignore", []byte("8"), 0o644) }); err != nil {
		t.Fatal(err)
	}
	var timeout net.Error
	if _, err := l.dial("eni-a", "", ipB+":80", 5*time.Second); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("a machine that does not answer ARP: %v, want silence", err)
	}
}

func TestGroupReference(t *testing.T) {
	vpc := threeInterfaces()
	vpc.SecurityGroups[1].Ingress = []Rule{{Protocol: "tcp", FromPort: 80, ToPort: 80, GroupID: "sg-a"}}
	l := newLab(t, vpc)
	l.serve("eni-b", ":80")
	l.reaches("eni-a", ipB+":80")
	l.dropped("eni-c", ipB+":80")

	l.iface("eni-c").Groups = []string{"sg-c", "sg-a"}
	l.apply()
	l.reaches("eni-c", ipB+":80")
}

func TestEgressRules(t *testing.T) {
	vpc := threeInterfaces()
	vpc.SecurityGroups[0].Egress = append(rules("tcp", 80, 80, ipB+"/32"),
		Rule{Protocol: "tcp", FromPort: 82, ToPort: 83, GroupID: "sg-c"})
	for n := range vpc.SecurityGroups {
		vpc.SecurityGroups[n].Ingress = rules("-1", 0, 0, anyCIDR)
	}
	l := newLab(t, vpc)
	for _, place := range []string{"eni-a", "eni-b", "eni-c"} {
		l.serve(place, ":80")
		l.serve(place, ":83")
	}
	l.reaches("eni-a", ipB+":80")
	l.dropped("eni-a", ipB+":83")
	l.dropped("eni-a", ipC+":80")
	l.reaches("eni-a", ipC+":83")
	l.reaches("eni-b", ipA+":80") // the answers belong to the same flow
}

func TestProtocols(t *testing.T) {
	vpc := threeInterfaces()
	vpc.SecurityGroups[1].Ingress = rules("udp", 53, 53, anyCIDR)
	vpc.SecurityGroups[2].Ingress = rules("icmp", 8, -1, "10.240.0.0/24")
	l := newLab(t, vpc)
	if err := l.ping("eni-a", ipC, answerWithin); err != nil {
		t.Errorf("ping where the rule allows it: %v", err)
	}
	if err := l.ping("eni-a", ipB, patience); err == nil {
		t.Error("ping got through a rule for UDP")
	}
	open, closed := l.receive("eni-b", ":53"), l.receive("eni-b", ":54")
	l.send("eni-a", ipA+":0", ipB+":53")
	l.send("eni-a", ipA+":0", ipB+":54")
	if sender, err := open(answerWithin); err != nil || sender != ipA {
		t.Errorf("UDP where the rule allows it: %q %v", sender, err)
	}
	if sender, err := closed(patience); err == nil {
		t.Errorf("UDP to another port came from %s", sender)
	}
}

func TestEstablishedFlowSurvivesItsRule(t *testing.T) {
	l := newLab(t, threeInterfaces())
	l.serve("eni-b", ":80")
	c, err := l.dial("eni-a", "", ipB+":80", answerWithin)
	if err != nil {
		t.Fatal(err)
	}
	l.cfg.VPCs[0].SecurityGroups[1].Ingress = nil
	l.apply()
	if err := c.alive(answerWithin); err != nil {
		t.Errorf("the established flow was cut: %v", err)
	}
	l.dropped("eni-a", ipB+":80")
}

func TestForgedSource(t *testing.T) {
	vpc := threeInterfaces()
	for n := range vpc.SecurityGroups {
		vpc.SecurityGroups[n].Ingress = rules("-1", 0, 0, anyCIDR)
	}
	l := newLab(t, vpc)
	received := l.receive("eni-b", ":9")
	for _, addr := range []string{ipC, "10.240.0.77", "172.16.0.1", podC} {
		l.addAddress("eni-a", addr)
	}
	for _, test := range []struct {
		check  bool
		source string
		passes bool
	}{
		{true, ipA, true},
		{true, ipC, false},
		{true, "10.240.0.77", false},
		{true, podC, false},
		{false, ipA, true},
		{false, podC, true},
		{false, "172.16.0.1", true},
		{false, ipC, false}, // addresses of the VPC cannot be forged, check or not
		{false, "10.240.0.77", false},
	} {
		l.iface("eni-a").SourceDestCheck = test.check
		l.apply()
		l.send("eni-a", test.source+":0", ipB+":9")
		sender, err := received(waitFor(test.passes))
		if passed := err == nil; passed != test.passes || passed && sender != test.source {
			t.Errorf("check %v, source %s: received from %q, %v", test.check, test.source, sender, err)
		}
	}
}

// podVPC routes one pod network to C and another to B. Both forward.
func podVPC() VPC {
	vpc := threeInterfaces()
	vpc.RouteTables[0].Routes = append(vpc.RouteTables[0].Routes,
		Route{Destination: netip.MustParsePrefix(podNet), Target: Target{Kind: ToInterface, InterfaceID: "eni-c"}},
		Route{Destination: netip.MustParsePrefix("10.200.0.0/24"), Target: Target{Kind: ToInterface, InterfaceID: "eni-b"}})
	vpc.Interfaces[1].SourceDestCheck = false
	vpc.Interfaces[2].SourceDestCheck = false
	return vpc
}

func TestPodRoute(t *testing.T) {
	vpc := podVPC()
	vpc.SecurityGroups[2].Ingress = []Rule{{Protocol: "tcp", FromPort: 80, ToPort: 80, GroupID: "sg-b"}}
	l := newLab(t, vpc)
	l.addAddress("eni-c", podC)
	l.addAddress("eni-b", podB)
	l.serve("eni-c", ":80")

	if seen := l.reachesFrom("eni-b", podB, podC+":80"); seen != podB {
		t.Errorf("pod to pod: seen as %s, want %s", seen, podB)
	}
	l.reaches("eni-b", podC+":80")
	l.dropped("eni-a", podC+":80") // the group allows neither pods nor the node

	l.cfg.VPCs[0].SecurityGroups[2].Ingress = rules("-1", 0, 0, anyCIDR)
	received := l.receive("eni-c", podC+":9")
	for _, check := range []bool{false, true} {
		l.iface("eni-c").SourceDestCheck = check
		l.apply()
		l.send("eni-a", ipA+":0", podC+":9")
		if _, err := received(waitFor(!check)); (err == nil) == check {
			t.Errorf("source/destination check %v: packet for a pod: %v", check, err)
		}
	}
	l.dropped("eni-b", podC+":80")
	l.reaches("eni-b", ipC+":80")

	l.iface("eni-c").SourceDestCheck = false
	l.cfg.VPCs[0].RouteTables[0].Routes = l.cfg.VPCs[0].RouteTables[0].Routes[:1]
	l.cfg.VPCs[0].InternetGateway = false
	l.apply()
	l.dropped("eni-b", podC+":80")
}

func TestRouteTables(t *testing.T) {
	vpc := podVPC()
	vpc.SecurityGroups[2].Ingress = rules("tcp", 80, 80, anyCIDR)
	vpc.Subnets[1].RouteTableID = "" // C's subnet has only the local route
	l := newLab(t, vpc)
	l.serve("eni-c", ":80")
	l.addAddress("eni-c", podC)

	l.reaches("eni-a", podC+":80") // there by A's route table, back by the local route
	l.dropped("eni-c", podB+":80")
	l.dropped("eni-c", l.slice.Operator.String()+":80")

	routes := l.cfg.VPCs[0].RouteTables[0].Routes
	routes[1].Target = Target{Kind: Blackhole}
	l.apply()
	l.dropped("eni-a", podC+":80")

	routes[1].Target = Target{Kind: ToInterface, InterfaceID: "eni-gone"}
	l.apply()
	l.dropped("eni-a", podC+":80")

	// The longest prefix wins, whatever the order.
	routes[1] = Route{Destination: netip.MustParsePrefix("10.200.0.0/16"), Target: Target{Kind: Blackhole}}
	l.cfg.VPCs[0].RouteTables[0].Routes = append(routes, Route{
		Destination: netip.MustParsePrefix(podC + "/32"), Target: Target{Kind: ToInterface, InterfaceID: "eni-c"},
	})
	l.apply()
	l.reaches("eni-a", podC+":80")
}

func TestStoppedInterfaceIsSilent(t *testing.T) {
	l := newLab(t, threeInterfaces())
	l.serve("eni-c", ":80")
	l.reaches("eni-a", ipC+":80")
	l.iface("eni-c").Stopped = true
	l.apply()
	l.dropped("eni-a", ipC+":80")
	l.iface("eni-c").Stopped = false
	l.apply()
	l.reaches("eni-a", ipC+":80")
}

func TestServicesInTheRouter(t *testing.T) {
	vpc := threeInterfaces()
	vpc.SecurityGroups[0].Egress = nil // the groups do not restrict the services
	vpc.Interfaces[1].SourceDestCheck = false
	l := newLab(t, vpc)
	metadata, err := l.ListenTCP(t.Context(), "vpc-1", "169.254.169.254:80")
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, ttlListener{metadata})
	for place, ip := range map[string]string{"eni-a": ipA, "eni-c": ipC} {
		// The listener answers with a TTL of 1: enough for the interface itself.
		if seen := l.reaches(place, "169.254.169.254:80"); seen != ip {
			t.Errorf("the metadata service takes %s for %s", ip, seen)
		}
	}
	resolver, err := l.ListenUDP(t.Context(), "vpc-1", "10.240.0.2:53")
	if err != nil {
		t.Fatal(err)
	}
	defer resolver.Close()
	l.send("eni-a", ipA+":0", "10.240.0.2:53")
	if err := resolver.SetReadDeadline(time.Now().Add(answerWithin)); err != nil {
		t.Fatal(err)
	}
	if _, sender, err := resolver.ReadFrom(make([]byte, 64)); err != nil || sender.(*net.UDPAddr).IP.String() != ipA {
		t.Errorf("resolver: query from %v, %v", sender, err)
	}
	for place, gateway := range map[string]string{"eni-a": gwA, "eni-c": "10.240.1.1"} {
		l.dropped(place, gateway+":80")
	}
	l.addAddress("eni-b", podB)
	l.droppedFrom("eni-b", podB, "169.254.169.254:80") // the services accept only an interface's own address
	l.send("eni-b", podB+":0", "10.240.0.2:53")
	if err := resolver.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, sender, err := resolver.ReadFrom(make([]byte, 64)); err == nil {
		t.Errorf("resolver: a query from a pod's address, %v", sender)
	}
	if _, err := l.ListenTCP(t.Context(), "vpc-2", "169.254.169.254:80"); err == nil {
		t.Error("listened in a VPC that does not exist")
	}
}

func TestMetadataHopLimit(t *testing.T) {
	l := newLab(t, threeInterfaces())
	metadata, err := l.ListenTCP(t.Context(), "vpc-1", "169.254.169.254:80")
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, ttlListener{metadata})
	unlimited, err := l.ListenTCP(t.Context(), "vpc-1", "10.240.0.2:80")
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, unlimited)
	pod := l.addPod("eni-a", "10.200.9.7")
	if seen := l.reaches(pod, "10.240.0.2:80"); seen != ipA {
		t.Errorf("the pod's packets come from %s, want its node's address", seen)
	}
	l.reaches("eni-a", "169.254.169.254:80")
	if c, err := l.dial(pod, "", "169.254.169.254:80", patience); err == nil {
		t.Errorf("an answer with TTL 1 reached a pod, which is seen as %s", c.seenAs)
	}
}

// ttlListener limits its connections to one hop, as the metadata service does.
type ttlListener struct{ net.Listener }

func (l ttlListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return c, ipv4.NewConn(c).SetTTL(1)
}

// ping sends an ICMP echo request and waits for the reply.
func (l *lab) ping(place, addr string, timeout time.Duration) error {
	var socket *icmp.PacketConn
	err := l.at(place, func() (err error) {
		socket, err = icmp.ListenPacket("ip4:icmp", "0.0.0.0")
		return err
	})
	if err != nil {
		return err
	}
	defer socket.Close()
	request := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: 1, Seq: 1, Data: binary.BigEndian.AppendUint64(nil, 42)}}
	packet, err := request.Marshal(nil)
	if err != nil {
		return err
	}
	if _, err := socket.WriteTo(packet, &net.IPAddr{IP: net.ParseIP(addr)}); err != nil {
		return err
	}
	if err := socket.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	buffer := make([]byte, 1500)
	for {
		n, from, err := socket.ReadFrom(buffer)
		if err != nil {
			return err
		}
		reply, err := icmp.ParseMessage(1, buffer[:n])
		if err != nil {
			return err
		}
		if reply.Type == ipv4.ICMPTypeEchoReply && from.String() == addr {
			return nil
		}
		if reply.Type == ipv4.ICMPTypeDestinationUnreachable {
			return fmt.Errorf("unreachable, says %s", from)
		}
	}
}
