package component

import (
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// The default networks of a cluster.
var (
	DefaultPodCIDR     = netip.MustParsePrefix("10.200.0.0/16")
	DefaultServiceCIDR = netip.MustParsePrefix("10.32.0.0/20")
)

// DefaultDomain is the default domain of cluster DNS.
const DefaultDomain = "cluster.local"

// DefaultDNSIP returns the default address of cluster DNS in a service network: the tenth.
func DefaultDNSIP(services netip.Prefix) netip.Addr { return addressOf(services, 10) }

// firstServiceIP returns the address of the service "kubernetes", the first of the network.
func firstServiceIP(services netip.Prefix) netip.Addr { return addressOf(services, 1) }

// subnetResolver returns the third address of a subnet, which EC2 reserves for DNS. In the VPC's
// first subnet this is the address of its DNS server; in other subnets it is unused. A DNS server
// outside the machines' subnets needs no exception, and neither does one beside machines with
// PodRoutes, which is no node
// (https://docs.aws.amazon.com/vpc/latest/userguide/subnet-sizing.html).
func subnetResolver(p netip.Prefix) netip.Addr { return addressOf(p, 2) }

// addressOf returns the n-th address of a network, counted from its base.
func addressOf(p netip.Prefix, n int) netip.Addr {
	a := p.Masked().Addr()
	for range n {
		a = a.Next()
	}
	return a
}

// network is one of a cluster's networks and its field.
type network struct {
	field  string
	prefix netip.Prefix
}

// CheckNetworks reports networks of the cluster that overlap, and an address of cluster DNS that no
// service can have.
func (c Cluster) CheckNetworks() invalid.Fields {
	var errs invalid.Fields
	pods, services := network{"pod_cidr", c.PodCIDR}, network{"service_cidr", c.ServiceCIDR}
	disjoint(&errs, services, pods)
	for i, p := range c.NodeCIDRs {
		nodes := network{"node_cidrs", p}
		disjoint(&errs, nodes, pods)
		disjoint(&errs, nodes, services)
		for _, other := range c.NodeCIDRs[:i] {
			if p.Overlaps(other) {
				errs.Say(nodes.field, overlapping, "node_cidrs has %s and %s, which overlap: subnets do not.", other, p)
			}
		}
	}
	errs = append(errs, c.checkPodRoutes()...)
	if ip := c.DNSIP; ip.IsValid() && c.ServiceCIDR.IsValid() && (!c.ServiceCIDR.Contains(ip) || ip == firstServiceIP(c.ServiceCIDR)) {
		errs.Say("dns_ip", "Unusable address", "%s must lie in service_cidr %s and must not be its first address, which is the API server's.", ip, c.ServiceCIDR)
	}
	return errs
}

const overlapping = "Overlapping networks"

// disjoint reports on the first of two networks that they overlap. It ignores unset networks.
func disjoint(f *invalid.Fields, a, b network) {
	if a.prefix.Overlaps(b.prefix) {
		f.Say(a.field, overlapping, "%s %s overlaps %s %s. Nodes, pods and services need networks of their own.", a.field, a.prefix, b.field, b.prefix)
	}
}

// validate returns an error for what is invalid or missing in the cluster's settings.
func (c Cluster) validate() error { return slices.Concat(c.checkForms(), c.CheckNetworks()).Err() }

// checkForms reports a name, a domain or networks that are missing or that no cluster can have.
func (c Cluster) checkForms() invalid.Fields {
	errs := c.checkName()
	if msgs := validation.IsDNS1123Subdomain(c.Domain); len(msgs) > 0 {
		errs.Say("domain", "Unusable domain", "cluster domain %q: %s", c.Domain, strings.Join(msgs, "; "))
	}
	all := []network{{"pod_cidr", c.PodCIDR}, {"service_cidr", c.ServiceCIDR}}
	for _, p := range c.NodeCIDRs {
		all = append(all, network{"node_cidrs", p})
	}
	const problem = "Unusable network"
	for _, n := range all {
		if !n.prefix.IsValid() {
			errs.Miss(n.field, problem, "every cluster needs one")
			continue
		}
		errs.Add(n.field, problem, ClusterCIDR.Check(n.prefix))
	}
	return errs
}

func (c Cluster) checkName() (errs invalid.Fields) {
	if msgs := validation.IsDNS1123Label(c.Name); len(msgs) > 0 {
		errs.Say("cluster", "Unusable name", "cluster name %q: %s", c.Name, strings.Join(msgs, "; "))
	}
	return errs
}
