package component

import (
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestPodEgress checks the rules against the golden file, and that without the machines' subnets
// only traffic to pods and services keeps the pod's address.
func TestPodEgress(t *testing.T) {
	spec := workerSpec(t)
	spec.Cluster.NodeCIDRs = nil
	rules := fileOf(t, must(t)(Workers(spec)(worker0)), PodEgressPath)
	if !strings.Contains(rules, "ip daddr != { 10.200.0.0/16, 10.32.0.0/24 } oifname") || strings.Count(rules, "masquerade") != 1 {
		t.Errorf("rules without subnets:\n%s", rules)
	}
	spec.Cluster.NodeCIDRs = []netip.Prefix{netip.MustParsePrefix("172.30.0.0/20")}
	rules = fileOf(t, must(t)(Workers(spec)(worker0)), PodEgressPath)
	if !strings.Contains(rules, "ip daddr { 172.30.0.2 } masquerade") {
		t.Errorf("rules of one subnet:\n%s", rules)
	}
	checkRules(t, rules)
}

// TestPodEgressWithRoutes checks that with routes on the machines only traffic to nodes keeps the pod's
// address: the router of a network at home, which is also its DNS server, has no route to pods.
func TestPodEgressWithRoutes(t *testing.T) {
	spec := workerSpec(t)
	spec.Cluster = routedCluster()
	spec.Cluster.PodRoutes[netip.MustParsePrefix("10.200.2.0/24")] = netip.MustParseAddr("10.240.0.20")
	m := must(t)(Workers(spec)(worker0))
	rules := fileOf(t, m, PodEgressPath)
	if !strings.Contains(rules, "ip daddr != { 10.200.0.0/16, 10.32.0.0/24, 10.240.0.20, 10.240.0.21 } oifname") || strings.Count(rules, "masquerade") != 1 {
		t.Errorf("rules with routes:\n%s", rules)
	}
	if u := unitOf(t, m, PodEgressUnit); !strings.Contains(u.Check, "'masquerade fully-random=1' 'drop=1'") {
		t.Errorf("check %s", u.Check)
	}
	checkRules(t, rules)
	for name, tt := range map[string]struct {
		routes  map[netip.Prefix]netip.Addr
		subnets []netip.Prefix
	}{
		"routes":                      {testRoutes, prefixes("10.240.0.0/24", "10.240.1.0/24")},
		"routes, no subnets":          {testRoutes, nil},
		"routes of nobody":            {map[netip.Prefix]netip.Addr{}, prefixes("10.240.0.0/24")},
		"routes of nobody, no subnet": {map[netip.Prefix]netip.Addr{}, nil},
		"no routes":                   {nil, prefixes("10.240.0.0/24", "10.240.1.0/24")},
		"nothing":                     {nil, nil},
	} {
		spec.Cluster.PodRoutes, spec.Cluster.NodeCIDRs = tt.routes, tt.subnets
		rules := fileOf(t, must(t)(Workers(spec)(worker0)), PodEgressPath)
		checkRules(t, rules)
		if got := nodeCIDRsOf(Found{Files: map[string][]byte{PodEgressPath: []byte(rules)}}); !slices.Equal(got, tt.subnets) {
			t.Errorf("%s: %v are read back from\n%s", name, got, rules)
		}
	}
}

// checkRules lets nft read rules, if it is here.
func checkRules(t *testing.T, rules string) {
	t.Helper()
	nft, err := exec.LookPath("nft")
	if err != nil {
		return
	}
	cmd := exec.CommandContext(t.Context(), nft, "--check", "--file", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil && !strings.Contains(string(out), "Operation not permitted") {
		t.Errorf("nft: %v\n%s", err, out)
	}
}
