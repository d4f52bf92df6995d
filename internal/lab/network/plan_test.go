package network

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPlanRouter(t *testing.T) {
	private := clusterVPC()
	private.InternetGateway = false
	for name, vpc := range map[string]VPC{"cluster.plan": clusterVPC(), "private.plan": private} {
		t.Run(name, func(t *testing.T) {
			plan := planRouter(vpc)
			var b strings.Builder
			for _, addr := range plan.Addresses {
				fmt.Fprintln(&b, "address", addr)
			}
			for _, l := range plan.Links {
				fmt.Fprintf(&b, "link %s (%s) gateway %s\n", l.Name, l.alias(), l.Gateway)
			}
			for _, r := range plan.Rules {
				fmt.Fprintln(&b, "rule", r)
			}
			for _, r := range plan.Routes {
				fmt.Fprintln(&b, "route", r)
			}
			golden(t, name, b.String())
		})
	}
}

func TestPlanInternet(t *testing.T) {
	var got []string
	for _, r := range planInternet(testSlice(t), Config{VPCs: []VPC{clusterVPC()}}) {
		got = append(got, r.String())
	}
	want := []string{
		"203.0.113.1/32 dev operator src 203.0.113.2",
		"203.0.113.3/32 via 169.254.255.2 dev " + shortName(clusterVPC().ID),
		"blackhole 0.0.0.0/0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTableNumbersStay(t *testing.T) {
	vpc := clusterVPC()
	before := vpc.tableNumbers()["rtb-main"]
	for n := range 50 {
		vpc.Subnets = append(vpc.Subnets, Subnet{ID: fmt.Sprintf("subnet-%d", n), RouteTableID: fmt.Sprintf("rtb-%d", n)})
	}
	if after := vpc.tableNumbers()["rtb-main"]; after != before {
		t.Errorf("table number went from %d to %d when others came", before, after)
	}
	seen := map[int]string{}
	for id, number := range vpc.tableNumbers() {
		if other, taken := seen[number]; taken {
			t.Errorf("%s and %s share table %d", id, other, number)
		}
		seen[number] = id
	}
}
