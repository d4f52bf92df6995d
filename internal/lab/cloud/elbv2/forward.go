package elbv2

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/network"
)

// Nodes returns what each node forwards, by its interface. A node of a load balancer that is not active
// is not in it. A node forwards to healthy targets, to all if none is healthy, and to those of other zones
// only across zones.
func (s *Service) Nodes() map[string]network.Balancer {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &tx{s: s, st: s.st, now: s.cfg.Clock.Now()}
	out := map[string]network.Balancer{}
	for _, b := range s.st.LoadBalancers {
		if b.state(t.now) != stateActive {
			continue
		}
		for _, n := range b.Nodes {
			var forwards network.Balancer
			for _, l := range s.st.listenersOf(b.ARN) {
				g := s.st.TargetGroups[l.TargetGroup]
				targets, _ := t.targetsOf(b, g, n)
				forwards.Listeners = append(forwards.Listeners, network.Listener{
					Port: l.Port, Targets: targets, PreserveClient: g.attribute(preserveClientKey) == "true",
				})
			}
			out[n.Interface] = forwards
		}
	}
	return out
}

// targetsOf returns where a node forwards to, sorted, and whether those targets are healthy.
func (t *tx) targetsOf(b *loadBalancer, g *targetGroup, n node) (targets []netip.AddrPort, healthy bool) {
	var all []netip.AddrPort
	for _, x := range g.Targets {
		i, ok := t.s.cfg.Compute.Instance(x.ID)
		if !ok || i.State != instanceRunning || !x.Deregistered.IsZero() || i.Zone != n.Zone && !b.crossZone(g) {
			continue
		}
		at := netip.AddrPortFrom(i.PrivateIP, uint16(x.Port))
		all = append(all, at)
		if x.Health == healthHealthy {
			targets = append(targets, at)
		}
	}
	if healthy = len(targets) > 0; !healthy {
		targets = all
	}
	slices.SortFunc(targets, netip.AddrPort.Compare)
	return targets, healthy
}

// Resolve returns the addresses behind the name of a load balancer: the public ones of its nodes, or the
// private ones if it is internal. It leaves out the nodes without healthy targets, unless no node has
// some. A zone before the name stands for the node of that zone.
func (s *Service) Resolve(name string) ([]netip.Addr, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &tx{s: s, st: s.st, now: s.cfg.Clock.Now()}
	for _, b := range s.st.LoadBalancers {
		own := strings.ToLower(b.DNSName)
		for _, n := range b.Nodes {
			if name == n.Zone+"."+own {
				return []netip.Addr{t.addressOf(b, n)}, true
			}
		}
		if name == own {
			return t.addressesOf(b), true
		}
	}
	return nil, false
}

// PublicNames returns the names of the load balancers that face the internet and forward, each with its
// addresses as Resolve returns them.
func (s *Service) PublicNames() map[string][]netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &tx{s: s, st: s.st, now: s.cfg.Clock.Now()}
	out := map[string][]netip.Addr{}
	for _, b := range s.st.LoadBalancers {
		if b.Scheme != "internal" && b.state(t.now) == stateActive {
			out[strings.ToLower(b.DNSName)] = t.addressesOf(b)
		}
	}
	return out
}

func (t *tx) addressesOf(b *loadBalancer) (out []netip.Addr) {
	healthy := slices.DeleteFunc(slices.Clone(b.Nodes), func(n node) bool { return !t.healthyNode(b, n) })
	if len(healthy) == 0 {
		healthy = b.Nodes
	}
	for _, n := range healthy {
		out = append(out, t.addressOf(b, n))
	}
	return out
}

func (t *tx) addressOf(b *loadBalancer, n node) netip.Addr {
	a := t.s.cfg.Compute.NodeAddresses(n.Interface)
	if b.Scheme == "internal" {
		return a.Private
	}
	return a.Public
}

// healthyNode reports whether a node has a healthy target for each listener.
func (t *tx) healthyNode(b *loadBalancer, n node) bool {
	for _, l := range t.st.listenersOf(b.ARN) {
		if _, healthy := t.targetsOf(b, t.st.TargetGroups[l.TargetGroup], n); !healthy {
			return false
		}
	}
	return true
}

// Overview is one line for people about a load balancer or a target group.
type Overview struct {
	Name, ARN, Detail, VPC string
}

// Overview returns every load balancer and every target group.
func (s *Service) Overview() (balancers, groups []Overview) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &tx{s: s, st: s.st, now: s.cfg.Clock.Now()}
	for _, b := range sorted(s.st.LoadBalancers) {
		balancers = append(balancers, Overview{b.Name, b.ARN, b.state(t.now) + ", " + b.Scheme, b.VPC})
	}
	for _, g := range sorted(s.st.TargetGroups) {
		var words []string
		for _, x := range g.Targets {
			if h := t.health(g, x); h.State != "" {
				words = append(words, x.ID+" "+h.State)
			}
		}
		groups = append(groups, Overview{g.Name, g.ARN, strings.Join(words, ", "), g.VPC})
	}
	return balancers, groups
}
