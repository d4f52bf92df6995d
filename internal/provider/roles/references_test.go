package roles_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestReferencesCarryKeys: the keys go from k8s_etcd_cluster to the control plane, and from there
// to the resources that refer to it. A plan in which the keys are not known yet refuses nothing.
func TestReferencesCarryKeys(t *testing.T) {
	t.Parallel()
	r := providertest.NewRoles(t)
	keys := r.Etcd["pki"]
	carried := func(i *providertest.Instance) any { return i.Get("ref").(providertest.Values)["pki"] }

	etcd := r.Applied("k8s_etcd_cluster", r.Etcd)
	if !reflect.DeepEqual(carried(etcd), keys) {
		t.Errorf("etcd carries %v", carried(etcd))
	}
	config := providertest.With(r.ControlPlane, providertest.Values{"etcd": etcd.Get("ref")})
	controllers := r.Applied("k8s_control_plane", config)
	if !reflect.DeepEqual(carried(controllers), keys) {
		t.Errorf("the control plane carries %v", carried(controllers))
	}
	if said := controllers.Plan(config); !controllers.Empty(said) {
		t.Errorf("the second plan: %s%s", said.Failure(), controllers.Differences(said))
	}
	pool := providertest.With(r.Pool, providertest.Values{"control_plane": controllers.Get("ref")})
	if id := r.Applied("k8s_worker_pool", pool).Get("id"); id != "demo/workers" {
		t.Errorf("the pool is %v", id)
	}

	unknown := func(of providertest.Values) providertest.Values {
		return providertest.With(of, providertest.Values{"pki": providertest.Unknown})
	}
	for resource, config := range map[string]providertest.Values{
		"k8s_etcd_cluster":  unknown(r.Etcd),
		"k8s_etcd_backup":   providertest.With(r.Backup(), providertest.Values{"etcd": unknown(r.ControlPlane["etcd"].(providertest.Values))}),
		"k8s_control_plane": providertest.With(r.ControlPlane, providertest.Values{"etcd": unknown(r.ControlPlane["etcd"].(providertest.Values))}),
		"k8s_worker_pool":   providertest.With(r.Pool, providertest.Values{"control_plane": unknown(r.Pool["control_plane"].(providertest.Values))}),
		"k8s_addon":         {"name": "coredns", "control_plane": unknown(r.Pool["control_plane"].(providertest.Values))},
		"k8s_kubeconfig":    {"control_plane": unknown(r.Pool["control_plane"].(providertest.Values))},
	} {
		if said := r.Instance(resource).Plan(config).Failure(); said != "" {
			t.Errorf("%s with keys that are not known yet: %s", resource, said)
		}
	}
}

// TestPoolFollowsControlPlane: without a version of its own, a pool has the release of the API servers.
func TestPoolFollowsControlPlane(t *testing.T) {
	t.Parallel()
	r := providertest.NewRoles(t)
	of := func(version any) providertest.Values {
		cp := providertest.With(r.Pool["control_plane"].(providertest.Values), providertest.Values{"version": version})
		return providertest.With(r.Pool, providertest.Values{"control_plane": cp, "version": nil})
	}
	pool := r.Applied("k8s_worker_pool", of("1.36.4"))
	if pool.Get("version") != "1.36.4" {
		t.Errorf("it has %v", pool.Get("version"))
	}
	for _, tt := range []struct {
		name   string
		config providertest.Values
		want   any
	}{
		{"the same", of("1.36.4"), "1.36.4"},
		{"an upgrade", of("1.36.5"), "1.36.5"},
		{"a release that is not known yet", of(providertest.Unknown), providertest.Unknown},
		{"its own", providertest.With(of("1.36.5"), providertest.Values{"version": "1.36.4"}), "1.36.4"},
		{"its own without a release of the API servers", providertest.With(of(providertest.Unknown), providertest.Values{"version": "1.36.4"}), "1.36.4"},
	} {
		if got := providertest.Plain(pool.Plan(tt.config).Planned).(providertest.Values)["version"]; got != tt.want {
			t.Errorf("%s: %v, wanted %v", tt.name, got, tt.want)
		}
	}
}

// TestBalancerOfAnotherCluster: the keys of another cluster replace the load balancer and its address, and a rotation
// does not.
func TestBalancerOfAnotherCluster(t *testing.T) {
	t.Parallel()
	r := providertest.NewRoles(t)
	lb := providertest.Values{"host": r.Pool["hosts"].([]any)[0], "controllers": r.Etcd["hosts"], "pki": r.Etcd["pki"]}
	i := r.Applied("k8s_lb", lb)
	for name, replaced := range map[string]bool{"demo": false, "other": true} {
		keys := r.Instance("k8s_pki")
		keys.Must(providertest.Values{"cluster": name, "key_store": "state"})
		said := i.Plan(providertest.With(lb, providertest.Values{"pki": keys.Get("ref")}))
		if at := slices.ContainsFunc(said.Replace, func(p string) bool { return strings.Contains(p, "pki") }); at != replaced || said.Failure() != "" {
			t.Errorf("keys of %s: replaced by %q: %s", name, said.Replace, said.Failure())
		}
	}
}

// TestImportByNameOfKeys: in an import id, a reference has the name of the cluster instead of its keys.
func TestImportByNameOfKeys(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	keys := c.Instance("k8s_pki")
	keys.Must(providertest.Values{"cluster": "demo"})
	r := providertest.NewRoles(t)
	for name, want := range map[string]string{"demo": "needs no import", "other": "other"} {
		cp := providertest.With(r.Pool["control_plane"].(providertest.Values), providertest.Values{"pki": name})
		id, err := json.Marshal(providertest.Values{"hosts": []any{}, "control_plane": cp})
		if err != nil {
			t.Fatal(err)
		}
		said := c.Instance("k8s_worker_pool").TryImport(string(id))
		if providertest.Mention(t, said, want); name == "other" && strings.Contains(said, "needs no import") {
			t.Errorf("keys that do not exist: %s", said)
		}
	}
}
