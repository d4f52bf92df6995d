package component

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func TestCheckNetworks(t *testing.T) {
	const own = ". Nodes, pods and services need networks of their own."
	for _, tt := range []struct {
		name   string
		change func(*Cluster)
		want   []string
	}{
		{"good", func(*Cluster) {}, nil},
		{"nothing known", func(c *Cluster) { *c = Cluster{} }, nil},
		{"only an address known", func(c *Cluster) { *c = Cluster{DNSIP: c.DNSIP} }, nil},
		{"pods overlap services", func(c *Cluster) { c.ServiceCIDR, c.DNSIP = prefixes("10.200.4.0/24")[0], netip.Addr{} },
			[]string{"service_cidr|Overlapping networks|service_cidr 10.200.4.0/24 overlaps pod_cidr 10.200.0.0/16" + own}},
		{"nodes overlap pods and services", func(c *Cluster) { c.NodeCIDRs = prefixes("10.0.0.0/8") },
			[]string{"node_cidrs|Overlapping networks|node_cidrs 10.0.0.0/8 overlaps pod_cidr 10.200.0.0/16" + own,
				"node_cidrs|Overlapping networks|node_cidrs 10.0.0.0/8 overlaps service_cidr 10.32.0.0/24" + own}},
		{"nodes overlap pods that are not known", func(c *Cluster) { c.NodeCIDRs, c.PodCIDR = prefixes("10.200.0.0/24"), netip.Prefix{} }, nil},
		{"nodes overlap nodes", func(c *Cluster) { c.NodeCIDRs = prefixes("10.240.0.0/16", "10.240.1.0/24") },
			[]string{"node_cidrs|Overlapping networks|node_cidrs has 10.240.0.0/16 and 10.240.1.0/24, which overlap: subnets do not."}},
		{"DNS outside", func(c *Cluster) { c.DNSIP = netip.MustParseAddr("10.33.0.10") },
			[]string{"dns_ip|Unusable address|10.33.0.10 must lie in service_cidr 10.32.0.0/24 and must not be its first address, which is the API server's."}},
		{"DNS taken", func(c *Cluster) { c.DNSIP = netip.MustParseAddr("10.32.0.1") },
			[]string{"dns_ip|Unusable address|10.32.0.1 must lie in service_cidr 10.32.0.0/24 and must not be its first address, which is the API server's."}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := testCluster()
			tt.change(&c)
			if diff := cmp.Diff(tt.want, said(c.CheckNetworks())); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestClusterValidate checks that nothing may be missing when a machine is rendered.
func TestClusterValidate(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Cluster)
		want   string
	}{
		{"good", func(*Cluster) {}, ""},
		{"no node CIDR", func(c *Cluster) { c.NodeCIDRs = nil }, ""},
		{"no DNS", func(c *Cluster) { c.DNSIP = netip.Addr{} }, ""},
		{"bad name", func(c *Cluster) { c.Name = "Demo!" }, `cluster name "Demo!"`},
		{"bad domain", func(c *Cluster) { c.Domain = "" }, "cluster domain"},
		{"overlap", func(c *Cluster) { c.ServiceCIDR = c.PodCIDR }, "service_cidr: service_cidr 10.200.0.0/16 overlaps pod_cidr"},
		{"host bits", func(c *Cluster) { c.PodCIDR = prefixes("10.200.0.1/16")[0] }, "pod_cidr: 10.200.0.1/16 has host bits set; the network is 10.200.0.0/16"},
		{"no pods", func(c *Cluster) { c.PodCIDR = netip.Prefix{} }, "pod_cidr: every cluster needs one"},
		{"IPv6", func(c *Cluster) { c.PodCIDR = prefixes("fd00::/64")[0] }, "is not IPv4"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := testCluster()
			tt.change(&c)
			wantError(t, c.validate(), tt.want)
		})
	}
}

func TestDefaultNetworks(t *testing.T) {
	c := testCluster()
	c.PodCIDR, c.ServiceCIDR, c.DNSIP, c.Domain = DefaultPodCIDR, DefaultServiceCIDR, DefaultDNSIP(DefaultServiceCIDR), DefaultDomain
	if err := c.validate(); err != nil || c.DNSIP.String() != "10.32.0.10" || DefaultDNSIP(netip.Prefix{}).IsValid() {
		t.Errorf("%s: %v", c.DNSIP, err)
	}
}
