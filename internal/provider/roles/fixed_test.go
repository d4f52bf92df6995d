package roles_test

import (
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
)

// TestFixedWithData: settings on which etcd's data depend do not change under a control plane,
// unless the same plan makes etcd anew.
func TestFixedWithData(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{"service_cidr": "10.96.0.0/16", "pod_cidr": "10.128.0.0/16", "domain": "k8s.example"} {
		r := providertest.NewRoles(t)
		base := providertest.With(r.ControlPlane, providertest.Values{"hosts": []any{providertest.With(r.ControlPlane["hosts"].([]any)[0].(providertest.Values), providertest.Values{"pod_cidr": nil})}})
		etcd, cp := r.Applied("k8s_etcd_cluster", r.Etcd), r.Applied("k8s_control_plane", base)
		changed := providertest.With(base, providertest.Values{name: value})
		refused := func(what string, ch providertest.Change) {
			t.Helper()
			if got := ch.Failure(); !strings.HasPrefix(got, `"`+name+`"`) || strings.Contains(got, "\n\"") {
				t.Errorf("%s, %s: the error is not on the argument: %s", name, what, got)
			}
			providertest.Mention(t, ch.Failure(), "A cluster keeps its "+name, "make a second cluster", "A snapshot of etcd does not help")
		}
		replaced := func(what string, ch providertest.Change) {
			t.Helper()
			if ch.Failure() != "" || len(ch.Replace) != 1 || !strings.Contains(ch.Replace[0], name) {
				t.Errorf("%s, %s: replaced by %q, %s", name, what, ch.Replace, ch.Failure())
			}
		}
		refused("etcd is not planned", cp.Plan(changed))
		if ch := etcd.Plan(r.Etcd); ch.Failure() != "" {
			t.Fatal(ch.Failure())
		}
		refused("etcd stays", cp.Plan(changed))
		refused("-replace of the control plane", cp.ByRequest(changed))
		if ch := cp.ByRequest(base); ch.Failure() != "" {
			t.Errorf("-replace with the same values: %s", ch.Failure())
		}
		if ch := cp.Plan(base); ch.Failure() != "" || len(ch.Replace) > 0 {
			t.Errorf("the same values: %s, %q", ch.Failure(), ch.Replace)
		}
		unknown := cp.Plan(providertest.With(base, providertest.Values{name: providertest.Unknown})).Failure()
		providertest.Mention(t, unknown, `"`+name+`"`, "its value in this plan is known only after the apply")

		if ch := etcd.ByRequest(r.Etcd); ch.Failure() != "" {
			t.Fatal(ch.Failure())
		}
		replaced("-replace of etcd", cp.Plan(changed))
		etcd.Plan(r.Etcd)
		refused("another plan, in which etcd stays", cp.Plan(changed))
		r.Instance("k8s_etcd_cluster").Plan(r.Etcd) // a tainted one is planned like this
		replaced("etcd is tainted", cp.Plan(changed))
		restored := providertest.With(r.Etcd, providertest.Values{"restore_from": providertest.Values{"bucket": "example-snapshots", "region": "us-east-1"}})
		if ch := r.Instance("k8s_etcd_cluster").Plan(restored); ch.Failure() != "" {
			t.Fatal(ch.Failure())
		}
		refused("etcd is restored from a snapshot", cp.Plan(changed))
		r.Data.Successions = new(session.Successions)
		if ch := cp.Plan(nil); ch.Failure() != "" {
			t.Errorf("destroyed: %s", ch.Failure())
		}
		r.Data.Successions = new(session.Successions)
		if ch := r.Instance("k8s_control_plane").Plan(changed); ch.Failure() != "" {
			t.Errorf("a new one: %s", ch.Failure())
		}
	}
}

// TestIssuerInUse: an issuer that has signed stays accepted for one apply more, and what decides is known to the plan.
func TestIssuerInUse(t *testing.T) {
	t.Parallel()
	const own, other = "https://kubernetes.default.svc.cluster.local", "https://oidc.example.com"
	r := providertest.NewRoles(t)
	r.Applied("k8s_etcd_cluster", r.Etcd)
	flags := func(issuers any) providertest.Values {
		return providertest.Values{"extra_args": providertest.Values{"kube_apiserver": providertest.Values{"service-account-issuer": issuers}}}
	}
	signs := providertest.With(r.ControlPlane, providertest.Values{"workload_identity": providertest.Values{"issuer": other}})
	cp := r.Applied("k8s_control_plane", signs)
	for name, tt := range map[string]struct {
		config providertest.Values
		words  []string
	}{
		"same":         {signs, nil},
		"off at once":  {r.ControlPlane, []string{`"workload_identity"`, "An issuer whose tokens are in use", `["` + own + `", "` + other + `"]`}},
		"off in two":   {providertest.With(r.ControlPlane, flags([]any{own, other})), nil},
		"by a flag":    {providertest.With(signs, flags([]any{own})), []string{`"extra_args"`, "An issuer whose tokens are in use"}},
		"no issuer":    {providertest.With(r.ControlPlane, providertest.Values{"workload_identity": providertest.Values{"issuer": "http://oidc.example.com"}}), []string{"must begin with https://"}},
		"another name": {providertest.With(r.ControlPlane, providertest.Values{"workload_identity": providertest.Values{"issuer": other, "cluster": "other"}}), []string{`"workload_identity"`}},
	} {
		got := cp.Plan(tt.config).Failure()
		if len(tt.words) == 0 && got != "" {
			t.Errorf("%s: %s", name, got)
		}
		providertest.Mention(t, got, tt.words...)
	}
}

// TestClusterKeepsItsName: an existing role does not move to another cluster.
func TestClusterKeepsItsName(t *testing.T) {
	t.Parallel()
	r := providertest.NewRoles(t)
	keys := r.Instance("k8s_pki")
	keys.Must(providertest.Values{"cluster": "other", "key_store": "state"})
	for resource, config := range map[string]providertest.Values{"k8s_etcd_cluster": r.Etcd, "k8s_control_plane": r.ControlPlane, "k8s_worker_pool": r.Pool} {
		changed := providertest.WithKeys(config, keys.Get("ref"))
		if lb, ok := config["lb"].(providertest.Values); ok {
			changed["lb"] = providertest.With(lb, providertest.Values{"cluster": "other"})
		}
		providertest.Mention(t, r.Applied(resource, config).Plan(changed).Failure(), "A cluster keeps its name", "belongs to cluster demo, and the keys belong to cluster other", "make a second cluster")
	}
}
