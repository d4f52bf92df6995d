package workerpool

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
)

// untilGone returns the pool with the routes of prior to the pods of leaving nodes, and whether there are any:
// other nodes reach these pods until they are evicted. A pod network that is in use again keeps its new route.
func (x Pool) untilGone(prior Pool, leavers []fleet.Target) (Pool, bool) {
	routes := maps.Clone(x.Spec.Cluster.PodRoutes)
	if routes == nil {
		return x, false
	}
	for pods, via := range prior.Spec.Cluster.PodRoutes {
		leaves := slices.ContainsFunc(leavers, func(t fleet.Target) bool { return t.Node.PrivateIP == via })
		used := slices.ContainsFunc(slices.Collect(maps.Keys(routes)), func(p netip.Prefix) bool { return p.Overlaps(pods) })
		if leaves && !used {
			routes[pods] = via
		}
	}
	kept := len(routes) > len(x.Spec.Cluster.PodRoutes)
	x.Spec.Cluster.PodRoutes = routes
	return x, kept
}

// wantInstead makes a pool with other settings the wanted one.
func (o *operation) wantInstead(x Pool) error {
	want := component.Workers(x.Spec)
	for _, m := range o.Machines {
		var err error
		if m.Want, err = want(m.Node); err != nil {
			return fmt.Errorf("%s on %s: %w", name, m.Name(), err)
		}
	}
	o.want = x
	return nil
}
