package component

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// Validate reports what is wrong with the cluster's names and networks.
func (c Cluster) Validate() error {
	var errs []error
	say := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	errs = append(errs, c.validateName())
	if msgs := validation.IsDNS1123Subdomain(c.Domain); len(msgs) > 0 {
		say("cluster domain %q: %s", c.Domain, strings.Join(msgs, "; "))
	}
	type network struct {
		what   string
		prefix netip.Prefix
	}
	nets := []network{{"pod CIDR", c.PodCIDR}, {"service CIDR", c.ServiceCIDR}}
	for _, p := range c.NodeCIDRs {
		nets = append(nets, network{"node CIDR", p})
	}
	for i, n := range nets {
		switch {
		case !n.prefix.IsValid():
			say("%s is missing", n.what)
		case !n.prefix.Addr().Is4():
			say("%s %s is not IPv4", n.what, n.prefix)
		case n.prefix != n.prefix.Masked():
			say("%s %s has host bits set: did you mean %s?", n.what, n.prefix, n.prefix.Masked())
		}
		for _, o := range nets[:i] {
			if n.prefix.IsValid() && n.prefix.Overlaps(o.prefix) {
				say("%s %s overlaps %s %s", n.what, n.prefix, o.what, o.prefix)
			}
		}
	}
	if c.ServiceCIDR.IsValid() && c.DNSIP.IsValid() && (!c.ServiceCIDR.Contains(c.DNSIP) || c.DNSIP == firstServiceIP(c.ServiceCIDR)) {
		say("DNS address %s is not a free address of the service CIDR %s", c.DNSIP, c.ServiceCIDR)
	}
	return errors.Join(errs...)
}

func (c Cluster) validateName() error {
	if msgs := validation.IsDNS1123Label(c.Name); len(msgs) > 0 {
		return fmt.Errorf("cluster name %q: %s", c.Name, strings.Join(msgs, "; "))
	}
	return nil
}

// firstServiceIP is the address of the service "kubernetes", the first of the range.
func firstServiceIP(services netip.Prefix) netip.Addr { return services.Masked().Addr().Next() }

func (n Node) validate() error {
	var errs []error
	if msgs := validation.IsDNS1123Subdomain(n.Name); len(msgs) > 0 {
		errs = append(errs, fmt.Errorf("machine name %q: %s", n.Name, strings.Join(msgs, "; ")))
	}
	if !n.PrivateIP.IsValid() {
		errs = append(errs, fmt.Errorf("machine %s has no private address", n.Name))
	}
	return errors.Join(errs...)
}

// validateMembers checks every node and that n is one of them.
func validateMembers(nodes []Node, n Node) error {
	var errs []error
	names, addrs := map[string]bool{}, map[netip.Addr]bool{}
	for _, m := range nodes {
		errs = append(errs, m.validate())
		if names[m.Name] {
			errs = append(errs, fmt.Errorf("machine %s is listed twice", m.Name))
		}
		if addrs[m.PrivateIP] {
			errs = append(errs, fmt.Errorf("address %s is listed twice", m.PrivateIP))
		}
		names[m.Name], addrs[m.PrivateIP] = true, true
	}
	if !names[n.Name] {
		errs = append(errs, fmt.Errorf("machine %s is not among those of the specification", n.Name))
	}
	return errors.Join(errs...)
}

func requireCAs(ref pki.Ref, cas ...pki.CAName) error {
	var errs []error
	for _, ca := range cas {
		if ref.Bundle(ca) == "" {
			errs = append(errs, fmt.Errorf("the PKI has no %s CA certificate", ca))
		}
	}
	return errors.Join(errs...)
}

// binary turns an artifact into a desired download. Without members the download is the program itself.
func binary(from []artifact.Artifact, name string, installs ...desired.Install) (desired.Binary, error) {
	a, ok := artifact.Find(from, name)
	if !ok {
		return desired.Binary{}, fmt.Errorf("the artifacts do not include %s", name)
	}
	return desired.Binary{Name: a.Name, Version: a.Version, URL: a.URL, SHA256: a.SHA256, Installs: installs}, nil
}

func caFile(path, bundle string) desired.File {
	return desired.File{Path: path, Mode: 0o644, Content: []byte(bundle)}
}

func slot(name, certPath, keyPath string, ca pki.CAName, r pki.Request) pki.Slot {
	return pki.Slot{Name: name, CertPath: certPath, KeyPath: keyPath, CA: ca, Request: r, KeyMode: 0o600}
}

// sans sorts names and addresses into DNS names and IPs, each sorted and without doubles.
func sans(values ...string) (dns []string, ips []netip.Addr, err error) {
	for _, v := range values {
		if v == "" {
			continue
		}
		if ip, err := netip.ParseAddr(v); err == nil {
			ips = append(ips, ip)
			continue
		}
		if msgs := validation.IsDNS1123Subdomain(v); len(msgs) > 0 {
			return nil, nil, fmt.Errorf("%q is neither an address nor a host name: %s", v, strings.Join(msgs, "; "))
		}
		dns = append(dns, v)
	}
	slices.Sort(dns)
	slices.SortFunc(ips, netip.Addr.Compare)
	return slices.Compact(dns), slices.Compact(ips), nil
}

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})
