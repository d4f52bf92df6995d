package component

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// CheckMachines reports machines of a load balancer that cannot share its virtual address or cannot have its port,
// and checks that HAProxy cannot make. machines are those of the fields host and standbys; any reports whether
// standbys are given, even if they are not known yet. Backends are the machines of the API servers, as far as they
// are known.
func (s LoadBalancerSpec) CheckMachines(machines []Host, any bool) (errs invalid.Fields) {
	for _, h := range machines {
		s.checkPort(&errs, h)
	}
	s.checkChecks(&errs)
	if !s.VirtualIP.IsValid() {
		if any {
			errs.Miss("virtual_ip", "Standbys without a virtual address", "standbys need virtual_ip: without it no client connects to them.")
		}
		if len(s.FormerIPs) > 0 {
			errs.Miss("virtual_ip", "Former addresses without a virtual address", "former_virtual_ips need virtual_ip: the same machine has all of these addresses.")
		}
		return errs
	}
	if s.Port == haproxyAlivePort {
		errs.Say("port", "Port in use", "HAProxy uses port %d itself with virtual_ip: choose another one.", haproxyAlivePort)
	}
	all := slices.Concat(machines, hostsOf(s.Backends))
	s.checkAddress(&errs, "virtual_ip", s.VirtualIP, all)
	for i, ip := range s.FormerIPs {
		field := fmt.Sprintf("former_virtual_ips[%d]", i)
		if ip == s.VirtualIP || slices.Contains(s.FormerIPs[:i], ip) {
			errs.Say(field, "Duplicate address", "%s is given twice.", ip)
			continue
		}
		s.checkAddress(&errs, field, ip, all)
	}
	for i, h := range machines {
		field := "host.private_ip"
		if i > 0 {
			field = hostField("standbys", i-1, "private_ip")
		}
		for _, other := range machines[:i] {
			if h.Name != "" && h.Name == other.Name || h.PrivateIP.IsValid() && h.PrivateIP == other.PrivateIP {
				errs.Say(field, "Duplicate host", "%s is listed twice: give each machine once, as host or among standbys.", h.Name)
			}
		}
	}
	return errs
}

// checkAddress reports a virtual address that a machine has, or that no machine can have.
func (s LoadBalancerSpec) checkAddress(errs *invalid.Fields, field string, ip netip.Addr, machines []Host) {
	if !ip.IsGlobalUnicast() {
		errs.Say(field, "Not an address of a machine", "%s is not an address that a machine can have: choose a free one in the network of the load balancers.", ip)
		return
	}
	for _, h := range machines {
		switch ssh, _ := netip.ParseAddr(h.Address); ip {
		case h.PrivateIP:
			errs.Say(field, "Address of a machine", "%s is the private_ip of %s: choose an address that no machine has.", ip, h.Name)
			return
		case ssh:
			errs.Say(field, "Address of a machine", "%s is the address of %s: choose an address that no machine has.", ip, h.Name)
			return
		}
	}
}

// checkPort reports a port that a controller on the same machine uses.
func (s LoadBalancerSpec) checkPort(errs *invalid.Fields, h Host) {
	port := s.ListenPort()
	if !h.PrivateIP.IsValid() || !slices.Contains(controllerFirewall.ports, port) {
		return
	}
	for _, c := range s.Backends {
		if c.PrivateIP == h.PrivateIP {
			errs.Say("port", "Port of a controller", "%s, %s, is the machine of the controller %s, which uses port %d itself: "+
				"choose another port, such as 7443, or another machine for the load balancer.", h.Name, h.PrivateIP, c.Name, port)
		}
	}
}

// CheckInterface returns why a machine whose interface has the address own cannot take a virtual address.
func CheckInterface(ip netip.Addr, own netip.Prefix) error {
	network := own.Masked()
	switch {
	case !network.Contains(ip):
		return fmt.Errorf("%s does not lie in %s, the network of the interface with %s: no machine in that network would find it", ip, network, own.Addr())
	case own.Bits() < 31 && ip == network.Addr():
		return fmt.Errorf("%s is the address of the network %s itself: choose a free one in it", ip, network)
	case own.Bits() < 31 && !network.Contains(ip.Next()):
		return fmt.Errorf("%s is the broadcast address of the network %s: choose a free one in it", ip, network)
	}
	return nil
}

func hostsOf(nodes []Node) (out []Host) {
	for _, n := range nodes {
		out = append(out, Host{Node: n})
	}
	return out
}
