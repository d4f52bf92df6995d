package addressplan_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/addressplan"
)

func TestMachine(t *testing.T) {
	for _, tt := range []struct {
		subnet, role string
		index        int
		want, err    string
	}{
		{"10.240.0.0/24", "lb", 0, "10.240.0.4", ""},
		{"10.240.0.0/24", "lb", 5, "10.240.0.9", ""},
		{"10.240.0.0/24", "lb", 6, "", "index 6: 10.240.0.0/24 has addresses for 6 machines of role lb, 0 to 5"},
		{"10.240.0.0/24", "controller", 0, "10.240.0.10", ""},
		{"10.240.0.0/24", "controller", 4, "10.240.0.14", ""},
		{"10.240.0.0/24", "controller", 5, "", "0 to 4"},
		{"10.240.0.0/24", "etcd", 0, "10.240.0.15", ""},
		{"10.240.0.0/24", "etcd", 5, "", "0 to 4"},
		{"10.240.0.0/24", "worker", 0, "10.240.0.20", ""},
		{"10.240.0.0/24", "worker", 234, "10.240.0.254", ""},
		{"10.240.0.0/24", "worker", 235, "", "for 235 machines of role worker, 0 to 234"}, // 10.240.0.255 is EC2's
		{"10.240.0.0/16", "worker", 1000, "10.240.3.252", ""},
		{"10.240.0.16/28", "worker", 0, "", "10.240.0.16/28 is too small for a machine of role worker, whose addresses begin with number 20"},
		{"10.240.0.16/28", "controller", 4, "10.240.0.30", ""},
		{"10.240.0.16/28", "controller", 5, "", "0 to 4"},
		{"0.0.0.0/0", "worker", 1, "0.0.0.21", ""},
		{"10.240.0.0/24", "worker", -1, "", "index -1"},
		{"10.240.0.0/24", "master", 0, "", `role "master": want lb, controller, etcd, worker`},
		{"10.240.0.7/24", "worker", 0, "", "the network is 10.240.0.0/24"},
		{"2001:db8::/64", "worker", 0, "", "IPv4"},
	} {
		got, err := addressplan.Machine(netip.MustParsePrefix(tt.subnet), tt.role, tt.index)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s %s %d: %v, want an error with %q", tt.subnet, tt.role, tt.index, err, tt.err)
			}
			continue
		}
		if err != nil || got.String() != tt.want {
			t.Errorf("%s %s %d: %s, %v; want %s", tt.subnet, tt.role, tt.index, got, err, tt.want)
		}
	}
	if _, err := addressplan.Machine(netip.Prefix{}, "worker", 0); err == nil {
		t.Error("no network has addresses")
	}
}

// TestNoneTwice: all addresses of all roles of a subnet are different, lie in it and are not EC2's.
func TestNoneTwice(t *testing.T) {
	subnet := netip.MustParsePrefix("10.1.2.0/25")
	seen := []string{"10.1.2.0", "10.1.2.1", "10.1.2.2", "10.1.2.3", "10.1.2.127"}
	for _, role := range addressplan.Roles() {
		for i := 0; ; i++ {
			a, err := addressplan.Machine(subnet, role, i)
			if err != nil {
				break
			}
			if !subnet.Contains(a) || slices.Contains(seen, a.String()) {
				t.Errorf("%s %d: %s", role, i, a)
			}
			seen = append(seen, a.String())
		}
	}
	if len(seen) != 128 {
		t.Errorf("%d addresses, want all 128", len(seen))
	}
}

func TestPodCIDR(t *testing.T) {
	for _, tt := range []struct {
		pods      string
		index     int
		want, err string
	}{
		{"10.200.0.0/16", 0, "10.200.0.0/24", ""},
		{"10.200.0.0/16", 255, "10.200.255.0/24", ""},
		{"10.200.0.0/16", 256, "", "index 256: 10.200.0.0/16 has networks for 256 nodes, 0 to 255"},
		{"10.200.0.0/16", -1, "", "index -1"},
		{"10.0.0.0/8", 256, "10.1.0.0/24", ""},
		{"10.200.3.0/24", 0, "10.200.3.0/24", ""},
		{"10.200.3.0/25", 0, "", "smaller than the /24 of one node"},
		{"10.200.3.1/16", 0, "", "host bits"},
	} {
		got, err := addressplan.PodCIDR(netip.MustParsePrefix(tt.pods), tt.index)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s %d: %v, want an error with %q", tt.pods, tt.index, err, tt.err)
			}
			continue
		}
		if err != nil || got.String() != tt.want {
			t.Errorf("%s %d: %s, %v; want %s", tt.pods, tt.index, got, err, tt.want)
		}
	}
}

func TestProblems(t *testing.T) {
	networks := func(of map[string][]string) addressplan.Networks {
		out := addressplan.Networks{}
		for name, texts := range of {
			for _, text := range texts {
				out[name] = append(out[name], netip.MustParsePrefix(text))
			}
		}
		return out
	}
	for _, tt := range []struct {
		of   map[string][]string
		want []string
	}{
		{nil, []string{}},
		{map[string][]string{"nodes": {"10.240.0.0/24", "10.240.1.0/24"}, "pods": {"10.200.0.0/16"}, "services": {"10.32.0.0/20"}}, []string{}},
		{map[string][]string{"pods": {"10.200.0.0/16"}, "office": {"10.0.0.0/8"}}, []string{"office 10.0.0.0/8 overlaps pods 10.200.0.0/16."}},
		{map[string][]string{"nodes": {"10.240.0.0/24", "10.240.0.128/25"}}, []string{"nodes 10.240.0.0/24 overlaps nodes 10.240.0.128/25."}},
		{map[string][]string{"pods": {"172.16.0.0/12"}, "services": {"169.254.20.0/24"}}, []string{
			"pods 172.16.0.0/12 overlaps 172.17.0.0/16 of Docker's default bridge.",
			"services 169.254.20.0/24 overlaps 169.254.0.0/16 of link-local addresses, where EC2 has its resolver, 169.254.169.253, and its metadata, 169.254.169.254.",
		}},
		{map[string][]string{"pods": {"127.0.0.0/16"}}, []string{
			"pods 127.0.0.0/16 overlaps 127.0.0.0/8 of the loopback interface, where systemd-resolved has its resolver, 127.0.0.53.",
		}},
	} {
		if d := cmp.Diff(tt.want, networks(tt.of).Problems()); d != "" {
			t.Errorf("%v: %s", tt.of, d)
		}
	}
}
