package component

import (
	"net/netip"
	"slices"
	"testing"
)

func TestCheckSameCluster(t *testing.T) {
	for _, tt := range []struct {
		parts []Part
		want  []string
	}{
		{nil, nil},
		{[]Part{{"pki", ""}, {"etcd", ""}}, nil},
		{[]Part{{"pki", "a"}, {"etcd", ""}, {"lb", "a"}}, nil},
		{[]Part{{"pki", "a"}, {"etcd", "b"}}, []string{"etcd|Part of another cluster|etcd belongs to cluster b, but pki belongs to cluster a: use resources of one cluster."}},
		{[]Part{{"pki", "b"}, {"etcd", "a"}, {"lb", "a"}}, []string{"pki|Part of another cluster|pki belongs to cluster b, but etcd belongs to cluster a: use resources of one cluster."}},
	} {
		if got := said(CheckSameCluster(tt.parts...)); !slices.Equal(got, tt.want) {
			t.Errorf("%v: %q, wanted %q", tt.parts, got, tt.want)
		}
	}
}

func TestCheckMembersOf(t *testing.T) {
	ip := netip.MustParseAddr
	a, b, later := Host{Node: Node{Name: "a", PrivateIP: ip("10.0.0.1")}}, Host{Node: Node{Name: "b", PrivateIP: ip("10.0.0.2")}}, Host{Node: Node{Name: "c"}}
	for _, tt := range []struct {
		endpoints []string
		hosts     []Host
		want      []string
	}{
		{nil, []Host{a, b}, nil},
		{[]string{"https://10.0.0.1:2379"}, []Host{a, later}, nil},
		{[]string{"https://10.0.0.1:2379"}, []Host{a, b}, []string{"hosts[1].private_ip|No member of the etcd cluster|" +
			"b with the address 10.0.0.2 is none of the members https://10.0.0.1:2379: only a member can take snapshots."}},
		{nil, []Host{a, a}, []string{"hosts[1].name|Duplicate host|Host 1 has the same name as host 0: a."}},
	} {
		if got := said(CheckMembersOf(tt.endpoints, tt.hosts)); !slices.Equal(got, tt.want) {
			t.Errorf("%v: %q, wanted %q", tt.hosts, got, tt.want)
		}
	}
}

func TestCheckBalanced(t *testing.T) {
	ip := netip.MustParseAddr
	hosts := []Host{{Node: Node{Name: "a", PrivateIP: ip("10.0.0.1")}}, {Node: Node{Name: "b"}}}
	const differ = "lb|Load balancer of other machines|The load balancer's controllers are not this control plane's hosts: "
	const advice = ". Give both the same machines."
	for _, tt := range []struct {
		backends map[string]netip.Addr
		want     []string
	}{
		{nil, nil},
		{map[string]netip.Addr{"a": ip("10.0.0.1"), "b": ip("10.0.0.2")}, nil},
		{map[string]netip.Addr{"a": {}, "b": {}}, nil},
		{map[string]netip.Addr{"a": ip("10.0.0.9"), "b": {}}, []string{differ + "a has the address 10.0.0.1 here and 10.0.0.9 there" + advice}},
		{map[string]netip.Addr{"a": {}, "c": {}}, []string{differ + "b is a host of the control plane only; c is a controller of the load balancer only" + advice}},
	} {
		if got := said(CheckBalanced(tt.backends, hosts)); !slices.Equal(got, tt.want) {
			t.Errorf("%v: %q, wanted %q", tt.backends, got, tt.want)
		}
	}
	if len(CheckBalancer(1, false)) > 0 || len(CheckBalancer(3, true)) > 0 || len(CheckBalancer(2, false)) != 1 {
		t.Error("two controllers, and only without a load balancer, are an error")
	}
}
