package component

import (
	"net/netip"
	"testing"
)

func TestCIDR(t *testing.T) {
	for _, tt := range []struct {
		form       CIDR
		cidr, want string
	}{
		{ClusterCIDR, "10.240.0.0/24", ""},
		{ClusterCIDR, "10.240.0.0/28", ""},
		{ClusterCIDR, "10.0.0.0/8", ""},
		{ClusterCIDR, "10.240.0.0/30", "10.240.0.0/30 has a prefix length of /30; it must lie between /8 and /28"},
		{HostPodCIDR, "10.240.0.0/30", ""},
		{ClusterCIDR, "10.0.0.0/7", "10.0.0.0/7 has a prefix length of /7; it must lie between /8 and /28"},
		{ClusterCIDR, "10.240.0.7/24", "10.240.0.7/24 has host bits set; the network is 10.240.0.0/24"},
		{AnyCIDR, "0.0.0.0/0", ""},
		{AnyCIDR, "1.2.3.4/0", "1.2.3.4/0 has host bits set; the network is 0.0.0.0/0"},
		{AnyCIDR, "2001:db8::/32", "2001:db8::/32 is not IPv4"},
	} {
		got := ""
		if err := tt.form.Check(netip.MustParsePrefix(tt.cidr)); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: got %q, wanted %q", tt.cidr, got, tt.want)
		}
	}
	if got := ClusterCIDR.String(); got != "an IPv4 network in CIDR notation without host bits, /8 to /28" {
		t.Errorf("got %q", got)
	}
}
