package provider

import (
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
}
