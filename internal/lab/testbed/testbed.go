// Package testbed gives tests of machines what surrounds a machine in the local
// EC2: a router, network namespaces behind it as in one VPC, and the metadata
// service and the resolver that belong to it. It starts no machines, and all it
// makes is gone when the test ends.
package testbed

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/metadata"
)

// Router is the address at which machines find what a test serves, and from
// which it reaches them.
const Router = "10.99.0.1"

const (
	vpcID  = "vpc-1"
	bridge = "br0"
)

// Resolver is the address of the resolver: as in every VPC, its base plus two.
var Resolver = netip.MustParseAddr("10.99.0.2")

var (
	vpcCIDR    = netip.MustParsePrefix("10.99.0.0/16")
	subnetCIDR = netip.MustParsePrefix("10.99.0.0/24") // Router is its gateway
)

// Network is one VPC without an EC2 around it.
type Network struct {
	Key ssh.Signer // lets a person in as admin, on every machine

	t      *testing.T
	dir    string // where network namespaces are pinned
	router string // path of the namespace with the bridge

	mu        sync.Mutex
	instances map[netip.Addr]metadata.Instance
}

// Host is what a machine needs to be started, and a client to reach it.
type Host struct {
	ID       string // instance id, unlike any other on this computer
	Hostname string
	Netns    string // path of its network namespace, whose ens5 gets its address by DHCP
	Address  netip.Addr
	HostKey  ssh.PublicKey // the one in its user data
}

// mtu is that of links inside a VPC, in bytes.
const mtu = 9001

// New makes the network. The test needs root.
func New(t *testing.T) *Network {
	t.Helper()
	n := &Network{t: t, instances: map[netip.Addr]metadata.Instance{}}
	n.Key, _ = newKey(t)
	var err error
	if n.dir, err = os.MkdirTemp("", "k8s-lab-netns-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(n.dir); err != nil {
			t.Error(err)
		}
	})
	n.router = n.addNetns("router")
	n.inside(n.router, addBridge)
	servers := metadata.New(n, n, nil, slog.New(slog.DiscardHandler))
	if err := servers.Sync(t.Context(), map[string]netip.Prefix{vpcID: vpcCIDR}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(servers.Close)
	return n
}

func addBridge() error {
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridge}}
	if err := netlink.LinkAdd(br); err != nil {
		return err
	}
	return up(bridge, Router+"/24", Resolver.String()+"/32", "169.254.169.253/32", "169.254.169.254/32")
}

// up gives a link addresses and sets it up.
func up(name string, cidrs ...string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for _, cidr := range cidrs {
		addr, err := netlink.ParseAddr(cidr)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, addr); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(link)
}

// Add makes room for a machine and has the metadata service know it. cloudConfig
// is appended to its user data, which give it its host key.
func (n *Network) Add(cloudConfig string) Host {
	n.t.Helper()
	n.mu.Lock()
	number := len(n.instances) + 10
	n.mu.Unlock()
	hostKey, private := newKey(n.t)
	h := Host{
		ID:       fmt.Sprintf("i-%08x%09x", os.Getpid(), number),
		Hostname: fmt.Sprintf("ip-10-99-0-%d", number),
		Netns:    n.addNetns(fmt.Sprint(number)),
		Address:  netip.AddrFrom4([4]byte{10, 99, 0, byte(number)}),
		HostKey:  hostKey.PublicKey(),
	}
	mac := net.HardwareAddr{0x02, 0, 10, 99, 0, byte(number)}
	n.inside(n.router, func() error { return addVeth(fmt.Sprintf("m%d", number), h.Netns, mac) })
	n.inside(h.Netns, func() error {
		return errors.Join(up("lo"), up("ens5"))
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.instances[h.Address] = metadata.Instance{
		ID: h.ID, Region: "us-east-1", Zone: "us-east-1a", VPCCIDR: vpcCIDR, SubnetCIDR: subnetCIDR, MAC: mac.String(),
		PrivateIP: h.Address, PrivateName: h.Hostname + ".ec2.internal",
		KeyName: "test", PublicKey: AuthorizedKey(n.Key.PublicKey()),
		Enabled: true, TokenRequired: true, HopLimit: 1,
		UserData: []byte("#cloud-config\nssh_keys:\n  ed25519_private: |\n    " +
			strings.ReplaceAll(strings.TrimSpace(private), "\n", "\n    ") +
			"\n  ed25519_public: " + AuthorizedKey(h.HostKey) + "\n" + cloudConfig),
	}
	return h
}

// addVeth connects the bridge with ens5 of another namespace.
func addVeth(name, peer string, mac net.HardwareAddr) error {
	ns, err := netns.GetFromPath(peer)
	if err != nil {
		return err
	}
	defer ns.Close() //nolint:errcheck // read only
	br, err := netlink.LinkByName(bridge)
	if err != nil {
		return err
	}
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: name, MasterIndex: br.Attrs().Index, MTU: mtu},
		PeerName:  "ens5", PeerNamespace: netlink.NsFd(ns), PeerHardwareAddr: mac, PeerMTU: mtu,
	}
	if err := netlink.LinkAdd(veth); err != nil {
		return err
	}
	return netlink.LinkSetUp(veth)
}

// Dial connects from the router.
func (n *Network) Dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = enter(n.router, func() error {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// ListenTCP listens on an address of the router; it implements metadata.Listener.
func (n *Network) ListenTCP(ctx context.Context, _, address string) (l net.Listener, err error) {
	err = enter(n.router, func() error { l, err = (&net.ListenConfig{}).Listen(ctx, "tcp4", address); return err })
	return l, err
}

// ListenUDP is ListenTCP for packets.
func (n *Network) ListenUDP(ctx context.Context, _, address string) (c net.PacketConn, err error) {
	err = enter(n.router, func() error { c, err = (&net.ListenConfig{}).ListenPacket(ctx, "udp4", address); return err })
	return c, err
}

// InstanceAt implements metadata.Source.
func (n *Network) InstanceAt(_ string, address netip.Addr) (metadata.Instance, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i, ok := n.instances[address]
	return i, ok
}

// TookAddress implements metadata.Source.
func (n *Network) TookAddress(string, net.HardwareAddr) {}

// InstanceWith implements metadata.Source.
func (n *Network) InstanceWith(_ string, mac net.HardwareAddr) (metadata.Instance, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, i := range n.instances {
		if i.MAC == mac.String() {
			return i, true
		}
	}
	return metadata.Instance{}, false
}

// InterfaceAt implements metadata.Listener: one bridge leads to every interface,
// and they have no identifiers here.
func (n *Network) InterfaceAt(string, int) (string, error) { return "", nil }

// PrivateOf implements metadata.Source: no machine has a public address.
func (n *Network) PrivateOf(string, netip.Addr) (netip.Addr, bool) { return netip.Addr{}, false }

// addNetns makes a network namespace and returns the path that it is pinned at,
// which is not in /run/netns to keep out of the way of others that work there.
func (n *Network) addNetns(name string) string {
	n.t.Helper()
	path := filepath.Join(n.dir, name)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		n.t.Fatal(err)
	}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		return unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		if err := errors.Join(unix.Unmount(path, unix.MNT_DETACH), os.Remove(path)); err != nil {
			n.t.Error(err)
		}
	})
	return path
}

func (n *Network) inside(path string, f func() error) {
	n.t.Helper()
	if err := enter(path, f); err != nil {
		n.t.Fatalf("in network namespace %s: %v", path, err)
	}
}

// enter runs f in a network namespace.
func enter(path string, f func() error) error {
	return onThread(func() error {
		ns, err := netns.GetFromPath(path)
		if err != nil {
			return err
		}
		defer ns.Close() //nolint:errcheck // read only
		if err := netns.Set(ns); err != nil {
			return err
		}
		return f()
	})
}

// onThread runs f on a thread of its own, which ends with it.
func onThread(f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		result <- f()
	}()
	return <-result
}

// newKey makes an SSH key; private is in the form of a key file.
func newKey(t *testing.T) (key ssh.Signer, private string) {
	t.Helper()
	_, raw, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if key, err = ssh.NewSignerFromKey(raw); err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(raw, "")
	if err != nil {
		t.Fatal(err)
	}
	return key, string(pem.EncodeToMemory(block))
}

// AuthorizedKey is a public key as authorized_keys has it, without a newline.
func AuthorizedKey(key ssh.PublicKey) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}
