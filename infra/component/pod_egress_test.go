package component

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"
)

// TestPodEgress checks the rules against the golden file, and that without the machines' subnets
// only traffic to pods and services keeps the pod's address.
func TestPodEgress(t *testing.T) {
	spec := workerSpec(t)
	spec.Cluster.NodeCIDRs = nil
	rules := fileOf(t, must(t)(Worker(spec, worker0)), PodEgressPath)
	if !strings.Contains(rules, "ip daddr != { 10.200.0.0/16, 10.32.0.0/24 } oifname") || strings.Count(rules, "masquerade") != 1 {
		t.Errorf("rules without subnets:\n%s", rules)
	}
	spec.Cluster.NodeCIDRs = []netip.Prefix{netip.MustParsePrefix("172.30.0.0/20")}
	rules = fileOf(t, must(t)(Worker(spec, worker0)), PodEgressPath)
	if !strings.Contains(rules, "ip daddr { 172.30.0.2 } masquerade") {
		t.Errorf("rules of one subnet:\n%s", rules)
	}
	nft, err := exec.LookPath("nft")
	if err != nil {
		t.Skip("nft is not here to read the rules")
	}
	cmd := exec.CommandContext(t.Context(), nft, "--check", "--file", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil && !strings.Contains(string(out), "Operation not permitted") {
		t.Errorf("nft: %v\n%s", err, out)
	}
}
