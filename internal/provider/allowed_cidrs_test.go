package provider

import (
	"fmt"
	"strings"
	"testing"
)

// TestAllowedCIDRs checks the rules that each role gets, who must not be shut out, and how they end.
func TestAllowedCIDRs(t *testing.T) {
	t.Parallel()
	c := newRoles(t)
	lb := values{"cluster": "demo", "host": c.pool["hosts"].([]any)[0], "controllers": c.etcd["hosts"], "pki": c.etcd["pki"]}
	for resource, test := range map[string]struct {
		config values
		file   string
	}{
		"k8s_etcd_cluster":  {c.etcd, "controller-0:/etc/k8s-etcd-firewall.nft"},
		"k8s_control_plane": {c.controlPlane, "controller-0:/etc/k8s-controller-firewall.nft"},
		"k8s_worker_pool":   {c.pool, "worker-0:/etc/k8s-node-firewall.nft"},
		"k8s_lb":            {lb, "worker-0:/etc/k8s-balancer-firewall.nft"},
	} {
		allowed := with(test.config, values{"allowed_cidrs": []any{"10.240.0.0/24"}})
		i := c.applied(resource, allowed)
		if i.files()[test.file] == nil {
			t.Errorf("%s: no %s in %v", resource, test.file, i.files())
		}
		if ch := i.plan(allowed); !i.empty(ch) {
			t.Errorf("%s: the second plan is not empty: %s", resource, i.differences(ch))
		}
		without := i.plan(test.config)
		planned, _ := plain(without.planned).(values)
		if files, _ := planned["files"].(values); without.failure() != "" || len(without.replace) > 0 || files == nil || files[test.file] != nil {
			t.Errorf("%s without allowed_cidrs: %q, replaces %v, files %v", resource, without.failure(), without.replace, planned["files"])
		}
		if got := i.plan(with(test.config, values{"allowed_cidrs": []any{"0.0.0.0/0"}})).failure(); got != "" {
			t.Errorf("%s for everybody: %q", resource, got)
		}
	}
	if got := c.instance("k8s_etcd_cluster").plan(with(c.etcd, values{"allowed_cidrs": []any{"198.51.100.0/24"}})).failure(); !strings.HasPrefix(got, `"allowed_cidrs"`) ||
		!strings.Contains(got, "controller-0, 10.240.0.10, is in none of the allowed networks") {
		t.Errorf("a member that is shut out: %q", got)
	}
	shut := []any{"198.51.100.0/24"}
	etcd, balancer := c.controlPlane["etcd"].(values), c.controlPlane["lb"].(values)
	machines := values{"machines": values{"lb-0": "10.240.0.30", "lb-1": "198.51.100.31"}}
	for what, test := range map[string]struct {
		more values
		want string
	}{
		"etcd shuts a controller out":   {values{"etcd": with(etcd, values{"allowed_cidrs": shut})}, `"etcd"): Machine shut out: controller-0, 10.240.0.10, is in none of the allowed networks`},
		"etcd lets it in":               {values{"etcd": with(etcd, values{"allowed_cidrs": []any{"10.240.0.0/28"}})}, ""},
		"the load balancer is shut out": {values{"lb": with(balancer, machines), "allowed_cidrs": shut}, `"allowed_cidrs"): Machine shut out: lb-0, 10.240.0.30, is in none of the allowed networks`},
		"the load balancers are let in": {values{"lb": with(balancer, machines), "allowed_cidrs": []any{"10.240.0.30/32", "198.51.100.31/32"}}, ""},
		"load balancers without a list": {values{"allowed_cidrs": shut}, ""},
	} {
		if got := c.instance("k8s_control_plane").plan(with(c.controlPlane, test.more)).failure(); (test.want == "") != (got == "") || !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: %q", what, got)
		}
	}
	if ref := c.applied("k8s_etcd_cluster", with(c.etcd, values{"allowed_cidrs": []any{"10.240.0.0/24"}})).get("ref").(values); fmt.Sprint(ref["allowed_cidrs"]) != "[10.240.0.0/24]" {
		t.Errorf("reference %v", ref)
	}
}
