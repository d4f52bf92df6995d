package component

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// Host is a machine in a list, as far as it is known.
type Host struct {
	Node
	Address string // IP address or name for SSH
	Role    string // for which the machine was made, one of the Role constants; empty if unknown
}

// The roles for which a machine can be made. Its role decides what its security group lets in.
const (
	RoleController   = "controller"
	RoleEtcd         = "etcd"
	RoleWorker       = "worker"
	RoleLoadBalancer = "lb"
)

// checkRoles reports machines of a list that were made for another role. others are further roles
// that are allowed.
func checkRoles(field string, hosts []Host, want string, others ...string) (errs invalid.Fields) {
	for i, h := range hosts {
		if h.Role != "" && h.Role != want && !slices.Contains(others, h.Role) {
			errs.Say(hostField(field, i, "role"), "Machine of another role",
				"%s has the role %s, so its security group blocks traffic that it needs here: use a machine with the role %s.", h.Name, h.Role, want)
		}
	}
	return errs
}

// CheckEtcdHosts is [CheckHosts] for members of etcd: on machines of their own or on controllers.
func CheckEtcdHosts(field string, hosts []Host) invalid.Fields {
	return append(checkHosts(field, hosts), checkRoles(field, hosts, RoleEtcd, RoleController)...)
}

// CheckControllers is [CheckHosts] for machines that must be controllers.
func CheckControllers(field string, hosts []Host) invalid.Fields {
	return append(checkHosts(field, hosts), checkRoles(field, hosts, RoleController)...)
}

// localNames are names that every machine has for itself or its network in /etc/hosts.
var localNames = []string{"localhost", "ip6-localhost", "ip6-loopback", "ip6-allnodes", "ip6-allrouters"}

// CheckMachineName reports a name that no machine of a cluster can have. A node's name is a DNS
// label here, so that it is the hostname as well.
func CheckMachineName(name string) error {
	switch {
	case slices.Contains(localNames, name):
		return fmt.Errorf("every machine uses the name %s for itself: choose another name", name)
	case len(validation.IsDNS1123Label(name)) > 0:
		return fmt.Errorf("%q must be 1 to 63 lower-case letters, digits and hyphens, and begin and end with a letter or digit", name)
	}
	return nil
}

// checkHosts reports machines of a list that share a name or an address, on the later one. field is
// the list's field, for example "hosts".
func checkHosts(field string, hosts []Host) invalid.Fields {
	var errs invalid.Fields
	seen := map[[2]string]int{}
	for i, h := range hosts {
		private := ""
		if h.PrivateIP.IsValid() {
			private = h.PrivateIP.String()
		}
		for _, a := range [][2]string{{"name", h.Name}, {"private_ip", private}, {"address", h.Address}} {
			if a[1] == "" {
				continue
			}
			if first, twice := seen[a]; twice {
				errs.Say(hostField(field, i, a[0]), "Duplicate host", "Host %d has the same %s as host %d: %s.", i, a[0], first, a[1])
				break
			}
			seen[a] = i
		}
	}
	return errs
}

// checkHosts reports machines that are listed twice, were made for another role, or lie in none of
// the cluster's NodeCIDRs, if there are any.
func (s ControlPlaneSpec) CheckHosts(hosts []Host) invalid.Fields {
	errs := CheckControllers("hosts", hosts)
	for i, h := range hosts {
		checkSubnet(&errs, hostField("hosts", i, "private_ip"), h, s.Cluster)
	}
	return errs
}

// checkHosts is [ControlPlaneSpec.CheckHosts] for workers, which also need pod networks. Controllers may
// be workers too.
func (s WorkerSpec) CheckHosts(hosts []Host) invalid.Fields {
	errs := append(checkHosts("hosts", hosts), checkRoles("hosts", hosts, RoleWorker, RoleController)...)
	for i, h := range hosts {
		checkSubnet(&errs, hostField("hosts", i, "private_ip"), h, s.Cluster)
		if !h.PodCIDR.IsValid() && s.CNI.Network != CNIBridge {
			continue
		}
		field := hostField("hosts", i, "pod_cidr")
		checkPodCIDR(&errs, field, h.Node, s.Cluster)
		s.Cluster.checkRouted(&errs, field, h.Node)
		for _, other := range hosts[:i] {
			if h.PodCIDR.Overlaps(other.PodCIDR) {
				errs.Say(field, "Overlapping pod networks", "pod_cidr %s of %s overlaps %s of %s.", h.PodCIDR, h.Name, other.PodCIDR, other.Name)
			}
		}
	}
	return errs
}

func hostField(field string, i int, name string) string {
	return fmt.Sprintf("%s[%d].%s", field, i, name)
}

func checkSubnet(f *invalid.Fields, field string, h Host, c Cluster) {
	if !h.PrivateIP.IsValid() || len(c.NodeCIDRs) == 0 || slices.ContainsFunc(c.NodeCIDRs, func(p netip.Prefix) bool { return p.Contains(h.PrivateIP) }) {
		return
	}
	var subnets []string
	for _, p := range c.NodeCIDRs {
		subnets = append(subnets, p.String())
	}
	f.Say(field, "Machine outside the subnets of the machines", "%s is in none of the control plane's node_cidrs, %s: add the subnet that %s is in.",
		h.PrivateIP, strings.Join(subnets, ", "), h.Name)
}

// checkPodCIDR reports a worker's pod network that is missing or outside the cluster's.
func checkPodCIDR(f *invalid.Fields, field string, n Node, c Cluster) {
	switch own, all := n.PodCIDR, c.PodCIDR; {
	case !own.IsValid():
		f.Miss(field, "Worker without a pod network", "%s needs pod_cidr, a part of the cluster's %s that no other worker has: set it on its k8s_machine.", n.Name, all)
	case all.IsValid() && (!all.Contains(own.Addr()) || own.Bits() <= all.Bits()):
		f.Say(field, "Pod network outside the cluster's", "pod_cidr %s of %s is outside the cluster's pod_cidr %s.", own, n.Name, all)
	}
}

// validate checks what every machine needs. field is a prefix that ends with a dot.
func (n Node) validate(field string) invalid.Fields {
	var errs invalid.Fields
	if err := CheckMachineName(n.Name); err != nil {
		errs.Say(field+"name", "Unusable name", "machine name %q: %w", n.Name, err)
	}
	if !n.PrivateIP.IsValid() {
		errs.Miss(field+"private_ip", "Machine without an address", "machine %s has no private address", n.Name)
	}
	return errs
}

// validateMembers checks every node of a field, and that n is one of them.
func validateMembers(field string, nodes []Node, n Node) error {
	var (
		errs  invalid.Fields
		hosts []Host
	)
	for i, m := range nodes {
		errs = append(errs, m.validate(hostField(field, i, ""))...)
		hosts = append(hosts, Host{Node: m})
	}
	errs = append(errs, checkHosts(field, hosts)...)
	if !slices.ContainsFunc(nodes, func(m Node) bool { return m.Name == n.Name }) {
		return errors.Join(errs.Err(), fmt.Errorf("machine %s is not among those of the specification", n.Name))
	}
	return errs.Err()
}
