package component

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// Rules for parts that must belong to one cluster. Unknown values are empty and pass.

// Part is something that a configuration joins to a cluster.
type Part struct {
	Field   string // "pki", "lb"
	Cluster string // the name of its cluster
}

// CheckSameCluster reports the parts of another cluster than most parts, on their fields. If there
// are as many of each, the first part counts.
func CheckSameCluster(parts ...Part) (errs invalid.Fields) {
	votes, own := map[string]int{}, Part{}
	for _, p := range parts {
		if p.Cluster != "" {
			votes[p.Cluster]++
		}
	}
	for _, p := range parts {
		if votes[p.Cluster] > votes[own.Cluster] {
			own = p
		}
	}
	for _, p := range parts {
		if p.Cluster != "" && p.Cluster != own.Cluster {
			errs.Say(p.Field, "Part of another cluster", "%s belongs to cluster %s, but %s belongs to cluster %s: use resources of one cluster.",
				p.Field, p.Cluster, own.Field, own.Cluster)
		}
	}
	return errs
}

// CheckBalanced reports a load balancer that does not balance exactly the controllers of the
// control plane. backends are its controllers by name, with the zero address where it is not known;
// nil if nothing is known of them.
func CheckBalanced(backends map[string]netip.Addr, controllers []Host) (errs invalid.Fields) {
	if backends == nil {
		return nil
	}
	const problem = "Load balancer of other machines"
	own := map[string]bool{}
	var differ []string
	for _, h := range controllers {
		own[h.Name] = true
		switch ip, ok := backends[h.Name]; {
		case !ok:
			differ = append(differ, fmt.Sprintf("%s is a host of the control plane only", h.Name))
		case ip.IsValid() && h.PrivateIP.IsValid() && ip != h.PrivateIP:
			differ = append(differ, fmt.Sprintf("%s has the address %s here and %s there", h.Name, h.PrivateIP, ip))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(backends)) {
		if !own[name] {
			differ = append(differ, fmt.Sprintf("%s is a controller of the load balancer only", name))
		}
	}
	if len(differ) > 0 {
		errs.Say("lb", problem, "The load balancer's controllers are not this control plane's hosts: %s. Give both the same machines.", strings.Join(differ, "; "))
	}
	return errs
}

// CheckBalancer reports a control plane of several hosts without a load balancer: nothing would
// spread requests, and the first host would be the address of the cluster.
func CheckBalancer(hosts int, balanced bool) (errs invalid.Fields) {
	if hosts > 1 && !balanced {
		errs.Say("lb", "Missing load balancer", "%d controllers need a load balancer: set lb to the ref of a k8s_lb. A single controller needs none: its address is then the address of the cluster.", hosts)
	}
	return errs
}
