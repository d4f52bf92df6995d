package component

import (
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

func networks(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// TestFirewall checks the rules of each role, and that no role has some without being asked.
func TestFirewall(t *testing.T) {
	allowed := networks("198.51.100.0/24", "10.240.0.0/24", "10.240.0.7/32")
	es, cs, ws, ls := etcdSpec(t), controlPlaneSpec(t), workerSpec(t), loadBalancerSpec()
	ls.Port = 7443
	node := controllers[0]
	node.PodCIDR = worker0.PodCIDR
	build := func() map[string]Machine {
		return map[string]Machine{
			"etcd": must(t)(Etcd(es, node)), "controller": must(t)(ControlPlane(cs, node)), "node": must(t)(Workers(ws)(node)), "balancer": must(t)(LoadBalancer(ls, node)),
		}
	}
	for role, m := range build() {
		if i := slices.IndexFunc(m.State.Paths(), func(p string) bool { return strings.Contains(p, "firewall") }); i >= 0 {
			t.Errorf("%s has %s without being asked", role, m.State.Paths()[i])
		}
	}
	es.AllowedCIDRs, cs.AllowedCIDRs, ws.AllowedCIDRs, ls.AllowedCIDRs = allowed, allowed, allowed, allowed
	want := map[string]string{
		"etcd":       "tcp dport { 2379, 2380 } ip saddr != { 10.240.0.0/24, 198.51.100.0/24 } drop",
		"controller": "tcp dport { 6443, 10257, 10259 } ip saddr != { 10.200.0.0/16, 10.240.0.0/24, 198.51.100.0/24 } drop",
		"node":       "tcp dport { 10250, 10256 } ip saddr != { 10.200.0.0/16, 10.240.0.0/24, 198.51.100.0/24 } drop",
		"balancer":   "tcp dport { 7443 } ip saddr != { 10.240.0.0/24, 198.51.100.0/24 } drop",
	}
	before := map[string]string{"etcd": "etcd.service", "controller": "kube-apiserver.service kube-controller-manager.service kube-scheduler.service",
		"node": "kubelet.service kube-proxy.service", "balancer": "haproxy.service"}
	var states []desired.State
	nft, missing := exec.LookPath("nft")
	for role, m := range build() {
		states = append(states, m.State)
		rules := fileOf(t, m, "/etc/k8s-"+role+"-firewall.nft")
		if !strings.Contains(rules, want[role]) {
			t.Errorf("rules of %s:\n%s", role, rules)
		}
		if u := unitOf(t, m, "k8s-"+role+"-firewall.service"); !strings.Contains(u.Check, "inet k8s-"+role+"-firewall") || !slices.Contains(m.State.Packages, "nftables") {
			t.Errorf("unit of %s: %+v, packages %v", role, u, m.State.Packages)
		}
		file := fileOf(t, m, unitPath("k8s-"+role+"-firewall.service"))
		for _, line := range []string{"Before=" + before[role], "PartOf=nftables.service", "ReloadPropagatedFrom=nftables.service", "Restart=on-failure"} {
			if !strings.Contains(file, line+"\n") {
				t.Errorf("unit of %s lacks %s:\n%s", role, line, file)
			}
		}
		if missing != nil {
			continue
		}
		cmd := exec.CommandContext(t.Context(), nft, "--check", "--file", "-")
		cmd.Stdin = strings.NewReader(rules)
		if out, err := cmd.CombinedOutput(); err != nil && !strings.Contains(string(out), "Operation not permitted") {
			t.Errorf("nft: %v\n%s\n%s", err, out, rules)
		}
	}
	if err := desired.Merge(states...).Validate(); err != nil {
		t.Error(err)
	}
	golden(t, "etcd-firewall.nft", []byte(fileOf(t, build()["etcd"], etcdFirewall.path())))
	golden(t, "etcd-firewall.service", []byte(fileOf(t, build()["etcd"], unitPath(etcdFirewall.unit()))))
}

// TestCheckAllowed reports machines that must not be shut out.
func TestCheckAllowed(t *testing.T) {
	hosts := []Host{{Node: controllers[0]}, {Node: Node{Name: "not known yet"}}}
	for _, fine := range [][]netip.Prefix{nil, networks("10.240.0.0/24"), networks("0.0.0.0/0")} {
		if errs := CheckAllowed("allowed_cidrs", fine, hosts, "x"); len(errs) > 0 {
			t.Errorf("%v: %v", fine, errs.Err())
		}
	}
	errs := CheckAllowed("allowed_cidrs", networks("198.51.100.0/24"), hosts, "members reach one another")
	if len(errs) != 1 || errs[0].Field != "allowed_cidrs" || !strings.Contains(errs[0].Err.Error(), "controller-0, 10.240.0.10, is in none of the allowed networks") {
		t.Errorf("got %v", errs.Err())
	}
}
