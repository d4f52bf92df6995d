package provider

import (
	"context"
	"errors"
	"maps"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
)

// unconnected replaces the connections to machines by ones that fail, and counts the attempts.
func (r roles) unconnected() *atomic.Int32 {
	var attempts atomic.Int32
	r.data.Pool = remote.NewPool(remote.Config{Dial: func(context.Context, string, string) (net.Conn, error) {
		attempts.Add(1)
		return nil, errors.New("this machine is off")
	}})
	r.t.Cleanup(func() { _ = r.data.Pool.Close() })
	return &attempts
}

// powered returns a configuration whose hosts have these power states; "" leaves it out.
func powered(config values, states ...string) values {
	host := config["hosts"].([]any)[0].(values) //nolint:forcetypeassert // the tests made it
	out, hosts := maps.Clone(config), []any{}
	for n, state := range states {
		h := with(host, values{"name": strings.TrimRight(host["name"].(string), "0") + string(rune('0'+n)), //nolint:forcetypeassert // the tests made it
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
	r := newRoles(t)
	attempts := r.unconnected()
	addon := values{"name": "coredns", "pki": r.pool["pki"], "control_plane": r.pool["control_plane"]}
	api := func(state string) values {
		cp, _ := r.pool["control_plane"].(values)
		return with(cp, values{"power_state": state})
	}
	for _, tt := range []struct {
		resource       string
		config, paused values
		change         values // of another argument
		at             string // that argument
	}{
		{"k8s_etcd_cluster", powered(r.etcd, "", "", ""), powered(r.etcd, reference.Paused, reference.Paused, reference.Paused), values{"version": "3.6.17"}, "version"},
		{"k8s_control_plane", r.controlPlane, powered(r.controlPlane, reference.Paused), values{"audit_policy": "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: None}]\n"}, "audit_policy"},
		{"k8s_worker_pool", with(powered(r.pool, "running", "running"), values{"control_plane": api(reference.Running)}),
			with(powered(r.pool, reference.Paused, reference.Paused), values{"control_plane": api(reference.Stopped)}), values{"max_unavailable": 2}, "max_unavailable"},
		{"k8s_worker_pool", powered(r.pool, "", ""), powered(r.pool, reference.Stopped, reference.Stopped), values{"kubelet_config": values{"maxPods": 20}}, "kubelet_config"},
		{"k8s_addon", addon, with(addon, values{"control_plane": api(reference.Stopped)}), values{"wait": false}, "wait"},
	} {
		t.Run(tt.resource, func(t *testing.T) {
			if tt.resource == "k8s_control_plane" {
				tt.config = powered(tt.config, reference.Running)
			}
			i := r.applied(tt.resource, tt.config)
			paused := i.plan(tt.paused)
			if failure := paused.failure(); failure != "" || i.empty(paused) {
				t.Fatalf("the pause is planned as %q, empty %t", failure, i.empty(paused))
			}
			r.fatal(i.apply(paused))
			if seen := i.look(); len(seen.warnings) > 0 {
				t.Errorf("the refresh warns: %s", seen.warnings[0].Detail)
			}
			i.settled(tt.paused)
			if said := i.plan(with(tt.paused, tt.change)).failure(); !strings.Contains(said, tt.at+`"): The machines are stopped: `+tt.at+" of the ") {
				t.Errorf("a change of %s: %q", tt.at, said)
			}
			if said := i.plan(with(tt.config, tt.change)).failure(); said != "" {
				t.Errorf("the same change, and a resume: %s", said)
			}
			if fresh := r.instance(tt.resource).plan(tt.paused).failure(); !strings.Contains(fresh, "The machines are stopped") || !strings.Contains(fresh, "resume first") {
				t.Errorf("a new one: %q", fresh)
			}
			gone := i.dismiss()
			if len(gone.errors) > 0 || !i.state.IsNull() {
				t.Errorf("destroyed: %s", gone.failure())
			}
			if n := attempts.Load(); n > 0 {
				t.Errorf("%d connections were tried", n)
			}
		})
	}
}

// TestStoppedMembers: a plan in which the machines that run are too few is refused, unless the
// whole cluster is paused.
func TestStoppedMembers(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	for _, tt := range []struct {
		resource string
		config   values
		states   []string
		want     string // part of the error
	}{
		{"k8s_etcd_cluster", r.etcd, []string{reference.Running, reference.Running, reference.Stopped}, ""},
		{"k8s_etcd_cluster", r.etcd, []string{reference.Running, reference.Stopped, reference.Stopped}, `hosts"): The cluster cannot do without these machines: With power_state = "stopped" on controller-1, controller-2, 1 of 3 machines of the etcd cluster run, and at least 2 must.`},
		{"k8s_etcd_cluster", r.etcd, []string{reference.Stopped, reference.Stopped, reference.Stopped}, "0 of 3 machines of the etcd cluster run"},
		{"k8s_etcd_cluster", r.etcd, []string{reference.Paused, reference.Paused, reference.Running}, "Only some of the machines are paused: controller-0, controller-1: stopped together with the cluster, and controller-2: not."},
		{"k8s_etcd_cluster", r.etcd, []string{reference.Paused, reference.Paused, reference.Paused}, ""},
		{"k8s_control_plane", r.controlPlane, []string{reference.Running, reference.Stopped, reference.Stopped}, ""},
		{"k8s_control_plane", r.controlPlane, []string{reference.Stopped}, "0 of 1 machines of the control plane run, and at least 1 must"},
		{"k8s_worker_pool", r.pool, []string{reference.Stopped, reference.Stopped}, ""},
		{"k8s_worker_pool", r.pool, []string{"off"}, "power_state"},
	} {
		i := r.applied(tt.resource, powered(tt.config, make([]string, len(tt.states))...))
		said := i.plan(powered(tt.config, tt.states...)).failure()
		if (said == "") != (tt.want == "") || !strings.Contains(said, tt.want) {
			t.Errorf("%s with %q: %q", tt.resource, tt.states, said)
		}
	}
}

// TestStoppedWorkerLeaves: a stopped worker may leave its pool, and nothing else of the pool may
// change.
func TestStoppedWorkerLeaves(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	i := r.applied("k8s_worker_pool", powered(r.pool, "", "", ""))
	if said := i.plan(powered(r.pool, "", reference.Stopped)).failure(); said != "" {
		t.Errorf("another leaves: %s", said)
	}
	if said := i.plan(with(powered(r.pool, "", reference.Stopped), values{"max_unavailable": 2})).failure(); !strings.Contains(said, "max_unavailable of the worker pool cannot be changed while worker-1 is stopped") {
		t.Errorf("another change: %q", said)
	}
}

// TestOnlyStoppedAreLeftAlone: of a pool with one stopped worker, the other one is asked.
func TestOnlyStoppedAreLeftAlone(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	i := r.applied("k8s_worker_pool", powered(r.pool, "", ""))
	paused := i.plan(powered(r.pool, "", reference.Stopped))
	i.state = paused.planned // as if it had been applied
	attempts := r.unconnected()
	var said string
	for _, w := range i.look().warnings {
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
	r := newRoles(t)
	attempts := r.unconnected()
	config := with(powered(r.etcd, "", ""), values{"etcd": values{"cluster": "demo", "version": "3.6.16", "endpoints": []any{"https://10.240.0.40:2379", "https://10.240.0.41:2379"}},
		"bucket": "snapshots", "region": "eu-west-1"})
	delete(config, "version")
	i := r.instance("k8s_etcd_backup")
	ch := i.plan(config)
	var attributes map[string]tftypes.Value
	if err := ch.planned.As(&attributes); err != nil {
		t.Fatal(err, ch.failure())
	}
	newest := values{"name": "2026-11-24T08:00:00Z-7", "time": "2026-11-24T08:00:00Z", "age": "3m0s", "revision": 7, "hash": "1", "keys": 2, "size": 3, "sha256": "4",
		"etcd_version": "3.6.16", "member": "controller-0", "encryption_keys": []any{}}
	attributes["claim"] = tftypes.NewValue(tftypes.String, "run-1")
	attributes["newest"] = build(attributes["newest"].Type(), newest)
	i.state, i.private = tftypes.NewValue(i.schema.ValueType(), attributes), ch.private

	off := with(config, values{"hosts": powered(r.etcd, reference.Paused, reference.Paused)["hosts"]})
	r.fatal(i.apply(i.plan(off)))
	i.settled(off)
	if now, _ := i.get("newest").(values); now["name"] != newest["name"] || attempts.Load() > 0 {
		t.Errorf("the newest snapshot is %v; %d connections", now, attempts.Load())
	}
}

// TestPausedAddress: the public address of an instance, which an Elastic IP replaces, may be another
// one when it is paused; that of a machine that is no instance may not.
func TestPausedAddress(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	host := func(id any, address, power string) []any {
		h, _ := powered(r.pool, power)["hosts"].([]any)[0].(values) //nolint:forcetypeassert // the tests made it
		return []any{with(h, values{"instance_id": id, "address": address, "public_ip": address})}
	}
	for _, tt := range []struct {
		id      any
		refused bool
	}{{"i-0123456789abcdef0", false}, {nil, true}} {
		i := r.applied("k8s_worker_pool", with(r.pool, values{"hosts": host(tt.id, "203.0.113.5", reference.Running)}))
		if said := i.plan(with(r.pool, values{"hosts": host(tt.id, "203.0.113.6", reference.Paused)})).failure(); (said != "") != tt.refused {
			t.Errorf("instance %v: %q", tt.id, said)
		}
	}
}
