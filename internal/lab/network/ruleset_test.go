package network

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestRenderRuleset(t *testing.T) {
	private := clusterVPC()
	private.InternetGateway = false
	for name, vpc := range map[string]VPC{
		"cluster.nft": clusterVPC(),
		"private.nft": private,
		"nat.nft":     natVPC(netip.MustParseAddr("203.0.113.3")),
		"empty.nft":   {ID: "vpc-1", CIDR: netip.MustParsePrefix("10.0.0.0/16")},
	} {
		t.Run(name, func(t *testing.T) { golden(t, name, renderRuleset(vpc)) })
	}
}

func TestRenderNATGateway(t *testing.T) {
	golden(t, "natgateway.nft", renderNATGateway(netip.MustParseAddr(ipNAT)))
}

func TestRenderRulesetIgnoresOrder(t *testing.T) {
	shuffled := clusterVPC()
	i, g := shuffled.Interfaces, shuffled.SecurityGroups
	i[0], i[2] = i[2], i[0]
	g[0], g[1] = g[1], g[0]
	if diff := cmp.Diff(renderRuleset(clusterVPC()), renderRuleset(shuffled)); diff != "" {
		t.Error(diff)
	}
	if i[0].ID != "eni-worker-1" {
		t.Error("rendering reordered the caller's interfaces")
	}
}
