package roles_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestAllowedCIDRs checks the rules that each role gets, who must not be shut out, and how they end.
func TestAllowedCIDRs(t *testing.T) {
	t.Parallel()
	c := providertest.NewRoles(t)
	lb := providertest.Values{"host": c.Pool["hosts"].([]any)[0], "controllers": c.Etcd["hosts"], "pki": c.Etcd["pki"]}
	for resource, test := range map[string]struct {
		config providertest.Values
		file   string
	}{
		"k8s_etcd_cluster":  {c.Etcd, "/etc/k8s-etcd-firewall.nft"},
		"k8s_control_plane": {c.ControlPlane, "/etc/k8s-controller-firewall.nft"},
		"k8s_worker_pool":   {c.Pool, "/etc/k8s-node-firewall.nft"},
		"k8s_lb":            {lb, "/etc/k8s-balancer-firewall.nft"},
	} {
		allowed := providertest.With(test.config, providertest.Values{"allowed_cidrs": []any{"10.240.0.0/24"}})
		i := c.Applied(resource, allowed)
		if i.Files()[test.file] == nil {
			t.Errorf("%s: no %s in %v", resource, test.file, i.Files())
		}
		if ch := i.Plan(allowed); !i.Empty(ch) {
			t.Errorf("%s: the second plan is not empty: %s", resource, i.Differences(ch))
		}
		without := i.Plan(test.config)
		planned, _ := providertest.Plain(without.Planned).(providertest.Values)
		if files := providertest.FilesOf(planned); without.Failure() != "" || len(without.Replace) > 0 || files == nil || files[test.file] != nil {
			t.Errorf("%s without allowed_cidrs: %q, replaces %v, files %v", resource, without.Failure(), without.Replace, planned["files"])
		}
		if got := i.Plan(providertest.With(test.config, providertest.Values{"allowed_cidrs": []any{"0.0.0.0/0"}})).Failure(); got != "" {
			t.Errorf("%s for everybody: %q", resource, got)
		}
	}
	if got := c.Instance("k8s_etcd_cluster").Plan(providertest.With(c.Etcd, providertest.Values{"allowed_cidrs": []any{"198.51.100.0/24"}})).Failure(); !strings.HasPrefix(got, `"allowed_cidrs"`) ||
		!strings.Contains(got, "controller-0, 10.240.0.10, is in none of the allowed networks") {
		t.Errorf("a member that is shut out: %q", got)
	}
	shut := []any{"198.51.100.0/24"}
	etcd, balancer := c.ControlPlane["etcd"].(providertest.Values), c.ControlPlane["lb"].(providertest.Values)
	machines := providertest.Values{"machines": providertest.Values{"lb-0": "10.240.0.30", "lb-1": "198.51.100.31"}}
	for what, test := range map[string]struct {
		more providertest.Values
		want string
	}{
		"etcd shuts a controller out":   {providertest.Values{"etcd": providertest.With(etcd, providertest.Values{"allowed_cidrs": shut})}, `"etcd"): Machine shut out: controller-0, 10.240.0.10, is in none of the allowed networks`},
		"etcd lets it in":               {providertest.Values{"etcd": providertest.With(etcd, providertest.Values{"allowed_cidrs": []any{"10.240.0.0/28"}})}, ""},
		"the load balancer is shut out": {providertest.Values{"lb": providertest.With(balancer, machines), "allowed_cidrs": shut}, `"allowed_cidrs"): Machine shut out: lb-0, 10.240.0.30, is in none of the allowed networks`},
		"the load balancers are let in": {providertest.Values{"lb": providertest.With(balancer, machines), "allowed_cidrs": []any{"10.240.0.30/32", "198.51.100.31/32"}}, ""},
		"load balancers without a list": {providertest.Values{"allowed_cidrs": shut}, ""},
	} {
		if got := c.Instance("k8s_control_plane").Plan(providertest.With(c.ControlPlane, test.more)).Failure(); (test.want == "") != (got == "") || !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: %q", what, got)
		}
	}
	if ref := c.Applied("k8s_etcd_cluster", providertest.With(c.Etcd, providertest.Values{"allowed_cidrs": []any{"10.240.0.0/24"}})).Get("ref").(providertest.Values); fmt.Sprint(ref["allowed_cidrs"]) != "[10.240.0.0/24]" {
		t.Errorf("reference %v", ref)
	}
}
