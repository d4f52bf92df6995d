package elbv2

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// state is what the account owns here, by ARN. It is saved as JSON.
type state struct {
	LoadBalancers map[string]*loadBalancer
	TargetGroups  map[string]*targetGroup
	Listeners     map[string]*listener
	Tags          map[string]map[string]string
	Leaving       map[string]time.Time // interfaces of deleted nodes -> when they go
}

// loadBalancer is a Network Load Balancer.
type loadBalancer struct {
	ARN, Name, ID string
	Scheme        string
	VPC           string
	DNSName       string
	Created       time.Time
	Groups        []string
	Grouped       bool // it was made with security groups
	Nodes         []node
	Attributes    map[string]string // those that were changed
}

// node is a load balancer's part in one subnet.
type node struct {
	Subnet, Zone string
	Interface    string
	Allocation   string // of its Elastic IP
	PrivateIP    string // that was asked for
}

// targetGroup is a target group of instances.
type targetGroup struct {
	ARN, Name, ID string
	VPC           string
	Port          int
	Created       time.Time
	Check         healthCheck
	Targets       []target
	Attributes    map[string]string // those that were changed
}

type healthCheck struct {
	Protocol, Port, Path, Matcher string
	Interval, Timeout             int // seconds
	Healthy, Unhealthy            int // thresholds
}

// target is an instance at a port. Health is what the checks have found, until then initial.
type target struct {
	ID           string
	Port         int
	Registered   time.Time
	Deregistered time.Time // zero if it is not
	Health       string
	Checked      bool // at least once
}

type listener struct {
	ARN, ID      string
	LoadBalancer string // ARN
	Port         int
	TargetGroup  string // ARN
}

func decodeState(raw []byte) (*state, error) {
	st := &state{
		LoadBalancers: map[string]*loadBalancer{}, TargetGroups: map[string]*targetGroup{}, Listeners: map[string]*listener{},
		Tags: map[string]map[string]string{}, Leaving: map[string]time.Time{},
	}
	if len(raw) == 0 {
		return st, nil
	}
	if err := json.Unmarshal(raw, st); err != nil {
		return nil, fmt.Errorf("decoding the state of load balancers: %w", err)
	}
	return st, nil
}

// sorted returns the values of m ordered by key.
func sorted[T any](m map[string]*T) []*T {
	out := make([]*T, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[k])
	}
	return out
}

func (st *state) leaving() []string { return slices.Sorted(maps.Keys(st.Leaving)) }

// listenersOf returns the listeners of a load balancer, ordered by port.
func (st *state) listenersOf(balancer string) []*listener {
	var out []*listener
	for _, l := range sorted(st.Listeners) {
		if l.LoadBalancer == balancer {
			out = append(out, l)
		}
	}
	slices.SortStableFunc(out, func(a, b *listener) int { return cmp.Compare(a.Port, b.Port) })
	return out
}

// balancerOf returns the load balancer that uses a target group; nil if none does.
func (st *state) balancerOf(group string) *loadBalancer {
	for _, l := range sorted(st.Listeners) {
		if l.TargetGroup == group {
			return st.LoadBalancers[l.LoadBalancer]
		}
	}
	return nil
}

func (b *loadBalancer) interfaces() []string {
	var out []string
	for _, n := range b.Nodes {
		out = append(out, n.Interface)
	}
	return out
}

// nodeIn returns the node in a zone.
func (b *loadBalancer) nodeIn(zone string) (node, bool) {
	i := slices.IndexFunc(b.Nodes, func(n node) bool { return n.Zone == zone })
	if i < 0 {
		return node{}, false
	}
	return b.Nodes[i], true
}

func (b *loadBalancer) attribute(key string) string {
	return cmp.Or(b.Attributes[key], loadBalancerAttributes[key].value)
}

func (g *targetGroup) attribute(key string) string {
	return cmp.Or(g.Attributes[key], targetGroupAttributes[key].value)
}

// crossZone reports whether the nodes of a load balancer forward to targets of a group in other zones.
func (b *loadBalancer) crossZone(g *targetGroup) bool {
	own := g.attribute(crossZoneKey)
	return own == "true" || own != "false" && b.attribute(crossZoneKey) == "true"
}
