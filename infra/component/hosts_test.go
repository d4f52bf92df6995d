package component

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

func TestCheckHosts(t *testing.T) {
	host := func(name, private, address, pods string) Host {
		h := Host{Node: Node{Name: name}, Address: address}
		h.PrivateIP, _ = netip.ParseAddr(private)
		h.PodCIDR, _ = netip.ParsePrefix(pods)
		return h
	}
	a, b := host("a", "10.240.0.1", "203.0.113.1", "10.200.0.0/24"), host("b", "10.240.0.2", "203.0.113.2", "10.200.1.0/24")
	worker := func(cni string, nodes ...string) func([]Host) invalid.Fields {
		return WorkerSpec{Cluster: Cluster{PodCIDR: DefaultPodCIDR, NodeCIDRs: prefixes(nodes...)}, CNI: CNISpec{Network: cni}}.CheckHosts
	}
	most := func(pods int, cni string) func([]Host) invalid.Fields {
		return WorkerSpec{CNI: CNISpec{Network: cni}, Kubelet: KubeletSpec{Config: map[string]any{"maxPods": pods}}}.CheckMaxPods
	}
	plain := func(hosts []Host) invalid.Fields { return checkHosts("controllers", hosts) }
	for _, tt := range []struct {
		name  string
		check func([]Host) invalid.Fields
		hosts []Host
		want  []string
	}{
		{"two", plain, []Host{a, b}, nil},
		{"none", plain, nil, nil},
		{"nothing known", plain, []Host{{}, {}}, nil},
		{"same name", plain, []Host{a, host("a", "10.240.0.2", "", "")}, []string{"controllers[1].name|Duplicate host|Host 1 has the same name as host 0: a."}},
		{"same private address", plain, []Host{a, b, host("c", "10.240.0.2", "203.0.113.2", "")},
			[]string{"controllers[2].private_ip|Duplicate host|Host 2 has the same private_ip as host 1: 10.240.0.2."}},
		{"same address", plain, []Host{a, host("b", "", "203.0.113.1", "")}, []string{"controllers[1].address|Duplicate host|Host 1 has the same address as host 0: 203.0.113.1."}},
		{"an address for a name", plain, []Host{host("203.0.113.1", "", "", ""), host("b", "", "203.0.113.1", "")}, nil},

		{"controllers in the subnets", ControlPlaneSpec{Cluster: Cluster{NodeCIDRs: prefixes("10.240.0.0/24")}}.CheckHosts, []Host{a, b, {}}, nil},
		{"controllers in subnets that are not known", ControlPlaneSpec{}.CheckHosts, []Host{a, b}, nil},
		{"a controller elsewhere", ControlPlaneSpec{Cluster: Cluster{NodeCIDRs: prefixes("10.240.0.0/31", "10.241.0.0/24")}}.CheckHosts, []Host{a, b},
			[]string{"hosts[1].private_ip|Machine outside the subnets of the machines|10.240.0.2 is in none of the control plane's node_cidrs, 10.240.0.0/31, 10.241.0.0/24: add the subnet that b is in."}},

		{"workers", worker(CNIBridge, "10.240.0.0/24"), []Host{a, b}, nil},
		{"a worker elsewhere", worker(CNINone, "10.241.0.0/24"), []Host{a},
			[]string{"hosts[0].private_ip|Machine outside the subnets of the machines|10.240.0.1 is in none of the control plane's node_cidrs, 10.241.0.0/24: add the subnet that a is in."}},
		{"a worker without pods", worker(CNIBridge), []Host{host("a", "", "", "")},
			[]string{"hosts[0].pod_cidr|Worker without a pod network|a needs pod_cidr, a part of the cluster's 10.200.0.0/16 that no other worker has: set it on its k8s_machine.|missing"}},
		{"without pods, whose network the provider does not make", worker(CNINone), []Host{host("a", "", "", "")}, nil},
		{"without pods, whose network is not known", worker(""), []Host{host("a", "", "", "")}, nil},
		{"pods outside", worker(CNIBridge), []Host{host("a", "", "", "10.201.0.0/24")},
			[]string{"hosts[0].pod_cidr|Pod network outside the cluster's|pod_cidr 10.201.0.0/24 of a is outside the cluster's pod_cidr 10.200.0.0/16."}},
		{"all pods on one", worker(CNIBridge), []Host{host("a", "", "", "10.200.0.0/16")},
			[]string{"hosts[0].pod_cidr|Pod network outside the cluster's|pod_cidr 10.200.0.0/16 of a is outside the cluster's pod_cidr 10.200.0.0/16."}},
		{"pods of a cluster that is not known", WorkerSpec{}.CheckHosts, []Host{host("a", "", "", "10.201.0.0/24")}, nil},
		{"pods overlap", worker(CNIBridge), []Host{a, b, host("c", "", "", "10.200.1.0/25")},
			[]string{"hosts[2].pod_cidr|Overlapping pod networks|pod_cidr 10.200.1.0/25 of c overlaps 10.200.1.0/24 of b."}},
		{"more pods than addresses", most(14, CNIBridge), []Host{a, host("b", "", "", "10.200.1.0/28")},
			[]string{"kubelet_config|More pods than addresses|kubelet_config.maxPods: 14 is more than the 13 addresses for pods in pod_cidr 10.200.1.0/28 of b. Further pods never start there, unless they have the " +
				"machine's network (hostNetwork). Without maxPods each node takes as many pods as it has addresses, and at most 110."}},
		{"as many pods as addresses", most(13, CNIBridge), []Host{a, host("b", "", "", "10.200.1.0/28")}, nil},
		{"pods whose network the provider does not make", most(500, CNINone), []Host{a}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, said(tt.check(tt.hosts))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCheckMembers(t *testing.T) {
	for n := range 8 {
		if got := CheckMembers(n); (len(got) == 0) != (n%2 == 1) {
			t.Errorf("%d members: %v", n, said(got))
		}
	}
	want := []string{"hosts|Even number of etcd members|4 etcd members tolerate no more failures than 3, and a split leaves neither half a majority: use 1, 3, 5 or 7."}
	if diff := cmp.Diff(want, said(CheckMembers(4))); diff != "" {
		t.Error(diff)
	}
}
