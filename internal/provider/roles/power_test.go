package roles_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
)

// powered returns a configuration whose hosts have these power states; "" leaves it out.
func powered(config providertest.Values, states ...string) providertest.Values {
	host := config["hosts"].([]any)[0].(providertest.Values) //nolint:forcetypeassert // the tests made it
	out, hosts := maps.Clone(config), []any{}
	for n, state := range states {
		h := providertest.With(host, providertest.Values{"name": strings.TrimRight(host["name"].(string), "0") + string(rune('0'+n)), //nolint:forcetypeassert // the tests made it
			"address": "203.0.113.4" + string(rune('0'+n)), "private_ip": "10.240.0.4" + string(rune('0'+n))})
		if state != "" {
			h["power_state"] = state
		}
		if _, worker := host["pod_cidr"]; worker && strings.HasPrefix(host["name"].(string), "worker") { //nolint:forcetypeassert // the tests made it
			h["pod_cidr"] = "10.200." + string(rune('0'+n)) + ".0/24"
		}
		hosts = append(hosts, h)
	}
	out["hosts"] = hosts
	return out
}

// TestPausedRoles: roles whose machines are all stopped are planned, refreshed, changed and
// destroyed without a connection, and a plan with the same configuration is empty.
func TestPausedRoles(t *testing.T) {
	t.Parallel()
	r := providertest.NewRoles(t)
	attempts := r.Unconnected()
	addon := providertest.Values{"name": "coredns", "control_plane": r.Pool["control_plane"]}
	api := func(state string) providertest.Values {
		cp, _ := r.Pool["control_plane"].(providertest.Values)
		return providertest.With(cp, providertest.Values{"power_state": state})
	}
	for _, tt := range []struct {
		resource       string
		config, paused providertest.Values
		change         providertest.Values // of another argument
		at             string              // that argument
	}{
		{"k8s_etcd_cluster", powered(r.Etcd, "", "", ""), powered(r.Etcd, reference.Paused, reference.Paused, reference.Paused), providertest.Values{"version": "3.6.17"}, "version"},
		{"k8s_control_plane", r.ControlPlane, powered(r.ControlPlane, reference.Paused), providertest.Values{"audit_policy": "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: None}]\n"}, "audit_policy"},
		{"k8s_worker_pool", providertest.With(powered(r.Pool, "running", "running"), providertest.Values{"control_plane": api(reference.Running)}),
			providertest.With(powered(r.Pool, reference.Paused, reference.Paused), providertest.Values{"control_plane": api(reference.Stopped)}), providertest.Values{"max_unavailable": 2}, "max_unavailable"},
		{"k8s_worker_pool", powered(r.Pool, "", ""), powered(r.Pool, reference.Stopped, reference.Stopped), providertest.Values{"kubelet_config": providertest.Values{"maxPods": 20}}, "kubelet_config"},
		{"k8s_addon", addon, providertest.With(addon, providertest.Values{"control_plane": api(reference.Stopped)}), providertest.Values{"wait": false}, "wait"},
	} {
		t.Run(tt.resource, func(t *testing.T) {
			if tt.resource == "k8s_control_plane" {
				tt.config = powered(tt.config, reference.Running)
			}
			i := r.Applied(tt.resource, tt.config)
			paused := i.Plan(tt.paused)
			if failure := paused.Failure(); failure != "" || i.Empty(paused) {
				t.Fatalf("the pause is planned as %q, empty %t", failure, i.Empty(paused))
			}
			r.Fatal(i.Apply(paused))
			if seen := i.Look(); len(seen.Warnings) > 0 {
				t.Errorf("the refresh warns: %s", seen.Warnings[0].Detail)
			}
			i.Converged(tt.paused)
			if said := i.Plan(providertest.With(tt.paused, tt.change)).Failure(); !strings.Contains(said, tt.at+`"): The machines are stopped: `+tt.at+" of the ") {
				t.Errorf("a change of %s: %q", tt.at, said)
			}
			if said := i.Plan(providertest.With(tt.config, tt.change)).Failure(); said != "" {
				t.Errorf("the same change, and a resume: %s", said)
			}
			if fresh := r.Instance(tt.resource).Plan(tt.paused).Failure(); !strings.Contains(fresh, "The machines are stopped") || !strings.Contains(fresh, "resume first") {
				t.Errorf("a new one: %q", fresh)
			}
			gone := i.Dismiss()
			if len(gone.Errors) > 0 || !i.State.IsNull() {
				t.Errorf("destroyed: %s", gone.Failure())
			}
			if n := attempts.Load(); n > 0 {
				t.Errorf("%d connections were tried", n)
			}
		})
	}
}

// TestStoppedMembers: a plan that leaves too few machines running is refused, unless the whole
// cluster is paused.
func TestStoppedMembers(t *testing.T) {
	t.Parallel()
	r := providertest.NewRoles(t)
	for _, tt := range []struct {
		resource string
		config   providertest.Values
		states   []string
		want     string // part of the error
	}{
		{"k8s_etcd_cluster", r.Etcd, []string{reference.Running, reference.Running, reference.Stopped}, ""},
		{"k8s_etcd_cluster", r.Etcd, []string{reference.Running, reference.Stopped, reference.Stopped}, `hosts"): The cluster cannot do without these machines: With power_state = "stopped" on controller-1, controller-2, 1 of 3 machines of the etcd cluster run, and at least 2 must.`},
		{"k8s_etcd_cluster", r.Etcd, []string{reference.Stopped, reference.Stopped, reference.Stopped}, "0 of 3 machines of the etcd cluster run"},
		{"k8s_etcd_cluster", r.Etcd, []string{reference.Paused, reference.Paused, reference.Running}, "Only some of the machines are paused: controller-0, controller-1: stopped together with the cluster, and controller-2: not."},
		{"k8s_etcd_cluster", r.Etcd, []string{reference.Paused, reference.Paused, reference.Paused}, ""},
		{"k8s_control_plane", r.ControlPlane, []string{reference.Running, reference.Stopped, reference.Stopped}, ""},
		{"k8s_control_plane", r.ControlPlane, []string{reference.Stopped}, "0 of 1 machines of the control plane run, and at least 1 must"},
		{"k8s_worker_pool", r.Pool, []string{reference.Stopped, reference.Stopped}, ""},
		{"k8s_worker_pool", r.Pool, []string{"off"}, "power_state"},
	} {
		i := r.Applied(tt.resource, powered(tt.config, make([]string, len(tt.states))...))
		said := i.Plan(powered(tt.config, tt.states...)).Failure()
		if (said == "") != (tt.want == "") || !strings.Contains(said, tt.want) {
			t.Errorf("%s with %q: %q", tt.resource, tt.states, said)
		}
	}
}

// TestStoppedWorkerLeaves: a stopped worker may leave its pool, and nothing else of the pool may
// change.
func TestStoppedWorkerLeaves(t *testing.T) {
	t.Parallel()
	r := providertest.NewRoles(t)
	i := r.Applied("k8s_worker_pool", powered(r.Pool, "", "", ""))
	if said := i.Plan(powered(r.Pool, "", reference.Stopped)).Failure(); said != "" {
		t.Errorf("another leaves: %s", said)
	}
	if said := i.Plan(providertest.With(powered(r.Pool, "", reference.Stopped), providertest.Values{"max_unavailable": 2})).Failure(); !strings.Contains(said, "max_unavailable of the worker pool cannot be changed while worker-1 is stopped") {
		t.Errorf("another change: %q", said)
	}
}

// TestOnlyStoppedAreLeftAlone: in a pool with a stopped worker, the other worker is asked.
func TestOnlyStoppedAreLeftAlone(t *testing.T) {
	t.Parallel()
	r := providertest.NewRoles(t)
	i := r.Applied("k8s_worker_pool", powered(r.Pool, "", ""))
	paused := i.Plan(powered(r.Pool, "", reference.Stopped))
	i.State = paused.Planned // as if it had been applied
	attempts := r.Unconnected()
	var said string
	for _, w := range i.Look().Warnings {
		said += w.Summary + "\n"
	}
	if !strings.Contains(said, "Machine worker-0 cannot be reached") || strings.Contains(said, "worker-1") || attempts.Load() == 0 {
		t.Errorf("%d connections; it warns %q", attempts.Load(), said)
	}
}

// TestPausedBackup: while the members are paused, nothing asks for the newest snapshot, and what was
// known of it stays.
func TestPausedBackup(t *testing.T) {
	t.Parallel()
	r := providertest.NewRoles(t)
	attempts := r.Unconnected()
	config := providertest.With(powered(r.Etcd, "", ""), providertest.Values{"etcd": providertest.Values{"pki": r.Etcd["pki"], "version": "3.6.16", "endpoints": []any{"https://10.240.0.40:2379", "https://10.240.0.41:2379"}},
		"bucket": "snapshots", "region": "eu-west-1"})
	delete(config, "version")
	delete(config, "pki")
	i := r.Instance("k8s_etcd_backup")
	ch := i.Plan(config)
	var attributes map[string]tftypes.Value
	if err := ch.Planned.As(&attributes); err != nil {
		t.Fatal(err, ch.Failure())
	}
	newest := providertest.Values{"name": "2026-11-24T08:00:00Z-7", "time": "2026-11-24T08:00:00Z", "age": "3m0s", "revision": 7, "hash": "1", "keys": 2, "size": 3, "sha256": "4",
		"etcd_version": "3.6.16", "member": "controller-0", "encryption_keys": []any{}}
	attributes["claim"] = tftypes.NewValue(tftypes.String, "run-1")
	attributes["newest"] = providertest.Build(attributes["newest"].Type(), newest)
	i.State, i.Private = tftypes.NewValue(i.Schema.ValueType(), attributes), ch.Private

	off := providertest.With(config, providertest.Values{"hosts": powered(r.Etcd, reference.Paused, reference.Paused)["hosts"]})
	r.Fatal(i.Apply(i.Plan(off)))
	i.Converged(off)
	if now, _ := i.Get("newest").(providertest.Values); now["name"] != newest["name"] || attempts.Load() > 0 {
		t.Errorf("the newest snapshot is %v; %d connections", now, attempts.Load())
	}
}

// TestPausedAddress: the public address of an instance, which an Elastic IP replaces, may change
// when it is paused; the address of a machine that is no instance may not.
func TestPausedAddress(t *testing.T) {
	t.Parallel()
	r := providertest.NewRoles(t)
	host := func(id any, address, power string) []any {
		h, _ := powered(r.Pool, power)["hosts"].([]any)[0].(providertest.Values) //nolint:forcetypeassert // the tests made it
		return []any{providertest.With(h, providertest.Values{"instance_id": id, "address": address, "public_ip": address})}
	}
	for _, tt := range []struct {
		id      any
		refused bool
	}{{"i-0123456789abcdef0", false}, {nil, true}} {
		i := r.Applied("k8s_worker_pool", providertest.With(r.Pool, providertest.Values{"hosts": host(tt.id, "203.0.113.5", reference.Running)}))
		if said := i.Plan(providertest.With(r.Pool, providertest.Values{"hosts": host(tt.id, "203.0.113.6", reference.Paused)})).Failure(); (said != "") != tt.refused {
			t.Errorf("instance %v: %q", tt.id, said)
		}
	}
}

// TestExpiredRoles: once the refresh has found that the machines of a cluster have expired, their roles and its addons are refreshed as
// those of a paused one, and a resume is a change of them.
func TestExpiredRoles(t *testing.T) {
	t.Parallel()
	r := providertest.NewRoles(t)
	attempts := r.Unconnected()
	api := func(state string) providertest.Values {
		cp, _ := r.Pool["control_plane"].(providertest.Values)
		return providertest.With(cp, providertest.Values{"power_state": state})
	}
	config := func(resource, host, cp string) providertest.Values {
		with := func(role providertest.Values, id string) providertest.Values {
			out := powered(role, host)
			h, _ := out["hosts"].([]any)[0].(providertest.Values)
			h["instance_id"] = id
			return out
		}
		switch resource {
		case "k8s_etcd_cluster":
			return with(r.Etcd, "i-0a")
		case "k8s_control_plane":
			return with(r.ControlPlane, "i-0a")
		case "k8s_worker_pool":
			return providertest.With(with(r.Pool, "i-0b"), providertest.Values{"control_plane": api(cp)})
		}
		return providertest.Values{"name": "coredns", "control_plane": api(cp)}
	}
	resources := []string{"k8s_etcd_cluster", "k8s_control_plane", "k8s_worker_pool", "k8s_addon"}
	applied := map[string]*providertest.Instance{}
	for _, resource := range resources {
		applied[resource] = r.Applied(resource, config(resource, reference.Running, reference.Running))
	}
	r.Data.Expire("demo", "i-0a", true)
	r.Data.Expire("demo", "i-0b", false)
	for _, resource := range resources {
		i := applied[resource]
		if seen := i.Look(); len(seen.Warnings) > 0 {
			t.Errorf("%s: the refresh warns: %s", resource, seen.Warnings[0].Detail)
		}
		if ch := i.Plan(config(resource, reference.Paused, reference.Stopped)); !i.Empty(ch) {
			t.Errorf("%s: %s\n%s", resource, ch.Failure(), i.Differences(ch))
		}
		if ch := i.Plan(config(resource, reference.Running, reference.Running)); ch.Failure() != "" || i.Empty(ch) {
			t.Errorf("%s: the resume is planned as %q, empty %t", resource, ch.Failure(), i.Empty(ch))
		}
	}
	if n := attempts.Load(); n > 0 {
		t.Errorf("%d connections were tried", n)
	}
}
