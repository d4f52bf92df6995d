// Package testbed gives tests the surroundings of a machine in the local EC2: a network with one
// VPC and an internet gateway, its metadata service, resolver and DHCP server. The test is the
// operator. Everything is removed when the test ends.
//
// It starts no machines, and knows nothing of how they are made or of the EC2 API.
package testbed

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/metadata"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/sources"
)

const (
	vpcID    = "vpc-1"
	subnetID = "subnet-1"
	tableID  = "rtb-1"
	groupID  = "sg-1"
)

var (
	vpcCIDR    = netip.MustParsePrefix("10.99.0.0/16")
	subnetCIDR = netip.MustParsePrefix("10.99.0.0/24")
	everywhere = netip.MustParsePrefix("0.0.0.0/0")
)

// Network is one VPC without an EC2 API. Its only security group allows everything.
type Network struct {
	Key ssh.Signer // authorized for admin on every machine

	t       *testing.T
	slice   network.Slice
	manager *network.Manager
	vpc     network.VPC // as applied last

	mu        sync.Mutex
	instances []metadata.Instance
}

// Host has what is needed to start a machine and to reach it.
type Host struct {
	ID       string // instance id, unique on this computer
	Hostname string
	Netns    string        // path of its network namespace, whose ens5 gets its address by DHCP
	Address  netip.Addr    // public: at which the test reaches it
	HostKey  ssh.PublicKey // as in its user data
}

// New makes the network. The test needs root, and one of this computer's network slices must be
// free.
func New(t *testing.T) *Network {
	t.Helper()
	n := &Network{t: t, vpc: network.VPC{
		ID: vpcID, CIDR: vpcCIDR, InternetGateway: true,
		Subnets: []network.Subnet{{ID: subnetID, CIDR: subnetCIDR, RouteTableID: tableID}},
		RouteTables: []network.RouteTable{{ID: tableID, Routes: []network.Route{
			{Destination: everywhere, Target: network.Target{Kind: network.InternetGateway}},
		}}},
		SecurityGroups: []network.SecurityGroup{{
			ID: groupID, Ingress: []network.Rule{{Protocol: "-1", CIDR: everywhere}}, Egress: []network.Rule{{Protocol: "-1", CIDR: everywhere}},
		}},
	}}
	n.Key, _ = newKey(t)
	n.open()
	n.apply()
	servers := metadata.New(n, n.manager, nil, slog.New(slog.DiscardHandler))
	if err := servers.Sync(t.Context(), map[string]netip.Prefix{vpcID: vpcCIDR}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(servers.Close)
	return n
}

// open claims a slice, which the test's end releases, and opens its network.
func (n *Network) open() {
	n.t.Helper()
	stateDir := n.t.TempDir()
	var err error
	if n.slice, err = network.Claim(stateDir, sources.Addresses(n.t.Context())...); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		if err := network.Down(context.WithoutCancel(n.t.Context()), n.slice); err != nil {
			n.t.Error(err)
		}
		if left, err := network.Leftovers(n.slice); err != nil || len(left) > 0 {
			n.t.Errorf("left of the network: %v %v", left, err)
		}
		if err := network.Release(stateDir); err != nil {
			n.t.Error(err)
		}
	})
	if n.manager, err = network.Open(n.t.Context(), n.slice); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(n.manager.Close)
}

func (n *Network) apply() {
	n.t.Helper()
	if err := n.manager.Apply(n.t.Context(), network.Config{VPCs: []network.VPC{n.vpc}}); err != nil {
		n.t.Fatal(err)
	}
}

// Operator returns the test's own address, at which machines can reach it.
func (n *Network) Operator() netip.Addr { return n.slice.Operator }

// Add adds a machine's interface and its metadata. cloudConfig is appended to its user data, which
// contain its host key.
func (n *Network) Add(cloudConfig string) Host {
	n.t.Helper()
	count := len(n.vpc.Interfaces)
	number := byte(10 + count)
	hostKey, private := newKey(n.t)
	nic := network.Interface{
		ID: fmt.Sprintf("eni-%d", number), SubnetID: subnetID, Groups: []string{groupID}, SourceDestCheck: true,
		PrivateIP: netip.AddrFrom4([4]byte{10, 99, 0, number}), PublicIP: n.slice.PublicIPs()[count],
		MAC: net.HardwareAddr{0x02, 0, 10, 99, 0, number}.String(),
	}
	h := Host{
		ID:       fmt.Sprintf("i-%08x%09x", os.Getpid(), number),
		Hostname: fmt.Sprintf("ip-10-99-0-%d", number),
		Netns:    n.manager.InterfaceNetns(nic.ID),
		Address:  nic.PublicIP,
		HostKey:  hostKey.PublicKey(),
	}
	n.mu.Lock()
	n.instances = append(n.instances, metadata.Instance{
		ID: h.ID, Region: "us-east-1", Zone: "us-east-1a", VPCID: vpcID, VPCCIDR: vpcCIDR, SubnetID: subnetID, SubnetCIDR: subnetCIDR,
		InterfaceID: nic.ID, MAC: nic.MAC, PrivateIP: nic.PrivateIP, PublicIP: nic.PublicIP, PrivateName: h.Hostname + ".ec2.internal",
		KeyName: "test", PublicKey: AuthorizedKey(n.Key.PublicKey()),
		Enabled: true, TokenRequired: true, HopLimit: 1,
		UserData: []byte("#cloud-config\nssh_keys:\n  ed25519_private: |\n    " +
			strings.ReplaceAll(strings.TrimSpace(private), "\n", "\n    ") +
			"\n  ed25519_public: " + AuthorizedKey(h.HostKey) + "\n" + cloudConfig),
	})
	n.mu.Unlock()
	n.vpc.Interfaces = append(n.vpc.Interfaces, nic)
	n.apply()
	return h
}

// find returns the first instance for which meant is true.
func (n *Network) find(meant func(metadata.Instance) bool) (metadata.Instance, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, i := range n.instances {
		if meant(i) {
			return i, true
		}
	}
	return metadata.Instance{}, false
}

// InstanceByAddress implements metadata.Source.
func (n *Network) InstanceByAddress(_ string, address netip.Addr) (metadata.Instance, bool) {
	return n.find(func(i metadata.Instance) bool { return i.PrivateIP == address })
}

// InstanceByMAC implements metadata.Source.
func (n *Network) InstanceByMAC(_ string, mac net.HardwareAddr) (metadata.Instance, bool) {
	return n.find(func(i metadata.Instance) bool { return i.MAC == mac.String() })
}

// AddressLeased implements metadata.Source.
func (n *Network) AddressLeased(string, net.HardwareAddr) {}

// BalancerAddresses implements metadata.Source: there are no load balancers.
func (n *Network) BalancerAddresses(string) ([]netip.Addr, bool) { return nil, false }

// PrivateAddressOf implements metadata.Source.
func (n *Network) PrivateAddressOf(_ string, public netip.Addr) (netip.Addr, bool) {
	i, ok := n.find(func(i metadata.Instance) bool { return i.PublicIP == public })
	return i.PrivateIP, ok
}

// Role implements metadata.Source.
func (n *Network) Role(metadata.Instance) (metadata.Role, error) { return metadata.Role{}, nil }

// newKey makes an SSH key. private is the private key in PEM.
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

// AuthorizedKey returns a public key as a line of authorized_keys, without the newline.
func AuthorizedKey(key ssh.PublicKey) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}
