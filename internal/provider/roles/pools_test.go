package roles_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
)

// TestEmptyPool: a pool without hosts is made, refreshed, changed and destroyed without asking anybody, gets hosts,
// and loses all of them.
func TestEmptyPool(t *testing.T) {
	t.Parallel()
	r := providertest.NewRoles(t)
	attempts := r.Unconnected()
	empty := providertest.With(r.Pool, providertest.Values{"hosts": []any{}})
	pool := r.Instance("k8s_worker_pool")
	pool.Must(empty)
	if seen := pool.Look(); len(seen.Warnings) > 0 {
		t.Errorf("the refresh warns: %s: %s", seen.Warnings[0].Summary, seen.Warnings[0].Detail)
	}
	pool.Converged(empty)
	if files := pool.Files(); len(files) > 0 || pool.Get("runc_version") != nil {
		t.Errorf("files %v, runc %v", files, pool.Get("runc_version"))
	}
	labelled := providertest.With(empty, providertest.Values{"labels": providertest.Values{"gpu": "yes"}, "kubelet_config": providertest.Values{"maxPods": 20}})
	pool.Must(labelled)
	pool.Converged(labelled)

	full := providertest.With(labelled, providertest.Values{"hosts": r.Pool["hosts"]})
	ch := pool.Plan(full)
	planned, _ := providertest.Plain(ch.Planned).(providertest.Values)
	if files, _ := planned["files"].(providertest.Values); len(files) == 0 || len(ch.Replace)+len(ch.Errors) > 0 || planned["runc_version"] == nil || planned["runc_version"] == providertest.Unknown {
		t.Errorf("with a host: files %v, runc %v, replaced by %q, %s", planned["files"], planned["runc_version"], ch.Replace, ch.Failure())
	}
	before := r.Applied("k8s_worker_pool", r.Pool)
	ch = before.Plan(empty)
	planned, _ = providertest.Plain(ch.Planned).(providertest.Values)
	if files, _ := planned["files"].(providertest.Values); files == nil || len(files) > 0 || len(ch.Replace)+len(ch.Errors) > 0 || planned["runc_version"] != before.Get("runc_version") {
		t.Errorf("without hosts again: files %v, runc %v, replaced by %q, %s", planned["files"], planned["runc_version"], ch.Replace, ch.Failure())
	}
	// A host that is made in the same apply.
	for what, hosts := range map[string]any{"hosts": providertest.Unknown, "a host": []any{providertest.Unknown}} {
		ch := pool.Plan(providertest.With(labelled, providertest.Values{"hosts": hosts}))
		planned, _ := providertest.Plain(ch.Planned).(providertest.Values)
		if planned["runc_version"] != providertest.Unknown || planned["files"] != providertest.Unknown || ch.Failure() != "" {
			t.Errorf("%s not known yet: runc %v, files %v, %s", what, planned["runc_version"], planned["files"], ch.Failure())
		}
	}
	if unknown := r.Instance("k8s_worker_pool").Plan(providertest.With(r.Pool, providertest.Values{"hosts": providertest.Unknown})); unknown.Failure() != "" {
		t.Errorf("with hosts that are not known yet: %s", unknown.Failure())
	}
	if gone := pool.Dismiss(); len(gone.Errors)+len(gone.Warnings) > 0 {
		t.Errorf("destroyed: %v %v", gone.Errors, gone.Warnings)
	}
	if n := attempts.Load(); n > 0 {
		t.Errorf("%d connections were tried", n)
	}
	id, err := json.Marshal(providertest.Values{"hosts": []any{}, "control_plane": r.Pool["control_plane"]})
	if err != nil {
		t.Fatal(err)
	}
	providertest.Mention(t, r.Instance("k8s_worker_pool").TryImport(string(id)), "needs no import: an apply makes it")
}

// TestEmptyPoolForArm: a pool without hosts needs no downloads, for whatever processors.
func TestEmptyPoolForArm(t *testing.T) {
	t.Parallel()
	arm := strings.ReplaceAll(providertest.Downloads, "amd64", "arm64")
	c := providertest.NewCore(t, provider.New("test"), providertest.Values{"ssh": providertest.Values{"private_key": providertest.SSHKey(t)}, "artifact_checksums": arm, "artifact_mirror": "http://mirror.example.com"})
	r := providertest.NewRoles(t)
	pool := c.Instance("k8s_worker_pool")
	pool.Must(providertest.With(r.Pool, providertest.Values{"hosts": []any{}}))
	pool.Must(providertest.With(r.Pool, providertest.Values{"hosts": []any{}, "name": "blue"})) // its identity changes, too
	if pool.Get("id") != "demo/blue" {
		t.Errorf("the renamed pool is %v", pool.Get("id"))
	}
	pool.Must(providertest.With(r.Pool, providertest.Values{"hosts": []any{}}))
	host := providertest.With(r.Pool["hosts"].([]any)[0].(providertest.Values), providertest.Values{"architecture": "arm64"})
	if ch := pool.Plan(providertest.With(r.Pool, providertest.Values{"hosts": []any{host}})); ch.Failure() != "" {
		t.Error(ch.Failure())
	}
}

// TestPoolRenamed: the name of a pool changes in place.
func TestPoolRenamed(t *testing.T) {
	t.Parallel()
	r := providertest.NewRoles(t)
	pool := r.Applied("k8s_worker_pool", r.Pool)
	ch := pool.Plan(providertest.With(r.Pool, providertest.Values{"name": "blue"}))
	planned, _ := providertest.Plain(ch.Planned).(providertest.Values)
	if len(ch.Replace) > 0 || planned["id"] != "demo/blue" || ch.Failure() != "" {
		t.Errorf("replaced by %q, id %v, %s", ch.Replace, planned["id"], ch.Failure())
	}
	if files, _ := planned["files"].(providertest.Values); len(files) != len(pool.Files()) {
		t.Errorf("files %v", planned["files"])
	}
}

// TestSuccession: a plan that destroys a role on machines and makes it there in another resource is
// refused, in whatever order Terraform plans both. Moves of hosts are not refused.
func TestSuccession(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"the destruction", "the creation"} {
		r := providertest.NewRoles(t)
		for resource, config := range map[string]providertest.Values{"k8s_worker_pool": r.Pool, "k8s_control_plane": r.ControlPlane, "k8s_etcd_cluster": r.Etcd} {
			old, next := r.Applied(resource, config), r.Instance(resource)
			plans := []func() providertest.Change{func() providertest.Change { return old.Plan(nil) }, func() providertest.Change { return next.Plan(config) }}
			if first == "the creation" {
				plans[0], plans[1] = plans[1], plans[0]
			}
			if ch := plans[0](); ch.Failure() != "" {
				t.Errorf("%s, %s first: %s", resource, first, ch.Failure())
			}
			failure := plans[1]().Failure()
			providertest.Mention(t, failure, "Machines of a resource that is destroyed", "add a moved block", config["hosts"].([]any)[0].(providertest.Values)["name"].(string))
			if first == "the destruction" && !strings.HasPrefix(failure, `"hosts"`) {
				t.Errorf("the error is not on hosts: %s", failure)
			}
			if resource == "k8s_worker_pool" {
				providertest.Mention(t, failure, "hosts = []")
			}
		}
	}

	r := providertest.NewRoles(t)
	host := r.Pool["hosts"].([]any)[0].(providertest.Values)
	other := providertest.With(host, providertest.Values{"name": "worker-1", "address": "203.0.113.8", "private_ip": "10.240.0.21", "pod_cidr": "10.200.1.0/24"})
	blue, green := r.Applied("k8s_worker_pool", providertest.With(r.Pool, providertest.Values{"hosts": []any{host, other}})), r.Applied("k8s_worker_pool", providertest.With(r.Pool, providertest.Values{"hosts": []any{}}))
	r.Data.Successions = new(session.Successions)
	for i, hosts := range map[*providertest.Instance][]any{blue: {host}, green: {other}} {
		if ch := i.Plan(providertest.With(r.Pool, providertest.Values{"hosts": hosts})); ch.Failure() != "" || len(ch.Replace) > 0 {
			t.Errorf("a host that moves: %s", ch.Failure())
		}
	}
	// A replacement, and the object that create_before_destroy has left over.
	r.Data.Successions = new(session.Successions)
	if ch := blue.ByRequest(providertest.With(r.Pool, providertest.Values{"hosts": []any{host, other}})); ch.Failure() != "" {
		t.Error(ch.Failure())
	}
	deposed := *blue
	r.Data.Successions = new(session.Successions)
	for _, ch := range []providertest.Change{deposed.Plan(nil), blue.Plan(providertest.With(r.Pool, providertest.Values{"hosts": []any{host, other}}))} {
		if ch.Failure() != "" {
			t.Error(ch.Failure())
		}
	}
}
