package workerpool

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
)

// TestRoutesUntilGone: routes to a node that leaves stay until it has left, unless another node has its network
// or there are to be no routes at all.
func TestRoutesUntilGone(t *testing.T) {
	pool := func(routes map[string]string, targets ...string) (x Pool) {
		if routes != nil {
			x.Spec.Cluster.PodRoutes = map[netip.Prefix]netip.Addr{}
		}
		for pods, via := range routes {
			x.Spec.Cluster.PodRoutes[netip.MustParsePrefix(pods)] = netip.MustParseAddr(via)
		}
		for _, ip := range targets {
			x.Targets = append(x.Targets, fleet.Target{Node: component.Node{Name: "worker-" + ip, PrivateIP: netip.MustParseAddr(ip)}})
		}
		return x
	}
	const a, b, c = "192.0.2.20", "192.0.2.21", "192.0.2.22"
	two := map[string]string{"10.200.0.0/24": a, "10.200.1.0/24": b}
	one := map[string]string{"10.200.1.0/24": b}
	for _, tt := range []struct {
		name        string
		prior, want Pool
		routes      map[string]string // nil: the routes of want
	}{
		{"nobody leaves", pool(two, a, b), pool(two, a, b), nil},
		{"one leaves", pool(two, a, b), pool(one, b), two},
		{"one leaves and keeps its route", pool(two, a, b), pool(two, b), nil},
		{"one of another pool leaves", pool(two, b), pool(one, b), nil},
		{"one leaves its network to another", pool(two, a, b), pool(map[string]string{"10.200.0.0/24": c, "10.200.1.0/24": b}, b, c), nil},
		{"one leaves parts of its network to others", pool(two, a, b), pool(map[string]string{"10.200.0.128/25": c, "10.200.1.0/24": b}, b, c), nil},
		{"no routes any more", pool(two, a, b), pool(nil, b), nil},
		{"none before", pool(nil, a, b), pool(one, b), nil},
	} {
		before := maps.Clone(tt.want.Spec.Cluster.PodRoutes)
		got, kept := tt.want.untilGone(tt.prior, fleet.Leaving(tt.want.Targets, tt.prior.Targets))
		want := before
		if tt.routes != nil {
			want = pool(tt.routes).Spec.Cluster.PodRoutes
		}
		if !maps.Equal(got.Spec.Cluster.PodRoutes, want) || kept != (tt.routes != nil) {
			t.Errorf("%s: %v, kept %t", tt.name, got.Spec.Cluster.PodRoutes, kept)
		}
		if !maps.Equal(tt.want.Spec.Cluster.PodRoutes, before) {
			t.Errorf("%s: the wanted routes became %v", tt.name, tt.want.Spec.Cluster.PodRoutes)
		}
	}
}
