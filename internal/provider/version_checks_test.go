package provider_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

var (
	newPool        = providertest.Values{"version": "1.36.4", "hosts": providertest.Unknown, "control_plane": providertest.Unknown}
	newControllers = providertest.Values{"version": "1.36.4", "hosts": providertest.Unknown, "etcd": providertest.Unknown, "lb": providertest.Unknown}
)

// TestNotInRelease checks that an argument that only some releases support is an error on that
// argument for the others.
func TestNotInRelease(t *testing.T) {
	t.Parallel()
	c := providertest.OfflineCore(t)
	for _, test := range []struct {
		resource  string
		config    providertest.Values
		name      string
		value     any
		good, bad string // versions
		want      string
	}{
		{"k8s_worker_pool", newPool, "kubelet_config", providertest.Values{"defaultPodSysctls": providertest.Values{}}, "1.37.1", "1.36.4", "kubelet 1.36.4 does not know defaultPodSysctls"},
		{"k8s_control_plane", newControllers, "extra_args", providertest.Values{"kube_apiserver": providertest.Values{"runtime-config": "scheduling.k8s.io/v1alpha2=true", "v": providertest.Unknown}}, "1.36.4", "1.37.1", "kube-apiserver 1.37.1 does not start with --runtime-config=scheduling.k8s.io/v1alpha2=true"},
		{"k8s_control_plane", newControllers, "scheduler_config", providertest.Values{"profiles": []any{providertest.Values{"plugins": providertest.Values{"placementScore": providertest.Values{}}}}}, "1.36.4", "1.35.8", "kube-scheduler 1.35.8 does not know placementScore"},
		{"k8s_control_plane", newControllers, "admission_plugins", providertest.Values{"JobValidation": providertest.Values{}}, "1.36.4", "1.37.1", "removed in 1.37"},
	} {
		config := maps.Clone(test.config)
		config[test.name] = test.value
		for version, want := range map[string]string{test.good: "", test.bad: test.want} {
			config["version"] = version
			got := c.Instance(test.resource).Plan(config).Failure()
			if (got == "") != (want == "") || !strings.Contains(got, want) || got != "" && !strings.HasPrefix(got, `"`+test.name+`"`) {
				t.Errorf("%s = %v in %s: got %q", test.name, test.value, version, got)
			}
		}
	}
}

// TestChangedMeaning checks that a plan warns of a setting whose meaning changes with the release,
// only in the plan that changes the version.
func TestChangedMeaning(t *testing.T) {
	t.Parallel()
	i := providertest.OfflineCore(t).Instance("k8s_worker_pool")
	config := maps.Clone(newPool)
	config["kubelet_config"] = providertest.Values{"eventRecordQPS": 0}
	for _, test := range []struct {
		from, to string
		warnings int
	}{{"1.36.4", "1.36.4", 0}, {"1.36.4", "1.37.1", 1}, {"1.37.0", "1.37.1", 0}} {
		config["version"] = test.from
		settle(t, i, config)
		config["version"] = test.to
		said := i.Plan(config)
		if len(said.Warnings) != test.warnings || said.Failure() != "" {
			t.Fatalf("%s to %s: %s%v", test.from, test.to, said.Failure(), said.Warnings)
		}
		for _, w := range said.Warnings {
			if !strings.HasPrefix(w.Detail, "eventRecordQPS: 0 lets kubelet 1.37.1 report events without any limit") || !strings.Contains(fmt.Sprint(w.Attribute), `"version"`) {
				t.Errorf("%s to %s: %v: %s", test.from, test.to, w.Attribute, w.Detail)
			}
		}
	}
}

// settle makes the state of an instance what a plan of a creation says, with null for unknown
// values.
func settle(t *testing.T, i *providertest.Instance, config providertest.Values) {
	t.Helper()
	i.State = tftypes.NewValue(i.Schema.ValueType(), nil)
	was, err := tftypes.Transform(i.Plan(config).Planned, func(_ *tftypes.AttributePath, v tftypes.Value) (tftypes.Value, error) {
		if !v.IsKnown() {
			return tftypes.NewValue(v.Type(), nil), nil
		}
		return v, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	i.State = was
}

// TestDrainIsPlanned checks that a plan warns of a setting of the kubelet for which nodes are drained.
func TestDrainIsPlanned(t *testing.T) {
	t.Parallel()
	i := providertest.OfflineCore(t).Instance("k8s_worker_pool")
	config := maps.Clone(newPool)
	static := providertest.Values{"cpuManagerPolicy": "static"}
	for _, test := range []struct {
		from, to any
		warns    bool
	}{
		{nil, static, true}, {static, nil, true}, {static, static, false}, {nil, providertest.Values{"maxPods": 50}, false},
		{static, providertest.Values{"cpuManagerPolicy": providertest.Unknown}, false},
	} {
		config["kubelet_config"] = test.from
		settle(t, i, config)
		config["kubelet_config"] = test.to
		said := i.Plan(config)
		if said.Failure() != "" || (len(said.Warnings) == 1) != test.warns {
			t.Fatalf("%v to %v: %s%v", test.from, test.to, said.Failure(), said.Warnings)
		}
		for _, w := range said.Warnings {
			if !strings.Contains(w.Detail, "places pods by cpuManagerPolicy,") || !strings.Contains(fmt.Sprint(w.Attribute), `"kubelet_config"`) {
				t.Errorf("%v to %v: %v: %s", test.from, test.to, w.Attribute, w.Detail)
			}
		}
	}
}

// TestFixedFlags checks that a flag that says where objects are stored can be set for a new
// cluster, and not changed.
func TestFixedFlags(t *testing.T) {
	t.Parallel()
	i := providertest.OfflineCore(t).Instance("k8s_control_plane")
	config := maps.Clone(newControllers)
	at := func(prefix string) providertest.Values {
		return providertest.Values{"kube_apiserver": providertest.Values{"etcd-prefix": prefix}}
	}
	for _, test := range []struct {
		from, to any
		want     string
	}{
		{nil, at("/other"), "the present objects would not be found"}, {at("/other"), nil, `set it back to "/other"`},
		{at("/other"), at("/other"), ""}, {at("/other"), providertest.Unknown, ""},
	} {
		config["extra_args"] = test.from
		settle(t, i, config)
		config["extra_args"] = test.to
		if got := i.Plan(config).Failure(); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%v to %v: %q, wanted %q", test.from, test.to, got, test.want)
		}
	}
}

// TestUnknownChecksum checks that, with an unencrypted mirror, a version without a checksum is
// refused before anything is changed, even if other versions have one.
func TestUnknownChecksum(t *testing.T) {
	t.Parallel()
	const file = "github.com/etcd-io/etcd/releases/download/v3.6.16/etcd-v3.6.16-linux-amd64.tar.gz"
	for mirror, want := range map[string]string{
		"http://mirror.example.com":  "etcd 3.7.3: checksum is not known, and one fetched over http:// would prove nothing: add github.com/etcd-io/etcd/releases/download/v3.7.3/",
		"https://mirror.example.com": "",
	} {
		c := providertest.NewCore(t, provider.New("test"), providertest.Values{
			"ssh": providertest.Values{"private_key": providertest.SSHKey(t)}, "artifact_mirror": mirror, "artifact_checksums": strings.Repeat("0", 64) + "  " + file,
		})
		keys := c.Instance("k8s_pki")
		keys.Must(providertest.Values{"cluster": "demo", "key_store": "state"})
		host := providertest.Values{"name": "controller-0", "address": "203.0.113.9", "private_ip": "10.240.0.10", "host_key": providertest.PublicKey(t)}
		for version, want := range map[string]string{"3.6.16": "", "3.7.3": want} {
			got := c.Instance("k8s_etcd_cluster").Plan(providertest.Values{"version": version, "hosts": []any{host}, "pki": keys.Get("ref")}).Failure()
			if (got == "") != (want == "") || !strings.Contains(got, want) || got != "" && !strings.HasPrefix(got, `"version"`) {
				t.Errorf("%s over %s: got %q", version, mirror, got)
			}
		}
	}
}

// TestReleaseOfAddonIsGone: an addon whose release is no longer built in is refreshed, gets another release and is
// destroyed. A plan that keeps the release is an error. Nothing answers at the cluster's endpoint.
func TestReleaseOfAddonIsGone(t *testing.T) {
	t.Parallel()
	r := providertest.NewRoles(t)
	cp, _ := r.Pool["control_plane"].(providertest.Values)
	config := providertest.Values{"name": "coredns", "version": "1.14.6", "control_plane": providertest.With(cp, providertest.Values{"endpoint": "https://127.0.0.1:1"})}
	i := r.Applied("k8s_addon", config)
	var attributes map[string]tftypes.Value
	if err := i.State.As(&attributes); err != nil {
		t.Fatal(err)
	}
	attributes["version"] = tftypes.NewValue(tftypes.String, "1.2.3")
	i.State = tftypes.NewValue(i.Schema.ValueType(), attributes)

	if seen := i.TryLook(); len(seen.Errors) > 0 || i.Get("version") != "1.2.3" {
		t.Errorf("the refresh says %q", seen.Failure())
	}
	if said := i.Plan(providertest.With(config, providertest.Values{"version": "1.2.3"})).Failure(); !strings.Contains(said, `"version"): Unknown release`) {
		t.Errorf("the release that is gone is planned: %q", said)
	}
	for _, version := range []any{"1.14.6", nil} {
		if ch := i.Plan(providertest.With(config, providertest.Values{"version": version})); ch.Failure() != "" || len(ch.Replace) > 0 || i.Empty(ch) {
			t.Errorf("release %v is planned as %q, replace %v", version, ch.Failure(), ch.Replace)
		}
	}
	if gone := i.Dismiss(); len(gone.Errors) > 0 || !i.State.IsNull() {
		t.Errorf("destroyed: %s", gone.Failure())
	}
}
