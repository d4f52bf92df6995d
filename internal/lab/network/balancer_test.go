package network

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The nodes of a load balancer: one in the subnet of A and B, one in that of C.
const (
	ipNode  = "10.240.0.5"
	ipOther = "10.240.1.5"
)

func at(addr string) netip.AddrPort { return netip.MustParseAddrPort(addr) }

// withBalancer has a node that forwards 443 to port 6443 of A.
func withBalancer(t *testing.T) *lab {
	vpc := threeInterfaces()
	vpc.Interfaces = append(vpc.Interfaces,
		Interface{ID: "eni-node", SubnetID: "subnet-1", PrivateIP: netip.MustParseAddr(ipNode), Balancer: listening(true, ipA+":6443")},
		Interface{ID: "eni-other", SubnetID: "subnet-2", PrivateIP: netip.MustParseAddr(ipOther), Balancer: &Balancer{}},
	)
	l := newLab(t, vpc)
	l.iface("eni-node").PublicIP = l.public(0)
	l.apply()
	for _, id := range []string{"eni-a", "eni-b"} {
		l.serve(id, ":6443")
	}
	return l
}

func listening(preserve bool, targets ...string) *Balancer {
	b := &Balancer{Listeners: []Listener{{Port: 443, PreserveClient: preserve}}}
	for _, addr := range targets {
		b.Listeners[0].Targets = append(b.Listeners[0].Targets, at(addr))
	}
	return b
}

// ingress replaces what a security group lets in.
func (l *lab) ingress(group string, rules ...Rule) {
	for n := range l.cfg.VPCs[0].SecurityGroups {
		if g := &l.cfg.VPCs[0].SecurityGroups[n]; g.ID == group {
			g.Ingress = rules
		}
	}
	l.apply()
}

func cidr(protocol string, port int, from string) Rule {
	return Rule{Protocol: protocol, FromPort: port, ToPort: port, CIDR: netip.MustParsePrefix(from)}
}

func TestBalancer(t *testing.T) {
	l := withBalancer(t)
	group := l.iface("eni-a").Groups[0]
	node := ipNode + ":443"

	// The target has to admit the clients, whose addresses stay.
	l.ingress(group, cidr("tcp", 6443, ipNode+"/32"))
	l.dropped("eni-c", node)
	l.ingress(group, cidr("tcp", 6443, ipC+"/32"))
	if seen := l.reaches("eni-c", node); seen != ipC {
		t.Errorf("C is seen as %s", seen)
	}
	l.dropped(operator, l.public(0).String()+":443")
	l.ingress(group, cidr("tcp", 6443, "0.0.0.0/0"))
	if seen := l.reaches(operator, l.public(0).String()+":443"); seen != l.slice.Operator.String() {
		t.Errorf("the operator is seen as %s", seen)
	}
	if seen := l.reaches("eni-b", node); seen != ipB {
		t.Errorf("B, which is beside A, is seen as %s", seen)
	}
	l.dropped("eni-a", node)           // a target that reaches itself
	l.dropped("eni-c", ipNode+":6443") // no listener
	l.dropped("eni-c", ipOther+":443") // the node without listeners
	if seen := l.reaches("eni-c", ipA+":6443"); seen != ipC {
		t.Errorf("without the load balancer C is seen as %s", seen)
	}

	// Otherwise the target has to admit the node.
	l.iface("eni-node").Balancer = listening(false, ipA+":6443")
	l.ingress(group, cidr("tcp", 6443, ipNode+"/32"))
	for _, place := range []string{"eni-c", "eni-a"} {
		if seen := l.reaches(place, node); seen != ipNode {
			t.Errorf("from %s: seen as %s", place, seen)
		}
	}
	if seen := l.reaches(operator, l.public(0).String()+":443"); seen != ipNode {
		t.Errorf("the operator is seen as %s", seen)
	}

	// Across subnets, and to several targets.
	l.ingress(group, cidr("tcp", 6443, "10.240.0.0/16"))
	l.ingress(l.iface("eni-b").Groups[0], cidr("tcp", 6443, "10.240.0.0/16"))
	l.iface("eni-other").Balancer = listening(true, ipA+":6443", ipB+":6443")
	l.apply()
	targets := map[string]bool{}
	for range 40 {
		c, err := l.dial("eni-c", "", ipOther+":443", answerWithin)
		if err != nil {
			t.Fatal(err)
		}
		if c.seenAs != ipC {
			t.Fatalf("C is seen as %s", c.seenAs)
		}
		targets[l.targetOf("eni-other", c)] = true
	}
	if len(targets) != 2 {
		t.Errorf("40 connections reached only %v", targets)
	}
	l.iface("eni-other").Balancer = listening(true)
	l.apply()
	l.dropped("eni-c", ipOther+":443") // no targets
}

// targetOf returns where a node has forwarded a connection to.
func (l *lab) targetOf(node string, c *conn) string {
	l.t.Helper()
	handle, _, closeNode, err := open(l.slice.namespace(node))
	if err != nil {
		l.t.Fatal(err)
	}
	defer closeNode()
	flows, err := handle.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	if err != nil {
		l.t.Fatal(err)
	}
	_, port, _ := strings.Cut(c.LocalAddr().String(), ":")
	for _, f := range flows {
		if netip.AddrPortFrom(address(f.Forward.SrcIP), f.Forward.SrcPort).String() == ipC+":"+port {
			return f.Reverse.SrcIP.String()
		}
	}
	l.t.Fatalf("no flow of %s", c.LocalAddr())
	return ""
}

func TestRenderBalancer(t *testing.T) {
	b := listening(true, ipA+":6443", ipB+":6443")
	b.Listeners = append(b.Listeners, Listener{Port: 80, Targets: []netip.AddrPort{at(ipA + ":80")}}, Listener{Port: 81})
	golden(t, "balancer.nft", renderBalancer(netip.MustParseAddr(ipNode), *b))
	vpc := threeInterfaces()
	vpc.Interfaces = append(vpc.Interfaces, Interface{ID: "eni-node", SubnetID: "subnet-1", PrivateIP: netip.MustParseAddr(ipNode), Balancer: b})
	golden(t, "balanced.nft", renderRuleset(vpc))
}

// TestBalancerGroups checks that the node's groups filter clients, and that rules of the targets'
// groups can name them.
func TestBalancerGroups(t *testing.T) {
	l := withBalancer(t)
	vpc := &l.cfg.VPCs[0]
	vpc.SecurityGroups = append(vpc.SecurityGroups, SecurityGroup{ID: "sg-lb", Egress: rules("-1", 0, 0, anyCIDR)})
	l.iface("eni-node").Groups = []string{"sg-lb"}
	l.ingress(l.iface("eni-a").Groups[0], Rule{Protocol: "tcp", FromPort: 6443, ToPort: 6443, GroupID: "sg-lb"})
	l.dropped("eni-c", ipNode+":443")
	l.ingress("sg-lb", cidr("tcp", 443, ipC+"/32"))
	if seen := l.reaches("eni-c", ipNode+":443"); seen != ipC {
		t.Errorf("C is seen as %s", seen)
	}
	l.dropped("eni-b", ipNode+":443")
	l.dropped("eni-c", ipA+":6443") // not through the load balancer
	if conn, err := l.DialFrom(t.Context(), "eni-node", at(ipA+":6443")); err != nil {
		t.Errorf("health check: %v", err)
	} else if err := conn.Close(); err != nil {
		t.Error(err)
	}
}

// TestBalancerFlows checks that connections outlive changes of targets, and that EndFlows ends
// them.
func TestBalancerFlows(t *testing.T) {
	l := withBalancer(t)
	for _, id := range []string{"eni-a", "eni-b"} {
		l.ingress(l.iface(id).Groups[0], cidr("tcp", 6443, "0.0.0.0/0"))
	}
	c, err := l.dial("eni-c", "", ipNode+":443", answerWithin)
	if err != nil {
		t.Fatal(err)
	}
	l.iface("eni-node").Balancer = listening(true, ipB+":6443") // A is deregistered
	l.apply()
	l.Close()
	if l.Manager, err = Open(t.Context(), l.slice); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	l.apply()
	if err := c.alive(answerWithin); err != nil {
		t.Errorf("the connection did not stay: %v", err)
	}
	other, err := l.dial("eni-c", "", ipNode+":443", answerWithin)
	if err != nil {
		t.Fatal(err)
	}
	if target := l.targetOf("eni-node", other); target != ipB {
		t.Errorf("a new connection went to %s", target)
	}

	l.iface("eni-node").Cut = true
	l.apply()
	if err := c.alive(patience); err == nil {
		t.Error("the connection went on without the node")
	}
	l.iface("eni-node").Cut = false
	l.apply()
	if err := c.alive(answerWithin); err != nil {
		t.Errorf("the connection does not go on: %v", err)
	}
	if _, err := c.reader.ReadString('\n'); err != nil { // what was sent while the node was cut off comes too
		t.Error(err)
	}

	if err := l.EndFlows(t.Context(), "eni-node", at(ipA+":6443")); err != nil {
		t.Fatal(err)
	}
	if err := c.alive(answerWithin); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("the connection to A: %v", err)
	}
	if err := other.alive(answerWithin); err != nil {
		t.Errorf("the connection to B: %v", err)
	}
	if err := l.EndFlows(t.Context(), "eni-gone", at(ipA+":6443")); err != nil {
		t.Error(err)
	}

	l.iface("eni-node").Stopped = true
	l.apply()
	l.dropped("eni-c", ipNode+":443")
	l.iface("eni-node").Stopped = false
	l.apply()
	l.reaches("eni-c", ipNode+":443")
}

// TestBalancerIdle checks that a node forgets a connection without packets after the same time as
// on AWS.
func TestBalancerIdle(t *testing.T) {
	l := withBalancer(t)
	l.ingress(l.iface("eni-a").Groups[0], cidr("tcp", 6443, "0.0.0.0/0"))
	c, err := l.dial("eni-c", "", ipNode+":443", answerWithin)
	if err != nil {
		t.Fatal(err)
	}
	handle, _, closeNode, err := open(l.slice.namespace("eni-node"))
	if err != nil {
		t.Fatal(err)
	}
	defer closeNode()
	flows, err := handle.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	if err != nil || len(flows) != 1 {
		t.Fatalf("%d flows, %v", len(flows), err)
	}
	if left := time.Duration(flows[0].TimeOut) * time.Second; left > idleTimeout*time.Second || left < (idleTimeout-120)*time.Second {
		t.Errorf("%s are left, want about %d seconds", left, idleTimeout)
	}
	if err := c.alive(answerWithin); err != nil {
		t.Error(err)
	}
}
