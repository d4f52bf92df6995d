package provider_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestDeletionProtection: a protected object is neither destroyed nor replaced. The plan refuses
// what it can see, and the apply the rest. Turning the protection off changes nothing else.
func TestDeletionProtection(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, worker, keys := c.Instance("k8s_network"), c.Instance("k8s_machine"), c.Instance("k8s_pki")
	on := providertest.Values{argument.Protection: true}
	network.Must(providertest.With(providertest.NetworkConfig(), on))
	worker.Must(providertest.With(providertest.WorkerConfig(network), on))
	keys.Must(providertest.With(providertest.Values{"cluster": "demo"}, on))
	const said = "protected from deletion"

	for _, tt := range []struct {
		object *providertest.Instance
		config providertest.Values
		other  providertest.Values // replaces the object
		name   string
	}{
		{worker, providertest.WorkerConfig(network), providertest.Values{"private_ip": "10.240.0.30"}, "machine worker-0"},
		{keys, providertest.Values{"cluster": "demo"}, providertest.Values{"key_store": "state"}, "pki demo"},
		{network, providertest.NetworkConfig(), providertest.Values{"node_cidr": "10.240.1.0/24"}, "network demo"},
	} {
		protected := providertest.With(tt.config, on)
		for what, got := range map[string]string{
			"destroy":                            tt.object.Plan(nil).Failure(),
			"replace":                            tt.object.Plan(providertest.With(protected, tt.other)).Failure(),
			"replace, and off in the same plan":  tt.object.Plan(providertest.With(tt.config, tt.other)).Failure(),
			"-replace":                           tt.object.ByRequest(protected).Failure(),
			"-replace, and off in the same plan": tt.object.ByRequest(tt.config).Failure(),
			"taint":                              tt.object.Tainted(protected).Failure(),
		} {
			if !strings.Contains(got, said) || !strings.Contains(got, tt.name) || !strings.Contains(got, "deletion_protection = false") {
				t.Errorf("%s: %s: %q", tt.name, what, got)
			}
		}
		tt.object.Converged(protected)
		calls := len(c.Calls())
		tt.object.Must(tt.config)
		if now := c.Calls(); len(now) != calls {
			t.Errorf("%s: turning the protection off made %v", tt.name, now[calls:])
		}
		tt.object.Converged(tt.config)
	}
	for _, i := range []*providertest.Instance{worker, network, keys} {
		c.Fatal(i.Apply(i.Plan(nil)))
	}
	c.Account.Empty()
}

// TestProtectedAttributes: the plan refuses to replace a protected object, whichever attribute that
// replaces it changes.
func TestProtectedAttributes(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	worker.Must(providertest.With(providertest.WorkerConfig(network), providertest.Values{argument.Protection: true}))
	for name, other := range map[string]providertest.Values{
		"name": {"name": "worker-9"}, "role": {"role": "controller", "pod_cidr": nil}, "private_ip": {"private_ip": "10.240.0.30"},
		"user": {"user": "ubuntu"}, "associate_public_ip_address": {"associate_public_ip_address": false},
	} {
		if got := worker.Plan(providertest.With(providertest.With(providertest.WorkerConfig(network), providertest.Values{argument.Protection: true}), other)).Failure(); !strings.Contains(got, "is protected") {
			t.Errorf("%s: %q", name, got)
		}
	}
	for name, other := range map[string]providertest.Values{"instance_type": {"instance_type": "t3.large"}, "tags": {"tags": providertest.Values{"a": "b"}}} {
		if got := worker.Plan(providertest.With(providertest.With(providertest.WorkerConfig(network), providertest.Values{argument.Protection: true}), other)).Failure(); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestEndOfDataIsPlanned: a plan that ends the data of etcd or the keys says so, with what refresh
// last knew.
func TestEndOfDataIsPlanned(t *testing.T) {
	t.Parallel()
	r := providertest.NewRoles(t)
	etcd := r.Applied("k8s_etcd_cluster", r.Etcd)
	if got := providertest.Warnings(etcd.Plan(nil)); !strings.Contains(got, "This plan ends the data of etcd cluster demo: How much it holds is not known") {
		t.Errorf("got %q", got)
	}
	etcd.Private = []byte(`{"contents":` + fmt.Sprintf("%q", base64JSON(`{"contents":{"keys":1234,"bytes":35651584},"seen":"2026-11-23T10:00:00Z"}`)) + `}`)
	if got := providertest.Warnings(etcd.Plan(nil)); !strings.Contains(got, "At the last refresh, 2026-11-23T10:00:00Z, it held 1234 objects in 34 MiB.") {
		t.Errorf("got %q", got)
	}
	if got := providertest.Warnings(etcd.Plan(r.Etcd)); got != "" {
		t.Errorf("a plan without changes warns: %q", got)
	}

	keys := r.Instance("k8s_pki")
	config := providertest.Values{"cluster": "demo", "key_store": "state"}
	keys.Must(config)
	const lost = "This plan ends the keys of cluster demo: They are 5 private keys in the Terraform state."
	if got := providertest.Warnings(keys.Plan(nil)); !strings.HasPrefix(got, lost) {
		t.Errorf("got %q", got)
	}
	if got := providertest.Warnings(keys.Plan(providertest.Values{"cluster": "other", "key_store": "state"})); !strings.HasPrefix(got, lost) {
		t.Errorf("got %q", got)
	}
	if got := providertest.Warnings(keys.Plan(config)); got != "" {
		t.Errorf("a plan without changes warns: %q", got)
	}

	protected := r.Applied("k8s_etcd_cluster", providertest.With(r.Etcd, providertest.Values{argument.Protection: true}))
	for what, ch := range map[string]providertest.Change{
		"destroy": protected.Plan(nil), "-replace": protected.ByRequest(r.Etcd), "taint": protected.Tainted(r.Etcd),
	} {
		if got := ch.Failure(); !strings.Contains(got, "Etcd cluster demo is protected from deletion") {
			t.Errorf("%s: %q", what, got)
		}
	}
	protected.Must(r.Etcd) // no machine answers here
	if protected.Get(argument.Protection) != nil {
		t.Error("it is still protected")
	}
}

// TestKeysStay: k8s_pki is not replaced while a role uses the keys, whatever causes the
// replacement.
func TestKeysStay(t *testing.T) {
	t.Parallel()
	r := providertest.NewRoles(t)
	keys := r.Instance("k8s_pki")
	config := providertest.Values{"cluster": "demo", "key_store": "state"}
	keys.Must(config)
	replaced, _ := providertest.Plain(r.Instance("k8s_pki").Plan(config).Planned).(providertest.Values) // as after a taint
	for name, role := range map[string]providertest.Values{"k8s_etcd_cluster": r.Etcd, "k8s_control_plane": r.ControlPlane, "k8s_worker_pool": r.Pool} {
		alive := r.Applied(name, role)
		got := alive.Plan(providertest.WithKeys(role, replaced["ref"])).Failure()
		if !strings.Contains(got, "The keys of a living cluster would be replaced") || !strings.Contains(got, "generations") {
			t.Errorf("%s: %q", name, got)
		}
		if got := r.Instance(name).Plan(providertest.WithKeys(role, replaced["ref"])).Failure(); got != "" {
			t.Errorf("a new %s: %s", name, got)
		}
		next := keys.Plan(providertest.With(config, providertest.Values{"generations": providertest.Values{"kubernetes_ca": []any{1, 2}}}))
		rotated, _ := providertest.Plain(next.Planned).(providertest.Values)
		if got := alive.Plan(providertest.WithKeys(role, rotated["ref"])).Failure(); strings.Contains(got, "living cluster") {
			t.Errorf("%s: a rotation: %s", name, got)
		}
	}
}

// TestKeysAreNotReplacedByRequest: -replace of k8s_pki is refused in its own plan, since -target
// may leave the roles out. A change of the configuration replaces the keys, and a refused plan
// leaves nothing behind.
func TestKeysAreNotReplacedByRequest(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	for _, store := range []string{"ssm", "state"} {
		keys := c.Instance("k8s_pki")
		config := providertest.Values{"cluster": "of-" + store, "key_store": store}
		keys.Must(config)
		for range 2 {
			providertest.Mention(t, keys.ByRequest(config).Failure(), `"cluster")`, "replaces the keys of a cluster", "-replace", "generations", "destroy")
			keys.Converged(config)
			keys.Must(providertest.With(config, providertest.Values{"ca_validity": "20000h"})) // keeps what the plan has written in private state
			keys.Must(config)
		}
		other := providertest.With(config, providertest.Values{"cluster": "other"})
		c.Fatal(keys.ByRequest(other).Errors)
		c.Fatal(keys.Apply(keys.Plan(nil)))
		keys = c.Instance("k8s_pki")
		keys.Must(config) // a new object
	}
}

func base64JSON(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
