package network

import (
	"net/netip"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

func TestRanges(t *testing.T) {
	prefix := func(s string) netip.Prefix { p, _ := netip.ParsePrefix(s); return p }
	addr := netip.MustParseAddr
	subnets := []netip.Prefix{prefix("10.240.0.0/24"), prefix("10.240.1.0/28")}
	for _, tt := range []struct {
		name string
		errs invalid.Fields
		want string // field, problem and error
	}{
		{"pods outside", CheckPodCIDR(prefix("10.200.0.0/24"), prefix("10.240.0.0/16")), ""},
		{"pods inside", CheckPodCIDR(prefix("10.240.9.0/24"), prefix("10.240.0.0/16")),
			"pod_cidr|Overlapping networks|pod_cidr 10.240.9.0/24 overlaps the VPC's 10.240.0.0/16: EC2 accepts no routes to machines within its own network."},
		{"pods not known", CheckPodCIDR(netip.Prefix{}, prefix("10.240.0.0/16")), ""},
		{"address", CheckPrivateIP(addr("10.240.1.4"), subnets), ""},
		{"address in none", CheckPrivateIP(addr("10.240.2.4"), subnets), "private_ip|Unusable private address|10.240.2.4 does not lie within 10.240.0.0/24, 10.240.1.0/28"},
		{"address kept", CheckPrivateIP(addr("10.240.1.3"), subnets), "private_ip|Unusable private address|10.240.1.3 is reserved by AWS: the first four addresses of 10.240.1.0/28 and the last one cannot be used"},
		{"address not known", CheckPrivateIP(netip.Addr{}, subnets), ""},
		{"subnet of an address not known", CheckPrivateIP(addr("10.240.1.4"), []netip.Prefix{{}}), ""},
		{"last address", CheckPrivateIP(addr("10.240.1.15"), subnets), "private_ip|Unusable private address|10.240.1.15 is reserved by AWS: the first four addresses of 10.240.1.0/28 and the last one cannot be used"},
	} {
		got := ""
		for _, e := range tt.errs {
			got += e.Field + "|" + e.Problem + "|" + e.Err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: got %q, wanted %q", tt.name, got, tt.want)
		}
	}
}
