package provider

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

var (
	newPool        = values{"version": "1.36.4", "hosts": unknown, "pki": unknown, "control_plane": unknown}
	newControllers = values{"version": "1.36.4", "hosts": unknown, "pki": unknown, "etcd": unknown, "lb": unknown}
	newEtcd        = values{"cluster": "demo", "hosts": unknown, "pki": unknown}
)

// offlineCore returns a provider without network access.
func offlineCore(t *testing.T) *core {
	t.Helper()
	return newCore(t, New("test"), values{
		"region": "us-east-1", "access_key": "a", "secret_key": "b", "endpoints": values{"ec2": "http://127.0.0.1:1"},
		"ssh": values{"private_key": sshKey(t)},
	})
}

// TestNotInRelease checks that an argument that only some releases support is an error on that
// argument for the others.
func TestNotInRelease(t *testing.T) {
	t.Parallel()
	c := offlineCore(t)
	for _, test := range []struct {
		resource  string
		config    values
		name      string
		value     any
		good, bad string // versions
		want      string
	}{
		{"k8s_worker_pool", newPool, "extra_args", values{"kubelet": values{"boot-id-file": unknown, "v": "2"}}, "1.36.4", "1.37.1", "kubelet 1.37.1 does not start with --boot-id-file"},
		{"k8s_worker_pool", newPool, "kubelet_config", values{"defaultPodSysctls": values{}}, "1.37.1", "1.36.4", "kubelet 1.36.4 does not know defaultPodSysctls"},
		{"k8s_control_plane", newControllers, "extra_args", values{"kube_controller_manager": values{"concurrent-service-syncs": "2"}}, "1.36.4", "1.37.1", "kube-controller-manager 1.37.1 does not start with"},
		{"k8s_control_plane", newControllers, "scheduler_config", values{"profiles": []any{values{"plugins": values{"placementScore": values{}}}}}, "1.36.4", "1.35.8", "kube-scheduler 1.35.8 does not know placementScore"},
		{"k8s_control_plane", newControllers, "admission_plugins", values{"JobValidation": values{}}, "1.36.4", "1.37.1", "gone since 1.37"},
		{"k8s_etcd_cluster", newEtcd, "extra_args", values{"etcd": values{"experimental-corrupt-check-time": "1m"}}, "3.6.16", "3.7.3", "etcd 3.7.3 does not start with"},
	} {
		config := maps.Clone(test.config)
		config[test.name] = test.value
		for version, want := range map[string]string{test.good: "", test.bad: test.want} {
			config["version"] = version
			got := c.instance(test.resource).plan(config).failure()
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
	i := offlineCore(t).instance("k8s_worker_pool")
	config := maps.Clone(newPool)
	config["kubelet_config"] = values{"eventRecordQPS": 0}
	for _, test := range []struct {
		from, to string
		warnings int
	}{{"1.36.4", "1.36.4", 0}, {"1.36.4", "1.37.1", 1}, {"1.37.0", "1.37.1", 0}} {
		i.state = tftypes.NewValue(i.schema.ValueType(), nil)
		config["version"] = test.from
		was, err := tftypes.Transform(i.plan(config).planned, func(_ *tftypes.AttributePath, v tftypes.Value) (tftypes.Value, error) {
			if !v.IsKnown() {
				return tftypes.NewValue(v.Type(), nil), nil
			}
			return v, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		i.state = was
		config["version"] = test.to
		said := i.plan(config)
		if len(said.warnings) != test.warnings || said.failure() != "" {
			t.Fatalf("%s to %s: %s%v", test.from, test.to, said.failure(), said.warnings)
		}
		for _, w := range said.warnings {
			if !strings.HasPrefix(w.Detail, "eventRecordQPS: 0 lets kubelet 1.37.1 report events without any limit") || !strings.Contains(fmt.Sprint(w.Attribute), `"version"`) {
				t.Errorf("%s to %s: %v: %s", test.from, test.to, w.Attribute, w.Detail)
			}
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
		c := newCore(t, New("test"), values{
			"ssh": values{"private_key": sshKey(t)}, "artifact_mirror": mirror, "artifact_checksums": strings.Repeat("0", 64) + "  " + file,
		})
		keys := c.instance("k8s_pki")
		keys.must(values{"cluster": "demo", "key_store": "state"})
		host := values{"name": "controller-0", "address": "203.0.113.9", "private_ip": "10.240.0.10", "host_key": publicKey(t)}
		for version, want := range map[string]string{"3.6.16": "", "3.7.3": want} {
			got := c.instance("k8s_etcd_cluster").plan(values{"version": version, "hosts": []any{host}, "pki": keys.get("ref")}).failure()
			if (got == "") != (want == "") || !strings.Contains(got, want) || got != "" && !strings.HasPrefix(got, `"version"`) {
				t.Errorf("%s over %s: got %q", version, mirror, got)
			}
		}
	}
}
