package network

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// patience is how long a test waits for a packet that must not arrive. Other packets must arrive
// within answerWithin.
const (
	patience     = 300 * time.Millisecond
	answerWithin = time.Minute
)

// lab is a network of real namespaces on a slice of its own, taken down when the test ends.
type lab struct {
	*Manager
	t   *testing.T
	cfg Config
}

func newLab(t *testing.T, vpcs ...VPC) *lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	stateDir := t.TempDir()
	slice, err := Claim(stateDir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Down(context.WithoutCancel(t.Context()), slice); err != nil {
			t.Error(err)
		}
		if left, err := Leftovers(slice); err != nil || len(left) > 0 {
			t.Errorf("left over: %v %v", left, err)
		}
		if err := Release(stateDir); err != nil {
			t.Error(err)
		}
	})
	manager, err := Open(t.Context(), slice)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(manager.Close)
	l := &lab{Manager: manager, t: t, cfg: Config{VPCs: vpcs}}
	l.apply()
	return l
}

// apply applies the lab's configuration as the test has changed it, and gives new interfaces their
// addresses.
func (l *lab) apply() {
	l.t.Helper()
	if err := l.Apply(l.t.Context(), l.cfg); err != nil {
		l.t.Fatal(err)
	}
	for _, vpc := range l.cfg.VPCs {
		for _, planned := range planRouter(vpc).Links {
			if err := l.configureGuest(planned); err != nil {
				l.t.Fatal(err)
			}
		}
	}
}

// configureGuest configures an interface as the machine behind it does.
func (l *lab) configureGuest(at link) error {
	inside, _, closeInside, err := open(l.slice.namespace(at.Interface.ID))
	if err != nil {
		return err
	}
	defer closeInside()
	if err := configure(inside, guestLink, at.Address); err != nil {
		return err
	}
	gateway := route{Table: unix.RT_TABLE_MAIN, Kind: unix.RTN_UNICAST, Destination: everywhere, Via: at.Gateway, Link: guestLink}
	return syncRoutes(inside, []route{gateway}, false)
}

// public returns the lab's n-th public address.
func (l *lab) public(n int) netip.Addr { return l.slice.PublicIPs()[n] }

// iface returns an interface of the configuration, to be changed in place.
func (l *lab) iface(id string) *Interface {
	for _, vpc := range l.cfg.VPCs {
		if at := slices.IndexFunc(vpc.Interfaces, func(i Interface) bool { return i.ID == id }); at >= 0 {
			return &vpc.Interfaces[at]
		}
	}
	l.t.Fatalf("no interface %s", id)
	return nil
}

// operator is the place of the host's own namespace.
const operator = ""

// at runs fn in an interface's namespace, or the host's.
func (l *lab) at(place string, fn func() error) error {
	if place == operator {
		return fn()
	}
	return within(l.slice.namespace(place), fn)
}

// serve answers each TCP connection to addr with the client's address, then echoes.
func (l *lab) serve(place, addr string) {
	l.t.Helper()
	var listener net.Listener
	err := l.at(place, func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(l.t.Context(), "tcp4", addr)
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	serveOn(l.t, listener)
}

func serveOn(t *testing.T, listener net.Listener) {
	var done sync.WaitGroup
	done.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			done.Go(func() {
				defer conn.Close()
				stop := context.AfterFunc(t.Context(), func() { conn.Close() })
				defer stop()
				host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
				fmt.Fprintln(conn, host)
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() { listener.Close(); done.Wait() })
}

// conn is an open connection to a server started by serve.
type conn struct {
	net.Conn
	reader *bufio.Reader
	seenAs string // the address the server sees
}

func (l *lab) dial(place, from, addr string, timeout time.Duration) (*conn, error) {
	dialer := net.Dialer{Timeout: timeout}
	if from != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	var c net.Conn
	err := l.at(place, func() (err error) {
		c, err = dialer.DialContext(l.t.Context(), "tcp4", addr)
		return err
	})
	if err != nil {
		return nil, err
	}
	l.t.Cleanup(func() { c.Close() })
	opened := &conn{Conn: c, reader: bufio.NewReader(c)}
	if err := c.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	line, err := opened.reader.ReadString('\n')
	opened.seenAs = strings.TrimSpace(line)
	return opened, err
}

// alive checks that the connection still carries a line in both directions.
func (c *conn) alive(timeout time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(c, "still there?"); err != nil {
		return err
	}
	_, err := c.reader.ReadString('\n')
	return err
}

// reaches checks that a connection is possible and returns the address the server sees.
func (l *lab) reaches(place, addr string) string {
	l.t.Helper()
	return l.reachesFrom(place, "", addr)
}

func (l *lab) reachesFrom(place, from, addr string) string {
	l.t.Helper()
	c, err := l.dial(place, from, addr, answerWithin)
	if err != nil {
		l.t.Errorf("from %s to %s: %v", name(place), addr, err)
		return ""
	}
	return c.seenAs
}

// dropped checks that packets to addr get no answer.
func (l *lab) dropped(place, addr string) {
	l.t.Helper()
	l.droppedFrom(place, "", addr)
}

func (l *lab) droppedFrom(place, from, addr string) {
	l.t.Helper()
	_, err := l.dial(place, from, addr, patience)
	var timeout net.Error
	if err == nil {
		l.t.Errorf("from %s to %s: connected, want nothing to get through", name(place), addr)
	} else if !errors.As(err, &timeout) || !timeout.Timeout() {
		l.t.Errorf("from %s to %s: %v, want silence", name(place), addr, err)
	}
}

// unreachable checks that this host has no route to addr.
func (l *lab) unreachable(place, addr string) {
	l.t.Helper()
	_, err := l.dial(place, "", addr, answerWithin)
	if !errors.Is(err, unix.EHOSTUNREACH) && !errors.Is(err, unix.ENETUNREACH) {
		l.t.Errorf("from %s to %s: %v, want unreachable", name(place), addr, err)
	}
}

// waitFor returns how long to wait for a packet that must, or must not, arrive.
func waitFor(must bool) time.Duration {
	if must {
		return answerWithin
	}
	return patience
}

func name(place string) string {
	if place == operator {
		return "the operator"
	}
	return place
}

// addAddress adds an address to a namespace, such as the address of a pod or of a forged sender.
func (l *lab) addAddress(place, addr string) {
	l.t.Helper()
	err := l.at(place, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.AddrAdd(lo, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix(addr + "/32"))})
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

// listenUDP opens a UDP socket.
func (l *lab) listenUDP(place, addr string) net.PacketConn {
	l.t.Helper()
	var socket net.PacketConn
	err := l.at(place, func() (err error) {
		socket, err = (&net.ListenConfig{}).ListenPacket(l.t.Context(), "udp4", addr)
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return socket
}

// receive opens a UDP socket and returns a function that waits for the next datagram, answers it,
// and returns its sender.
func (l *lab) receive(place, addr string) func(timeout time.Duration) (string, error) {
	l.t.Helper()
	socket := l.listenUDP(place, addr)
	l.t.Cleanup(func() { socket.Close() })
	return func(timeout time.Duration) (string, error) {
		if err := socket.SetReadDeadline(time.Now().Add(timeout)); err != nil {
			return "", err
		}
		_, sender, err := socket.ReadFrom(make([]byte, 64))
		if err != nil {
			return "", err
		}
		if _, err := socket.WriteTo([]byte("hello yourself"), sender); err != nil {
			return "", err
		}
		host, _, err := net.SplitHostPort(sender.String())
		return host, err
	}
}

// send sends one UDP datagram from one address and port to another.
func (l *lab) send(place, from, to string) {
	l.t.Helper()
	err := l.at(place, func() error {
		dialer := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.MustParseAddrPort(from))}
		c, err := dialer.DialContext(l.t.Context(), "udp4", to)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("hello"))
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

const (
	anyCIDR = "0.0.0.0/0"
	gwA     = "10.240.0.1"
	ipA     = "10.240.0.10"
	ipB     = "10.240.0.11"
	ipC     = "10.240.1.12" // in another subnet than A and B
	podNet  = "10.200.1.0/24"
	podC    = "10.200.1.7" // behind C
	podB    = "10.200.0.7" // behind B
)

func rules(protocol string, from, to int, cidr string) []Rule {
	return []Rule{{Protocol: protocol, FromPort: from, ToPort: to, CIDR: netip.MustParsePrefix(cidr)}}
}

// threeInterfaces is a VPC with interfaces A and B in one subnet and C in another. Each has its own
// group, which allows everything out and TCP port 80 in.
func threeInterfaces() VPC {
	vpc := VPC{
		ID: "vpc-1", CIDR: netip.MustParsePrefix("10.240.0.0/16"), InternetGateway: true,
		Subnets: []Subnet{
			{ID: "subnet-1", CIDR: netip.MustParsePrefix("10.240.0.0/24"), RouteTableID: "rtb-1"},
			{ID: "subnet-2", CIDR: netip.MustParsePrefix("10.240.1.0/24"), RouteTableID: "rtb-1"},
		},
		RouteTables: []RouteTable{{ID: "rtb-1", Routes: []Route{
			{Destination: everywhere, Target: Target{Kind: InternetGateway}},
		}}},
	}
	for _, i := range []struct{ name, subnet, ip string }{{"a", "subnet-1", ipA}, {"b", "subnet-1", ipB}, {"c", "subnet-2", ipC}} {
		vpc.SecurityGroups = append(vpc.SecurityGroups, SecurityGroup{
			ID: "sg-" + i.name, Ingress: rules("tcp", 80, 80, anyCIDR), Egress: rules("-1", 0, 0, anyCIDR),
		})
		vpc.Interfaces = append(vpc.Interfaces, Interface{
			ID: "eni-" + i.name, SubnetID: i.subnet, PrivateIP: netip.MustParseAddr(i.ip), SourceDestCheck: true,
			Groups: []string{"sg-" + i.name},
		})
	}
	return vpc
}
