package provider

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
)

// byRequest plans as Terraform does for -replace: an ordinary plan, then the creation of a new
// object with the private state that was planned for the old one. Of the second plan Terraform
// shows errors only.
func (i *instance) byRequest(config values) change {
	i.core.t.Helper()
	first := i.plan(config)
	if len(first.errors) > 0 {
		return first
	}
	null := tftypes.NewValue(i.schema.ValueType(), nil)
	fresh := &instance{core: i.core, typeName: i.typeName, schema: i.schema, state: null, private: first.private}
	second := fresh.plan(config)
	if len(second.errors) == 0 {
		second.warnings = first.warnings
	}
	return second
}

// tainted deletes the object as Terraform does when it is tainted: the plan was that of a new
// object, without the private state of the old one.
func (i *instance) tainted(config values) (said change) {
	i.core.t.Helper()
	null := tftypes.NewValue(i.schema.ValueType(), nil)
	fresh := &instance{core: i.core, typeName: i.typeName, schema: i.schema, state: null}
	planned := fresh.plan(config)
	i.core.fatal(planned.errors)
	resp, err := i.core.server.ApplyResourceChange(i.core.t.Context(), &tfprotov6.ApplyResourceChangeRequest{
		TypeName: i.typeName, PriorState: i.core.dynamic(i.schema, i.state), Config: i.core.dynamic(i.schema, null),
		PlannedState: i.core.dynamic(i.schema, null), PlannedPrivate: planned.private,
	})
	if err != nil {
		i.core.t.Fatal(err)
	}
	said.note(resp.Diagnostics)
	i.state = i.unmarshal(resp.NewState)
	return said
}

func warnings(c change) string {
	var out []string
	for _, w := range c.warnings {
		out = append(out, w.Summary+": "+w.Detail)
	}
	return strings.Join(out, "\n")
}

// TestDeletionProtection: what is protected is neither destroyed nor replaced, by the plan where a
// plan sees it and by the apply where only that does. Turning it off touches nothing else.
func TestDeletionProtection(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, worker, keys := c.instance("k8s_network"), c.instance("k8s_machine"), c.instance("k8s_pki")
	on := values{argument.Protection: true}
	network.must(with(networkConfig(), on))
	worker.must(with(workerConfig(network), on))
	keys.must(with(values{"cluster": "demo"}, on))
	const said = "protected from deletion"

	for _, tt := range []struct {
		object *instance
		config values
		other  values // replaces the object
		name   string
	}{
		{worker, workerConfig(network), values{"private_ip": "10.240.0.30"}, "machine worker-0"},
		{keys, values{"cluster": "demo"}, values{"key_store": "state"}, "pki demo"},
		{network, networkConfig(), values{"node_cidr": "10.240.1.0/24"}, "network demo"},
	} {
		protected := with(tt.config, on)
		for what, got := range map[string]string{
			"destroy":                            tt.object.plan(nil).failure(),
			"replace":                            tt.object.plan(with(protected, tt.other)).failure(),
			"replace, and off in the same plan":  tt.object.plan(with(tt.config, tt.other)).failure(),
			"-replace":                           tt.object.byRequest(protected).failure(),
			"-replace, and off in the same plan": tt.object.byRequest(tt.config).failure(),
			"taint":                              tt.object.tainted(protected).failure(),
		} {
			if !strings.Contains(got, said) || !strings.Contains(got, tt.name) || !strings.Contains(got, "deletion_protection = false") {
				t.Errorf("%s: %s: %q", tt.name, what, got)
			}
		}
		tt.object.settled(protected)
		calls := len(c.calls())
		tt.object.must(tt.config)
		if now := c.calls(); len(now) != calls {
			t.Errorf("%s: turning the protection off made %v", tt.name, now[calls:])
		}
		tt.object.settled(tt.config)
	}
	for _, i := range []*instance{worker, network, keys} {
		c.fatal(i.apply(i.plan(nil)))
	}
	c.account.Empty()
}

// TestProtectedAttributes: the plan refuses to replace a protected object for whatever attribute
// the schema says replaces it.
func TestProtectedAttributes(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, worker := c.instance("k8s_network"), c.instance("k8s_machine")
	network.must(networkConfig())
	worker.must(with(workerConfig(network), values{argument.Protection: true}))
	for name, other := range map[string]values{
		"name": {"name": "worker-9"}, "role": {"role": "controller", "pod_cidr": nil}, "private_ip": {"private_ip": "10.240.0.30"},
		"user": {"user": "ubuntu"}, "associate_public_ip_address": {"associate_public_ip_address": false},
	} {
		if got := worker.plan(with(with(workerConfig(network), values{argument.Protection: true}), other)).failure(); !strings.Contains(got, "is protected") {
			t.Errorf("%s: %q", name, got)
		}
	}
	for name, other := range map[string]values{"instance_type": {"instance_type": "t3.large"}, "tags": {"tags": values{"a": "b"}}} {
		if got := worker.plan(with(with(workerConfig(network), values{argument.Protection: true}), other)).failure(); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestEndOfDataIsPlanned: a plan that ends the data of etcd or the keys says so, with what refresh
// last knew.
func TestEndOfDataIsPlanned(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	etcd := r.applied("k8s_etcd_cluster", r.etcd)
	if got := warnings(etcd.plan(nil)); !strings.Contains(got, "This plan ends the data of etcd cluster demo: How much it holds is not known") {
		t.Errorf("got %q", got)
	}
	etcd.private = []byte(`{"contents":` + fmt.Sprintf("%q", base64JSON(`{"contents":{"keys":1234,"bytes":35651584},"seen":"2026-11-23T10:00:00Z"}`)) + `}`)
	if got := warnings(etcd.plan(nil)); !strings.Contains(got, "At the last refresh, 2026-11-23T10:00:00Z, it held 1234 objects in 34 MiB.") {
		t.Errorf("got %q", got)
	}
	if got := warnings(etcd.plan(r.etcd)); got != "" {
		t.Errorf("a plan without changes warns: %q", got)
	}

	keys := r.instance("k8s_pki")
	config := values{"cluster": "demo", "key_store": "state"}
	keys.must(config)
	const lost = "This plan ends the keys of cluster demo: They are 5 private keys in the Terraform state."
	if got := warnings(keys.plan(nil)); !strings.HasPrefix(got, lost) {
		t.Errorf("got %q", got)
	}
	if got := warnings(keys.plan(values{"cluster": "other", "key_store": "state"})); !strings.HasPrefix(got, lost) {
		t.Errorf("got %q", got)
	}
	if got := warnings(keys.plan(config)); got != "" {
		t.Errorf("a plan without changes warns: %q", got)
	}

	protected := r.applied("k8s_etcd_cluster", with(r.etcd, values{argument.Protection: true}))
	for what, ch := range map[string]change{
		"destroy": protected.plan(nil), "-replace": protected.byRequest(r.etcd), "taint": protected.tainted(r.etcd),
	} {
		if got := ch.failure(); !strings.Contains(got, "Etcd cluster demo is protected from deletion") {
			t.Errorf("%s: %q", what, got)
		}
	}
	protected.must(r.etcd) // no machine answers here
	if protected.get(argument.Protection) != nil {
		t.Error("it is still protected")
	}
}

// TestKeysStay: k8s_pki is not replaced under a role that lives, however it comes about.
func TestKeysStay(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	keys := r.instance("k8s_pki")
	config := values{"cluster": "demo", "key_store": "state"}
	keys.must(config)
	replaced, _ := plain(r.instance("k8s_pki").plan(config).planned).(values) // as after a taint
	for name, role := range map[string]values{"k8s_etcd_cluster": r.etcd, "k8s_control_plane": r.controlPlane, "k8s_worker_pool": r.pool} {
		alive := r.applied(name, role)
		got := alive.plan(with(role, values{"pki": replaced["ref"]})).failure()
		if !strings.Contains(got, "pki") || !strings.Contains(got, "The keys of a living cluster would be replaced") || !strings.Contains(got, "generations") {
			t.Errorf("%s: %q", name, got)
		}
		if got := r.instance(name).plan(with(role, values{"pki": replaced["ref"]})).failure(); got != "" {
			t.Errorf("a new %s: %s", name, got)
		}
		next := keys.plan(with(config, values{"generations": values{"kubernetes_ca": []any{1, 2}}}))
		rotated, _ := plain(next.planned).(values)
		if got := alive.plan(with(role, values{"pki": rotated["ref"]})).failure(); strings.Contains(got, "living cluster") {
			t.Errorf("%s: a rotation: %s", name, got)
		}
	}
}

// TestKeysAreNotReplacedByRequest: -replace of k8s_pki is refused in its own plan, since no role is
// planned with -target. A change of the configuration replaces the keys, and a refused plan leaves
// nothing behind.
func TestKeysAreNotReplacedByRequest(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	for _, store := range []string{"ssm", "state"} {
		keys := c.instance("k8s_pki")
		config := values{"cluster": "of-" + store, "key_store": store}
		keys.must(config)
		for range 2 {
			mention(t, keys.byRequest(config).failure(), `"cluster")`, "replaces the keys of a cluster", "-replace", "generations", "destroy")
			keys.settled(config)
			keys.must(with(config, values{"ca_validity": "20000h"})) // keeps what the plan has written in private state
			keys.must(config)
		}
		other := with(config, values{"cluster": "other"})
		c.fatal(keys.byRequest(other).errors)
		c.fatal(keys.apply(keys.plan(nil)))
		keys = c.instance("k8s_pki")
		keys.must(config) // a new object
	}
}

func base64JSON(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
