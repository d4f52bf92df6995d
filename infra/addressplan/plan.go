// Package addressplan computes addresses of machines and networks of pods from an index, and finds networks
// that collide. All of it is IPv4.
//
// What may not enter: I/O, other packages of this repository, the networks that exist.
package addressplan

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// The roles of machines.
const (
	LoadBalancer = "lb"
	Controller   = "controller"
	Etcd         = "etcd"
	Worker       = "worker"
)

// A block is a role's part of a subnet: indexes are counted from its first address on.
type block struct {
	role  string
	first int // from the base of the subnet
	size  int // 0 for the rest of the subnet
}

// blocks are the same in every subnet, so that adding machines of one role never moves or meets those of
// another one.
var blocks = []block{
	{LoadBalancer, reservedFirst, 6},
	{Controller, 10, 5},
	{Etcd, 15, 5},
	{Worker, 20, 0},
}

// EC2 reserves the first four addresses of a subnet and the last one.
// https://docs.aws.amazon.com/vpc/latest/userguide/subnet-sizing.html
const (
	reservedFirst = 4
	reservedLast  = 1
)

// Roles returns the roles of machines.
func Roles() []string {
	names := make([]string, len(blocks))
	for i, b := range blocks {
		names[i] = b.role
	}
	return names
}

// blockOf returns the part of a subnet for a role.
func blockOf(role string) (block, error) {
	i := slices.IndexFunc(blocks, func(b block) bool { return b.role == role })
	if i < 0 {
		return block{}, fmt.Errorf("role %q: want %s", role, strings.Join(Roles(), ", "))
	}
	return blocks[i], nil
}

// CheckRole reports a text that is no role.
func CheckRole(role string) error {
	_, err := blockOf(role)
	return err
}

// Machine returns the address of a role's machine in a subnet: load balancers get the addresses 4 to 9 of
// the subnet, controllers 10 to 14, members of etcd 15 to 19, workers those from 20 on. The index begins with 0.
func Machine(subnet netip.Prefix, role string, index int) (netip.Addr, error) {
	if err := usable(subnet); err != nil {
		return netip.Addr{}, err
	}
	b, err := blockOf(role)
	if err != nil {
		return netip.Addr{}, err
	}
	last := size(subnet) - reservedLast // of the subnet, exclusive
	if b.size > 0 {
		last = min(last, b.first+b.size)
	}
	if n := last - b.first; n <= 0 {
		return netip.Addr{}, fmt.Errorf("%s is too small for a machine of role %s, whose addresses begin with number %d", subnet, role, b.first)
	} else if index < 0 || index >= n {
		return netip.Addr{}, fmt.Errorf("index %d: %s has addresses for %d machines of role %s, 0 to %d", index, subnet, n, role, n-1)
	}
	return at(subnet, b.first+index), nil
}

// podBits is the prefix length of a node's network: 254 pods and a gateway, more than the 110 that a
// kubelet runs by default.
const podBits = 24

// PodCIDR returns the network of the pods on one node: the index-th /24 of the cluster's.
func PodCIDR(pods netip.Prefix, index int) (netip.Prefix, error) {
	switch err := usable(pods); {
	case err != nil:
		return netip.Prefix{}, err
	case pods.Bits() > podBits:
		return netip.Prefix{}, fmt.Errorf("%s is smaller than the /%d of one node", pods, podBits)
	}
	n := 1 << (podBits - pods.Bits())
	if index < 0 || index >= n {
		return netip.Prefix{}, fmt.Errorf("index %d: %s has networks for %d nodes, 0 to %d", index, pods, n, n-1)
	}
	return netip.PrefixFrom(at(pods, index<<(32-podBits)), podBits), nil
}

// Networks are networks by what they are for: "nodes", "pods", "office".
type Networks map[string][]netip.Prefix

// taken are networks that other programs use on the machines.
var taken = []struct {
	prefix netip.Prefix
	by     string
}{
	{netip.MustParsePrefix("127.0.0.0/8"), "the loopback interface, where systemd-resolved has its resolver, 127.0.0.53"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local addresses, where EC2 has its resolver, 169.254.169.253, and its metadata, 169.254.169.254"},
	{netip.MustParsePrefix("172.17.0.0/16"), "Docker's default bridge"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
}

// Problems returns a sentence for each pair of networks that overlap, and for each one that overlaps what
// Docker, the resolvers or EC2 use. Networks for the same purpose may not overlap either. The order depends
// on the names and on the order of the networks only.
func (n Networks) Problems() []string {
	type network struct {
		name   string
		prefix netip.Prefix
	}
	var all []network
	for name, prefixes := range n {
		for _, p := range prefixes {
			all = append(all, network{name, p.Masked()})
		}
	}
	slices.SortStableFunc(all, func(a, b network) int { return strings.Compare(a.name, b.name) })
	problems := []string{}
	for i, a := range all {
		for _, b := range all[:i] {
			if a.prefix.Overlaps(b.prefix) {
				problems = append(problems, fmt.Sprintf("%s %s overlaps %s %s.", b.name, b.prefix, a.name, a.prefix))
			}
		}
		for _, t := range taken {
			if a.prefix.Overlaps(t.prefix) {
				problems = append(problems, fmt.Sprintf("%s %s overlaps %s of %s.", a.name, a.prefix, t.prefix, t.by))
			}
		}
	}
	return problems
}

// Parse reads an IPv4 network such as "10.240.0.0/24".
func Parse(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%s: want a network such as 10.240.0.0/24", text)
	}
	return p, usable(p)
}

// usable reports what is not an IPv4 network.
func usable(p netip.Prefix) error {
	switch {
	case !p.IsValid() || !p.Addr().Is4():
		return fmt.Errorf("%s: want an IPv4 network in CIDR notation", p)
	case p != p.Masked():
		return fmt.Errorf("%s has host bits set; the network is %s", p, p.Masked())
	}
	return nil
}

// size returns the number of a network's addresses.
func size(p netip.Prefix) int { return 1 << (32 - p.Bits()) }

// at returns the n-th address of a network, counted from its base.
func at(p netip.Prefix, n int) netip.Addr {
	base := p.Masked().Addr().As4()
	var out [4]byte
	binary.BigEndian.PutUint32(out[:], binary.BigEndian.Uint32(base[:])+uint32(n)) //nolint:gosec // n lies in the network
	return netip.AddrFrom4(out)
}
