package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// addPod adds a pod's namespace behind an interface, which forwards for it, and returns its place.
func (l *lab) addPod(place, addr string) string {
	l.t.Helper()
	l.iface(place).SourceDestCheck = false
	l.apply()
	pod := place + "-pod"
	if _, err := ensureNamespace(l.slice.namespace(pod)); err != nil {
		l.t.Fatal(err)
	}
	inside, ns, closePod, err := open(l.slice.namespace(pod))
	if err != nil {
		l.t.Fatal(err)
	}
	defer closePod()
	node, _, closeNode, err := open(l.slice.namespace(place))
	if err != nil {
		l.t.Fatal(err)
	}
	defer closeNode()
	_, err = addVeth(node, "pod", ns, "eth0", internetMTU, nil, nil)
	own := l.iface(place).PrivateIP
	steps := []error{
		err,
		configure(node, "pod", netip.MustParsePrefix("10.200.9.1/24")),
		configure(inside, "eth0", netip.MustParsePrefix(addr+"/24")),
		syncRoutes(inside, []route{{Table: unix.RT_TABLE_MAIN, Kind: unix.RTN_UNICAST, Destination: everywhere, Via: netip.MustParseAddr("10.200.9.1"), Link: "eth0"}}, false),
		l.at(place, func() error { return setSysctls([]sysctl{{"ipv4/ip_forward", "1"}}) }),
		// As with kube-proxy and CNI, packets that leave the cluster have the node's address.
		loadRuleset(l.t.Context(), l.slice.namespace(place), fmt.Sprintf(
			"table ip pod { chain out { type nat hook postrouting priority srcnat; oifname %q snat to %s; }; }", guestLink, own)),
	}
	if err := errors.Join(steps...); err != nil {
		l.t.Fatal(err)
	}
	return pod
}

func TestApplyAgainChangesNothing(t *testing.T) {
	l := newLab(t, podVPC())
	l.iface("eni-a").PublicIP = l.public(0)
	l.apply()
	for len(l.watch()(1, 1500*time.Millisecond)) > 0 { // the kernel may report links up to a second later
	}
	before := l.dump()
	watch := l.watch()
	l.apply()
	if events := watch(1, patience); len(events) > 0 {
		t.Errorf("applying the same configuration changed %v", events)
	}
	if diff := cmp.Diff(before, l.dump()); diff != "" {
		t.Errorf("applying the same configuration made a difference (-before +after):\n%s", diff)
	}
	watch = l.watch()
	l.iface("eni-a").Stopped = true
	l.apply()
	if events := watch(1, answerWithin); len(events) != 1 {
		t.Errorf("a route's change shows as %v", events)
	}
}

// watch collects the kernel's events of changed links and routes in the first VPC's router. The
// function it returns waits for count events, at most for timeout, and returns them.
func (l *lab) watch() func(count int, timeout time.Duration) []string {
	l.t.Helper()
	ns, err := netns.GetFromPath(netnsPath(l.slice.namespace(l.cfg.VPCs[0].ID)))
	if err != nil {
		l.t.Fatal(err)
	}
	defer ns.Close()
	done := make(chan struct{})
	links, routes := make(chan netlink.LinkUpdate), make(chan netlink.RouteUpdate)
	if err := errors.Join(netlink.LinkSubscribeAt(ns, links, done), netlink.RouteSubscribeAt(ns, routes, done)); err != nil {
		l.t.Fatal(err)
	}
	return func(count int, timeout time.Duration) (events []string) {
		defer func() {
			close(done)
			for range links {
			}
			for range routes {
			}
		}()
		deadline := time.After(timeout)
		for len(events) < count {
			select {
			case u := <-links:
				events = append(events, "link "+u.Attrs().Name)
			case u := <-routes:
				events = append(events, "route "+u.String())
			case <-deadline:
				return events
			}
		}
		return events
	}
}

// dump returns the output of ip(8) and nft(8) for the lab's namespaces, without states that the
// kernel still changes for a moment after a link has come up.
func (l *lab) dump() string {
	l.t.Helper()
	names, err := l.slice.namespaces()
	if err != nil {
		l.t.Fatal(err)
	}
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, "== %s\n", name)
		err := within(name, func() error {
			const script = "set -e; ip -d link; ip -o addr; ip route show table all; ip rule; nft list ruleset"
			output, err := exec.CommandContext(l.t.Context(), "sh", "-c", script).CombinedOutput()
			b.Write(unsettled.ReplaceAll(output, nil))
			return err
		})
		if err != nil {
			l.t.Fatalf("%v: %s", err, b.String())
		}
	}
	return b.String()
}

var unsettled = regexp.MustCompile(`<[A-Z_,-]*>| state [A-Z]+| linkdown`)

func TestRemovingAnInterfaceLeavesOthersAlone(t *testing.T) {
	l := newLab(t, threeInterfaces())
	l.serve("eni-b", ":80")
	toB, err := l.dial("eni-a", "", ipB+":80", answerWithin)
	if err != nil {
		t.Fatal(err)
	}
	gone := l.InterfaceNetns("eni-c")
	l.cfg.VPCs[0].Interfaces = l.cfg.VPCs[0].Interfaces[:2]
	l.apply()
	if err := toB.alive(answerWithin); err != nil {
		t.Errorf("a flow between other interfaces was cut: %v", err)
	}
	if _, err := os.Stat(gone); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", gone, err)
	}
	l.dropped("eni-a", ipC+":80")
}

func TestAddressIsGivenToANewInterface(t *testing.T) {
	vpc := threeInterfaces()
	vpc.SecurityGroups[2].Ingress = rules("udp", 9, 9, anyCIDR)
	l := newLab(t, vpc)
	flow := func() { l.send("eni-a", ipA+":5005", ipC+":9") }
	received := l.receive("eni-c", ":9")
	flow()
	if _, err := received(answerWithin); err != nil {
		t.Fatal(err)
	}
	replaced := l.iface("eni-c")
	replaced.ID, replaced.Groups = "eni-d", []string{"sg-b"}
	l.apply()
	received = l.receive("eni-d", ":9")
	flow()
	if sender, err := received(patience); err == nil {
		t.Errorf("the new interface gets packets from %s that only the old one's groups allowed", sender)
	}
	l.serve("eni-d", ":80")
	l.reaches("eni-a", ipC+":80")
}

// TestInterfaceIsHandedOverUnconfigured checks that a new interface has carrier and its MAC
// address; the rest comes from DHCP.
func TestInterfaceIsHandedOverUnconfigured(t *testing.T) {
	vpc := threeInterfaces()
	vpc.Interfaces[0].MAC = "02:00:0a:f0:00:0a"
	l := newLab(t)
	l.cfg.VPCs = []VPC{vpc}
	if err := l.Apply(t.Context(), l.cfg); err != nil {
		t.Fatal(err)
	}
	err := within(filepath.Base(l.InterfaceNetns("eni-a")), func() error {
		ens5, err := net.InterfaceByName("ens5")
		if err != nil {
			return err
		}
		addrs, err := ens5.Addrs()
		if err != nil {
			return err
		}
		if got := fmt.Sprint(ens5.HardwareAddr, ens5.MTU, addrs); got != "02:00:0a:f0:00:0a 9001 []" {
			t.Errorf("ens5: %s", got)
		}
		if ens5.Flags&net.FlagRunning == 0 {
			t.Errorf("ens5 has no carrier: %s", ens5.Flags)
		}
		routes, err := exec.CommandContext(t.Context(), "ip", "-4", "route", "show").Output()
		if len(routes) > 0 {
			t.Errorf("routes: %s", routes)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = l.at("eni-a", func() error {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer listener.Close()
		c, err := (&net.Dialer{Timeout: answerWithin}).DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			return fmt.Errorf("loopback: %w", err)
		}
		return c.Close()
	})
	if err != nil {
		t.Error(err)
	}
}

func TestResetInterface(t *testing.T) {
	l := newLab(t, threeInterfaces())
	l.addAddress("eni-b", podB)
	l.serve("eni-b", ":80")
	l.reaches("eni-a", ipB+":80")
	if err := l.ResetInterface(t.Context(), "eni-b"); err != nil {
		t.Fatal(err)
	}
	err := l.at("eni-b", func() error {
		addrs, err := net.InterfaceAddrs()
		if strings.Contains(fmt.Sprint(addrs), podB) {
			t.Errorf("the new namespace has what was added to the old one: %v", addrs)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	l.apply()
	l.serve("eni-b", ":80")
	l.reaches("eni-a", ipB+":80")
	if err := l.ResetInterface(t.Context(), "eni-x"); err == nil {
		t.Error("reset an interface that does not exist")
	}
}

func TestAdoptionAfterACrash(t *testing.T) {
	l := newLab(t, threeInterfaces())
	l.iface("eni-b").PublicIP = l.public(0)
	l.apply()
	l.serve("eni-b", ":80")
	inner, err := l.dial("eni-a", "", ipB+":80", answerWithin)
	if err != nil {
		t.Fatal(err)
	}
	outer, err := l.dial(operator, "", l.public(0).String()+":80", answerWithin)
	if err != nil {
		t.Fatal(err)
	}
	// A crash may leave a file without a namespace, an unknown namespace, and a link without a
	// label.
	for _, err := range []error{
		os.WriteFile(netnsPath(l.slice.namespace("eni-d")), nil, 0o444),
		second(ensureNamespace(l.slice.namespace("eni-nobody"))),
		second(ensureNamespace(l.slice.namespace("eni-e"))),
		within(l.slice.namespace("vpc-1"), func() error {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = "eni-e"
			unfinished := netlink.NewVeth(attrs)
			unfinished.PeerName = guestLink
			return netlink.LinkAdd(unfinished)
		}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	l.Close()
	successor, err := Open(t.Context(), l.slice)
	if err != nil {
		t.Fatal(err)
	}
	defer successor.Close()
	l.Manager = successor
	for name, c := range map[string]*conn{"inside": inner, "through the public address": outer} {
		if err := c.alive(answerWithin); err != nil {
			t.Errorf("opening again cut a flow %s: %v", name, err)
		}
	}
	vpc := &l.cfg.VPCs[0]
	for id, ip := range map[string]string{"eni-d": "10.240.0.13", "eni-e": "10.240.0.14"} {
		added := vpc.Interfaces[0]
		added.ID, added.PrivateIP = id, netip.MustParseAddr(ip)
		vpc.Interfaces = append(vpc.Interfaces, added)
	}
	l.apply()
	for name, c := range map[string]*conn{"inside": inner, "through the public address": outer} {
		if err := c.alive(answerWithin); err != nil {
			t.Errorf("applying again cut a flow %s: %v", name, err)
		}
	}
	l.reaches("eni-d", ipB+":80")
	l.reaches("eni-e", ipB+":80")
	if pinned(l.slice.namespace("eni-nobody")) {
		t.Error("a namespace that nobody wants is still there")
	}
}

func second[A any](_ A, err error) error { return err }

func TestListenersEndWithTheirVPC(t *testing.T) {
	l := newLab(t, threeInterfaces())
	listener, err := l.ListenTCP(t.Context(), "vpc-1", "169.254.169.254:80")
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.(*net.TCPListener).SetDeadline(time.Now().Add(answerWithin)); err != nil {
		t.Fatal(err)
	}
	l.cfg = Config{}
	l.apply()
	if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener of a removed VPC: %v", err)
	}
	left, err := l.slice.namespaces()
	if err != nil || len(left) != 1 {
		t.Errorf("want the internet namespace alone, have %v, %v", left, err)
	}
}

func TestInvalidConfigurationChangesNothing(t *testing.T) {
	l := newLab(t, threeInterfaces())
	before := l.dump()
	broken := Config{VPCs: []VPC{{ID: "vpc-2", CIDR: netip.MustParsePrefix("10.0.0.0/16"), Interfaces: []Interface{{ID: "eni-x"}}}}}
	if err := l.Apply(t.Context(), broken); err == nil {
		t.Error("applied an interface without a subnet")
	}
	if diff := cmp.Diff(before, l.dump()); diff != "" {
		t.Error(diff)
	}
}

func TestConcurrentApply(t *testing.T) {
	l := newLab(t, threeInterfaces())
	var group sync.WaitGroup
	for n := range 4 {
		group.Go(func() {
			cfg := Config{VPCs: []VPC{threeInterfaces()}}
			cfg.VPCs[0].Interfaces = cfg.VPCs[0].Interfaces[:2+n%2]
			if err := l.Apply(t.Context(), cfg); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	l.apply()
	l.serve("eni-c", ":80")
	l.reaches("eni-a", ipC+":80")
}

func TestTwoLabsSideBySide(t *testing.T) {
	one, two := withPublicAddresses(t), withPublicAddresses(t)
	if one.slice.Index == two.slice.Index {
		t.Fatal("two labs have the same slice")
	}
	one.reaches(operator, one.public(0).String()+":80")
	two.reaches(operator, two.public(0).String()+":80")
	one.dropped("eni-a", two.public(0).String()+":80")
	if err := one.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	two.reaches(operator, two.public(0).String()+":80")
}

// TestPacketsNeverLeaveTheHost removes the link that packets for the slice go through.
func TestPacketsNeverLeaveTheHost(t *testing.T) {
	l := withPublicAddresses(t)
	link, err := netlink.LinkByName(l.slice.hostLink())
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkDel(link); err != nil {
		t.Fatal(err)
	}
	l.unreachable(operator, l.public(0).String()+":80")
	repaired, err := Open(t.Context(), l.slice)
	if err != nil {
		t.Fatal(err)
	}
	defer repaired.Close()
	l.reaches(operator, l.public(0).String()+":80")
}
