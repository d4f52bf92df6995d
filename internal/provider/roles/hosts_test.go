package roles_test

import (
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestHostErrors checks that an error about a host is on the host's attribute, and that an unknown
// value is no error.
func TestHostErrors(t *testing.T) {
	t.Parallel()
	c := providertest.NewRoles(t)
	host := func(more providertest.Values) providertest.Values {
		return providertest.With(c.Pool["hosts"].([]any)[0].(providertest.Values), more)
	}
	pool := func(hosts ...any) providertest.Values {
		return providertest.With(c.Pool, providertest.Values{"hosts": hosts})
	}
	const first, second = `"hosts").ElementKeyInt(0): `, `"hosts").ElementKeyInt(1): `
	other := providertest.Values{"name": "worker-1", "private_ip": "10.240.0.21", "address": "203.0.113.8", "pod_cidr": "10.200.1.0/24"}
	for _, test := range []struct {
		name, resource string
		config         providertest.Values
		want           string
	}{
		{"all is well", "k8s_worker_pool", pool(host(nil), host(other)), ""},
		{"no pods", "k8s_worker_pool", pool(host(providertest.Values{"pod_cidr": nil})),
			first + `Worker without a pod network: worker-0 needs pod_cidr, a part of the cluster's 10.200.0.0/16 that no other worker has: set it on its k8s_machine.`},
		{"pods not known yet", "k8s_worker_pool", pool(host(providertest.Values{"pod_cidr": providertest.Unknown})), ""},
		{"no pods of ours", "k8s_worker_pool", providertest.With(pool(host(providertest.Values{"pod_cidr": nil})), providertest.Values{"cni": "none"}), ""},
		{"pods outside", "k8s_worker_pool", pool(host(providertest.Values{"pod_cidr": "10.201.0.0/24"})),
			first + `Pod network outside the cluster's: pod_cidr 10.201.0.0/24 of worker-0 is outside the cluster's pod_cidr 10.200.0.0/16.`},
		{"pods overlap", "k8s_worker_pool", pool(host(nil), host(providertest.With(other, providertest.Values{"pod_cidr": "10.200.0.0/25"}))),
			second + `Overlapping pod networks: pod_cidr 10.200.0.0/25 of worker-1 overlaps 10.200.0.0/24 of worker-0.`},
		{"same name", "k8s_worker_pool", pool(host(nil), host(providertest.With(other, providertest.Values{"name": "worker-0"}))),
			second + `Duplicate host: Host 1 has the same name as host 0: worker-0.`},
		{"a host not known yet", "k8s_worker_pool", pool(host(nil), providertest.Unknown, host(nil)), ""},
		{"same address", "k8s_lb", providertest.Values{"host": host(nil), "port": 7443, "controllers": []any{host(nil), host(providertest.With(other, providertest.Values{"address": "203.0.113.9"}))}, "pki": c.Etcd["pki"]},
			`"controllers").ElementKeyInt(1): Duplicate host: Host 1 has the same address as host 0: 203.0.113.9.`},
		{"two members", "k8s_etcd_cluster", providertest.With(c.Etcd, providertest.Values{"hosts": []any{host(nil), providertest.Unknown}}),
			`"hosts"): Even number of etcd members: 2 etcd members tolerate no more failures than 1, and a split leaves neither half a majority: use 1, 3, 5 or 7.`},
	} {
		if got := c.Instance(test.resource).Plan(test.config).Failure(); got != test.want {
			t.Errorf("%s: got %q, wanted %q", test.name, got, test.want)
		}
	}
}
