package provider

import (
	"strings"
	"testing"
)

// TestHostsKeepTheirNames: a plan that gives machines of a role other names is refused; machines that come, go
// and are replaced under their names are not.
func TestHostsKeepTheirNames(t *testing.T) {
	t.Parallel()
	c := newRoles(t)
	host := func(name, address, pods string) values {
		return values{"name": name, "address": address, "private_ip": address, "host_key": publicKey(t) + " root@" + name, "pod_cidr": pods}
	}
	a, b, other := host("worker-0", "10.240.0.20", "10.200.0.0/24"), host("worker-1", "10.240.0.21", "10.200.1.0/24"), host("worker-2", "10.240.0.22", "10.200.2.0/24")
	called := func(h values, name string) values { return with(h, values{"name": name}) }
	rent := func(h values, id string) values { return with(h, values{"instance_id": id}) }
	pool := func(hosts ...any) values { return with(c.pool, values{"hosts": hosts}) }
	own := c.applied("k8s_worker_pool", pool(a, b))
	rented := c.applied("k8s_worker_pool", pool(rent(a, "i-1"), rent(b, "i-2")))
	for what, test := range map[string]struct {
		of    *instance
		hosts []any
		want  string
	}{
		"the first leaves, and positions are names":     {own, []any{called(b, "worker-0")}, "worker-1 at 10.240.0.21 would become worker-0"},
		"the machine that leaves is named":              {own, []any{called(b, "worker-0")}, "here worker-0 (10.240.0.20)."},
		"one is renamed":                                {own, []any{a, called(b, "worker-9")}, "worker-1 at 10.240.0.21 would become worker-9"},
		"without the comment of its key":                {own, []any{a, with(called(b, "worker-9"), values{"host_key": strings.Join(strings.Fields(b["host_key"].(string))[:2], " ")})}, "would become worker-9"},
		"the first leaves":                              {own, []any{b}, ""},
		"another order":                                 {own, []any{b, a}, ""},
		"one comes":                                     {own, []any{a, b, other}, ""},
		"another machine takes a name":                  {own, []any{called(other, "worker-0"), b}, ""},
		"it is not known which":                         {own, []any{a, with(called(b, "worker-9"), values{"host_key": unknown})}, ""},
		"an instance is replaced":                       {rented, []any{rent(called(other, "worker-0"), "i-3"), rent(b, "i-2")}, ""},
		"an instance is replaced, at another's address": {rented, []any{rent(with(other, values{"name": "worker-0", "address": b["address"], "private_ip": b["private_ip"]}), "i-3")}, ""},
		"an instance to come":                           {rented, []any{unknown, rent(b, "i-2")}, ""},
		"an instance with another name":                 {rented, []any{rent(a, "i-1"), rent(called(b, "worker-9"), "i-2")}, "worker-1 at 10.240.0.21 would become worker-9"},
	} {
		got := test.of.plan(pool(test.hosts...)).failure()
		if test.want == "" && got != "" || !strings.Contains(got, test.want) || test.want != "" && !strings.HasPrefix(got, `"hosts"`) {
			t.Errorf("%s: got %q, wanted %q", what, got, test.want)
		}
	}

	for resource, config := range map[string]values{"k8s_etcd_cluster": c.etcd, "k8s_control_plane": c.controlPlane} {
		hosts := config["hosts"].([]any)
		i := c.applied(resource, config)
		if got := i.plan(with(config, values{"hosts": []any{called(hosts[0].(values), "controller-9")}})).failure(); !strings.Contains(got, "would become controller-9") {
			t.Errorf("%s: got %q", resource, got)
		}
	}
	shared := values{"cluster": "demo", "host": a, "standbys": []any{b}, "virtual_ip": "10.240.0.9", "controllers": c.etcd["hosts"], "pki": c.etcd["pki"]}
	lb := c.applied("k8s_lb", shared)
	for what, test := range map[string]struct {
		more values
		want string
	}{
		"the two change places":     {values{"host": b, "standbys": []any{a}}, ""},
		"the second gets the first": {values{"host": called(b, "worker-0"), "standbys": nil, "virtual_ip": nil}, "worker-1 at 10.240.0.21 would become worker-0"},
	} {
		if got := lb.plan(with(shared, test.more)).failure(); test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("k8s_lb, %s: got %q, wanted %q", what, got, test.want)
		}
	}
}
