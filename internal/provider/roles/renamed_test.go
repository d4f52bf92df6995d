package roles_test

import (
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestHostsKeepTheirNames: a plan that gives machines of a role other names is refused; machines that come, go
// and are replaced under their names are not.
func TestHostsKeepTheirNames(t *testing.T) {
	t.Parallel()
	c := providertest.NewRoles(t)
	host := func(name, address, pods string) providertest.Values {
		return providertest.Values{"name": name, "address": address, "private_ip": address, "host_key": providertest.PublicKey(t) + " root@" + name, "pod_cidr": pods}
	}
	a, b, other := host("worker-0", "10.240.0.20", "10.200.0.0/24"), host("worker-1", "10.240.0.21", "10.200.1.0/24"), host("worker-2", "10.240.0.22", "10.200.2.0/24")
	called := func(h providertest.Values, name string) providertest.Values {
		return providertest.With(h, providertest.Values{"name": name})
	}
	rent := func(h providertest.Values, id string) providertest.Values {
		return providertest.With(h, providertest.Values{"instance_id": id})
	}
	pool := func(hosts ...any) providertest.Values {
		return providertest.With(c.Pool, providertest.Values{"hosts": hosts})
	}
	own := c.Applied("k8s_worker_pool", pool(a, b))
	rented := c.Applied("k8s_worker_pool", pool(rent(a, "i-1"), rent(b, "i-2")))
	for what, test := range map[string]struct {
		of    *providertest.Instance
		hosts []any
		want  string
	}{
		"the first leaves, and positions are names":              {own, []any{called(b, "worker-0")}, "worker-1 at 10.240.0.21 would become worker-0"},
		"the machine that leaves is named":                       {own, []any{called(b, "worker-0")}, "here worker-0 (10.240.0.20)."},
		"one is renamed":                                         {own, []any{a, called(b, "worker-9")}, "worker-1 at 10.240.0.21 would become worker-9"},
		"without the comment of its key":                         {own, []any{a, providertest.With(called(b, "worker-9"), providertest.Values{"host_key": strings.Join(strings.Fields(b["host_key"].(string))[:2], " ")})}, "would become worker-9"},
		"the first leaves":                                       {own, []any{b}, ""},
		"another order":                                          {own, []any{b, a}, ""},
		"one comes":                                              {own, []any{a, b, other}, ""},
		"another machine takes a name":                           {own, []any{called(other, "worker-0"), b}, ""},
		"it is not known which":                                  {own, []any{a, providertest.With(called(b, "worker-9"), providertest.Values{"host_key": providertest.Unknown})}, ""},
		"an instance is replaced":                                {rented, []any{rent(called(other, "worker-0"), "i-3"), rent(b, "i-2")}, ""},
		"an instance is replaced, at the address of another one": {rented, []any{rent(providertest.With(other, providertest.Values{"name": "worker-0", "address": b["address"], "private_ip": b["private_ip"]}), "i-3")}, ""},
		"an instance that does not exist yet":                    {rented, []any{providertest.Unknown, rent(b, "i-2")}, ""},
		"an instance with another name":                          {rented, []any{rent(a, "i-1"), rent(called(b, "worker-9"), "i-2")}, "worker-1 at 10.240.0.21 would become worker-9"},
	} {
		got := test.of.Plan(pool(test.hosts...)).Failure()
		if test.want == "" && got != "" || !strings.Contains(got, test.want) || test.want != "" && !strings.HasPrefix(got, `"hosts"`) {
			t.Errorf("%s: got %q, wanted %q", what, got, test.want)
		}
	}

	for resource, config := range map[string]providertest.Values{"k8s_etcd_cluster": c.Etcd, "k8s_control_plane": c.ControlPlane} {
		hosts := config["hosts"].([]any)
		i := c.Applied(resource, config)
		if got := i.Plan(providertest.With(config, providertest.Values{"hosts": []any{called(hosts[0].(providertest.Values), "controller-9")}})).Failure(); !strings.Contains(got, "would become controller-9") {
			t.Errorf("%s: got %q", resource, got)
		}
	}
	shared := providertest.Values{"host": a, "standbys": []any{b}, "virtual_ip": "10.240.0.9", "controllers": c.Etcd["hosts"], "pki": c.Etcd["pki"]}
	lb := c.Applied("k8s_lb", shared)
	for what, test := range map[string]struct {
		more providertest.Values
		want string
	}{
		"the two change places":     {providertest.Values{"host": b, "standbys": []any{a}}, ""},
		"the second gets the first": {providertest.Values{"host": called(b, "worker-0"), "standbys": nil, "virtual_ip": nil}, "worker-1 at 10.240.0.21 would become worker-0"},
	} {
		if got := lb.Plan(providertest.With(shared, test.more)).Failure(); test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("k8s_lb, %s: got %q, wanted %q", what, got, test.want)
		}
	}
}
