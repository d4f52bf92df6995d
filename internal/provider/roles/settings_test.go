package roles_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/workerpool"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/roles"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

var configured = struct{ controlPlane, pool providertest.Values }{
	providertest.Values{
		"authentication": providertest.Values{"jwt": []any{providertest.Values{"issuer": providertest.Values{"url": "https://login.example.com", "audiences": []any{"a"}},
			"claimMappings": providertest.Values{"username": providertest.Values{"claim": "sub", "prefix": ""}}}}},
		"access":           []any{providertest.Values{"group": "oidc:ops", "cluster_role": "view"}, providertest.Values{"user": "oidc:ada", "role": "deployer", "namespace": "team-a"}},
		"scheduler_config": providertest.Values{"percentageOfNodesToScore": 50, "profiles": []any{providertest.Values{"schedulerName": "a"}, providertest.Values{"schedulerName": "b"}}},
		"admission_plugins": providertest.Values{"PodSecurity": providertest.Values{"apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
			"defaults": providertest.Values{"enforce": "privileged"}}, "EventRateLimit": nil},
		"audit_policy": "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n", "early_renewal": "60h",
		"extra_args":    providertest.Values{"kube_apiserver": providertest.Values{"event-ttl": "31m"}, "kube_scheduler": providertest.Values{"v": "1"}},
		"allowed_cidrs": []any{"10.240.0.0/24", "198.51.100.0/24"},
		"node_cidrs":    []any{"10.240.0.0/24"}, "pod_routes": providertest.Values{"10.200.1.0/24": "10.240.0.21", "10.200.0.0/24": "10.240.0.20"},
	},
	providertest.Values{
		"kubelet_config": providertest.Values{"maxPods": 80, "memoryThrottlingFactor": 0.9, "evictionHard": providertest.Values{"memory.available": "5%", "nodefs.available": "10%"},
			"allowedUnsafeSysctls": []any{"net.core.somaxconn"}, "featureGates": nil},
		"kube_proxy_config": providertest.Values{"conntrack": providertest.Values{"maxPerCore": 0, "min": 0}},
		"containerd_config": providertest.Values{"oom_score": -998, "plugins": providertest.Values{"io.containerd.cri.v1.images": providertest.Values{"max_concurrent_downloads": 5}}},
		"extra_args":        providertest.Values{"kubelet": providertest.Values{"v": "2"}}, "drain_timeout": "10m", "allowed_cidrs": []any{"10.240.0.0/24"},
	},
}

// TestSettingsSettle checks that settings survive a round trip through the state file, and that a
// second plan is empty.
func TestSettingsSettle(t *testing.T) {
	t.Parallel()
	c := providertest.NewRoles(t)
	for name, config := range map[string]providertest.Values{
		"k8s_etcd_cluster":  providertest.With(c.Etcd, providertest.Values{"extra_args": providertest.Values{"etcd": providertest.Values{"election-timeout": "2000"}}}),
		"k8s_etcd_backup":   providertest.With(c.Backup(), providertest.Values{"interval": "15m", "keep_for": "48h", "before_changes": true}),
		"k8s_control_plane": providertest.With(c.ControlPlane, configured.controlPlane),
		"k8s_worker_pool":   providertest.With(c.Pool, configured.pool),
	} {
		i := c.Applied(name, config)
		if ch := i.Plan(config); !i.Empty(ch) {
			t.Errorf("%s: the second plan is not empty: %s\n%s", name, ch.Failure(), i.Differences(ch))
		}
	}
	for name, config := range map[string]providertest.Values{"k8s_control_plane": c.ControlPlane, "k8s_worker_pool": c.Pool} {
		for what, of := range map[string]any{"none": nil, "an empty one": providertest.Values{}, "a null of a type": tftypes.NewValue(tftypes.String, nil)} {
			more := providertest.Values{}
			for _, attribute := range []string{"scheduler_config", "admission_plugins", "kubelet_config", "kube_proxy_config", "containerd_config"} {
				if slices.ContainsFunc(c.Schemas.ResourceSchemas[name].Block.Attributes, func(a *tfprotov6.SchemaAttribute) bool { return a.Name == attribute }) {
					more[attribute] = of
				}
			}
			i := c.Applied(name, providertest.With(config, more))
			if ch := i.Plan(providertest.With(config, more)); !i.Empty(ch) {
				t.Errorf("%s, %s: the second plan is not empty: %s\n%s", name, what, ch.Failure(), i.Differences(ch))
			}
		}
	}
}

// TestEquivalentSettings checks that another spelling of a value plans nothing, and that another
// value changes the files that contain it.
func TestEquivalentSettings(t *testing.T) {
	t.Parallel()
	c := providertest.NewRoles(t)
	list := tftypes.NewValue(tftypes.List{ElementType: tftypes.String}, []tftypes.Value{tftypes.NewValue(tftypes.String, "net.core.somaxconn")})
	eviction := tftypes.NewValue(tftypes.Map{ElementType: tftypes.String}, map[string]tftypes.Value{
		"memory.available": tftypes.NewValue(tftypes.String, "5%"), "nodefs.available": tftypes.NewValue(tftypes.String, "10%")})
	pool, controllers := c.Applied("k8s_worker_pool", providertest.With(c.Pool, configured.pool)), c.Applied("k8s_control_plane", providertest.With(c.ControlPlane, configured.controlPlane))
	for what, test := range map[string]struct {
		of   *providertest.Instance
		more providertest.Values
	}{
		"a list, a map, another order": {pool, providertest.Values{"kubelet_config": providertest.Values{"featureGates": nil, "allowedUnsafeSysctls": list, "evictionHard": eviction, "memoryThrottlingFactor": 0.9, "maxPods": 80.0}}},
		"a duration in seconds":        {pool, providertest.Values{"drain_timeout": "600s"}},
		"a duration in minutes":        {controllers, providertest.Values{"early_renewal": "3600m"}},
		"a policy as JSON":             {controllers, providertest.Values{"audit_policy": `{"rules": [{"level": "Metadata"}], "kind": "Policy", "apiVersion": "audit.k8s.io/v1"}`}},
	} {
		config := providertest.With(providertest.With(c.Pool, configured.pool), test.more)
		if test.of == controllers {
			config = providertest.With(providertest.With(c.ControlPlane, configured.controlPlane), test.more)
		}
		if ch := test.of.Plan(config); !test.of.Empty(ch) {
			t.Errorf("%s: the plan is not empty: %s\n%s", what, ch.Failure(), test.of.Differences(ch))
		}
	}
	for what, more := range map[string]providertest.Values{
		"/etc/kubernetes/kubelet.yaml":    {"kubelet_config": providertest.Values{"maxPods": 81}},
		"/etc/kubernetes/kube-proxy.yaml": {"kube_proxy_config": nil},
		"/etc/containerd/config.toml":     {"containerd_config": providertest.Values{"oom_score": -997}},
	} {
		before := pool.Files()
		ch := pool.Plan(providertest.With(providertest.With(c.Pool, configured.pool), more))
		planned, _ := providertest.Plain(ch.Planned).(providertest.Values)
		after := providertest.FilesOf(planned)
		for file, digest := range after {
			if changed := digest != before[file]; changed != strings.HasSuffix(file, what) {
				t.Errorf("%s: changed is %t", file, changed)
			}
		}
	}
}

// TestEquivalentManifests checks that another spelling of the same objects plans nothing.
func TestEquivalentManifests(t *testing.T) {
	t.Parallel()
	c := providertest.NewRoles(t)
	quota := func(manifests ...any) providertest.Values {
		return providertest.Values{"name": "quota", "control_plane": c.Pool["control_plane"], "manifests": manifests}
	}
	const first = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: pods, namespace: default}\nspec: {hard: {pods: \"20\"}}\n"
	const second = "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n"
	addon := c.Applied("k8s_addon", quota(first, second))
	same := quota(`{"spec": {"hard": {"pods": "20"}}, "metadata": {"namespace": "default", "name": "pods"}, "kind": "ResourceQuota", "apiVersion": "v1"}`+"\n---\n"+second, "# nothing\n")
	if ch := addon.Plan(same); !addon.Empty(ch) {
		t.Errorf("the plan is not empty: %s\n%s", ch.Failure(), addon.Differences(ch))
	}
	for what, config := range map[string]providertest.Values{"another value": quota(strings.Replace(first, "20", "21", 1), second), "one less": quota(first), "not known yet": quota(first, providertest.Unknown)} {
		if ch := addon.Plan(config); ch.Failure() != "" || addon.Empty(ch) {
			t.Errorf("%s plans nothing: %s", what, ch.Failure())
		}
	}
}

// TestUnknownSettings checks that an object that is partly unknown is planned as it is, and that
// only the files are unknown until the apply.
func TestUnknownSettings(t *testing.T) {
	t.Parallel()
	c := providertest.NewRoles(t)
	for name, config := range map[string]providertest.Values{
		"k8s_control_plane": providertest.With(c.ControlPlane, providertest.Values{
			"scheduler_config":  providertest.Values{"percentageOfNodesToScore": providertest.Unknown, "noSuchField": true},
			"admission_plugins": providertest.Values{"PodSecurity": providertest.Unknown, "EventRateLimit": providertest.Values{"limits": []any{providertest.Unknown}}},
			"extra_args":        providertest.Values{"kube_apiserver": providertest.Unknown, "kube_scheduler": providertest.Values{"v": providertest.Unknown}},
		}),
		"k8s_worker_pool": providertest.With(c.Pool, providertest.Values{
			"kubelet_config": providertest.Values{"evictionHard": providertest.Values{"memory.available": providertest.Unknown}, "maxPods": 80}, "kube_proxy_config": providertest.Unknown, "extra_args": providertest.Unknown,
		}),
	} {
		ch := c.Instance(name).Plan(config)
		planned, _ := providertest.Plain(ch.Planned).(providertest.Values)
		if ch.Failure() != "" || planned["files"] != providertest.Unknown {
			t.Errorf("%s: %s: %v", name, ch.Failure(), planned["files"])
		}
		var before, after map[string]tftypes.Value
		_, _ = ch.Config.As(&before), ch.Planned.As(&after)
		for _, attribute := range []string{"scheduler_config", "admission_plugins", "extra_args", "kubelet_config", "kube_proxy_config"} {
			if v, ok := before[attribute]; ok && !v.Equal(after[attribute]) {
				t.Errorf("%s.%s is planned as %v", name, attribute, providertest.Plain(after[attribute]))
			}
		}
		if got := c.Instance("k8s_control_plane").Plan(providertest.With(c.ControlPlane, providertest.Values{"admission_plugins": providertest.Values{"NoSuchPlugin": providertest.Unknown}})).Failure(); !strings.Contains(got, `no admission plugin "NoSuchPlugin"`) {
			t.Errorf("the name of a plugin whose configuration is not known yet: %s", got)
		}
	}
}

// TestFlagErrors checks that the error is on the program and names the flag.
func TestFlagErrors(t *testing.T) {
	t.Parallel()
	c := providertest.NewRoles(t)
	for _, test := range []struct {
		resource        string
		config          providertest.Values
		args            providertest.Values
		at, names, want string
	}{
		{"k8s_control_plane", providertest.With(c.ControlPlane, providertest.Values{"version": "1.37.1"}), providertest.Values{"kube_apiserver": providertest.Values{"runtime-config": "scheduling.k8s.io/v1alpha2=true", "v": "2"}},
			`"extra_args").ElementKeyString("kube_apiserver")`, `extra_args.kube_apiserver["runtime-config"]: `, "does not start with --runtime-config=scheduling.k8s.io/v1alpha2=true"},
		{"k8s_control_plane", c.ControlPlane, providertest.Values{"kube_apiserver": providertest.Values{"enable-admission-plugins": "NodeRestriction,podsecurity"}},
			`"extra_args").ElementKeyString("kube_apiserver")`, `extra_args.kube_apiserver["enable-admission-plugins"]: `, "did you mean PodSecurity?"},
		{"k8s_etcd_cluster", c.Etcd, providertest.Values{"etcd": providertest.Values{"quota-backend-bytes": "1"}}, `"extra_args").ElementKeyString("etcd")`,
			`extra_args.etcd["quota-backend-bytes"]: `, "use the argument quota_mib instead"},
		{"k8s_etcd_cluster", c.Etcd, providertest.Values{"etcd": providertest.Values{"--name": "1"}}, `"extra_args").ElementKeyString("etcd")`, `extra_args.etcd["--name"]: `, "without leading dashes"},
		{"k8s_etcd_cluster", c.Etcd, providertest.Values{"etcd": providertest.Values{"logLevel": "1"}}, `"extra_args").ElementKeyString("etcd")`, `extra_args.etcd["logLevel"]: `, "in lower case"},
		{"k8s_etcd_cluster", c.Etcd, providertest.Values{"etcd": providertest.Values{"name-": "1"}}, `"extra_args").ElementKeyString("etcd")`, `extra_args.etcd["name-"]: `, "in lower case"},
		{"k8s_etcd_cluster", c.Etcd, providertest.Values{"etcd": providertest.Values{"log-level": "a\nb"}}, `"extra_args").ElementKeyString("etcd")`, `extra_args.etcd["log-level"]: `, "line break"},
		{"k8s_etcd_cluster", c.Etcd, providertest.Values{"etcd": providertest.Values{"log-level": []any{"a", "b\nc"}}}, `"extra_args").ElementKeyString("etcd")`, `extra_args.etcd["log-level"]: `, "line break"},
		{"k8s_etcd_cluster", c.Etcd, providertest.Values{"etcd": providertest.Values{"log-level": []any{}}}, `"extra_args").ElementKeyString("etcd")`, `extra_args.etcd["log-level"]: `, "a value, a list of values, or null"},
		{"k8s_etcd_cluster", c.Etcd, providertest.Values{"etcd": providertest.Values{"log-level": providertest.Values{"a": "b"}}}, `"extra_args").ElementKeyString("etcd")`, `extra_args.etcd["log-level"]: `, "a value, a list of values, or null"},
	} {
		got := c.Instance(test.resource).Plan(providertest.With(test.config, providertest.Values{"extra_args": test.args})).Failure()
		if !strings.HasPrefix(got, test.at) || !strings.Contains(got, test.names) || !strings.Contains(got, test.want) || strings.Count(got, "\n") > 0 {
			t.Errorf("%s %v: got %q, wanted %q on %s", test.resource, test.args, got, test.want, test.at)
		}
	}
	got := c.Instance("k8s_control_plane").Plan(providertest.With(c.ControlPlane, providertest.Values{"admission_plugins": providertest.Values{"PodSecurity": providertest.Values{}, "podSecurity": providertest.Values{}}})).Failure()
	if !strings.HasPrefix(got, `"admission_plugins").ElementKeyString("podSecurity")`) {
		t.Errorf("got %q", got)
	}
}

// TestImportedSettings checks that an import id takes arguments in the form of HCL, and that the
// import writes settings to the state in the same form.
func TestImportedSettings(t *testing.T) {
	c := providertest.NewRoles(t)
	var described resource.SchemaResponse
	roles.NewWorkerPool().Schema(t.Context(), resource.SchemaRequest{}, &described)
	read := func(more providertest.Values) (tfsdk.State, error) {
		id, err := json.Marshal(providertest.With(c.Pool, more))
		if err != nil {
			t.Fatal(err)
		}
		state := tfsdk.State{Schema: described.Schema}
		return state, reference.ReadImportID(t.Context(), (&session.Session{}), string(id), []string{"hosts", "control_plane"}, nil, &state)
	}
	state, err := read(providertest.Values{"kubelet_config": providertest.Values{"maxPods": 80, "a": []any{"b"}}, "kube_proxy_config": nil, "extra_args": providertest.Values{"kubelet": providertest.Values{"v": "2"}}})
	if err != nil {
		t.Fatal(err)
	}
	var m roles.WorkerPoolModel
	if diags := state.Get(t.Context(), &m); diags.HasError() {
		t.Fatal(diags)
	}
	if got, err := m.KubeletConfig.ToTerraformValue(t.Context()); err != nil || !got.Equal(providertest.Literal(providertest.Values{"maxPods": 80, "a": []any{"b"}})) {
		t.Errorf("kubelet_config is %v, %v", got, err)
	}
	if !m.KubeProxyConfig.IsNull() || !m.ContainerdConfig.IsNull() || roles.ExtraArgs(m.ExtraArgs, artifact.Kubelet)["v"][0] != "2" {
		t.Errorf("kube_proxy_config %v, containerd_config %v, extra_args %v", m.KubeProxyConfig, m.ContainerdConfig, m.ExtraArgs)
	}
	if _, err := read(providertest.Values{"kubelet_config": "{}"}); err == nil || !strings.Contains(err.Error(), "kubelet_config in the import id is not an object") {
		t.Errorf("got %v", err)
	}

	found := map[string]any{"maxPods": float64(80), "evictionHard": map[string]any{"memory.available": "5%"}} // as YAML is decoded
	want := providertest.Literal(providertest.Values{"maxPods": 80, "evictionHard": providertest.Values{"memory.available": "5%"}})
	if got, err := roles.ObjectValue(found).ToTerraformValue(t.Context()); err != nil || !got.Equal(want) {
		t.Errorf("what was found is %v, %v", got, err)
	}
	all, m := roles.WorkerPoolSettings(), roles.WorkerPoolModel{CNI: types.StringValue("given")}
	pool := workerpool.Pool{Spec: component.WorkerSpec{CNI: component.CNISpec{Network: "found"}, Kubelet: component.KubeletSpec{Args: component.Args{"v": {"1", "2"}}}}}
	all.FromSpec(t.Context(), &pool, &m)
	if m.CNI.ValueString() != "given" || !m.KubeletConfig.IsNull() {
		t.Errorf("a given value is not kept, or a missing one has a value: %v", m)
	}
	if got := roles.ExtraArgs(m.ExtraArgs, artifact.Kubelet)["v"]; !slices.Equal(got, []string{"1", "2"}) || !m.ExtraArgs.Attributes()["kube_proxy"].IsNull() {
		t.Errorf("flags found are %v", m.ExtraArgs)
	}
	if none := roles.FlagsValue(nil); !none.IsNull() {
		t.Errorf("no flags are %v", none)
	}
}

// TestSettingsThereAndBack checks that each setting alone is converted to its own field and back to
// the same argument.
func TestSettingsThereAndBack(t *testing.T) {
	placed := providertest.Values{"/etc/a": providertest.Values{"content": "a", "mode": "0640", "owner": "a", "group": "7", "restarts": []any{"b.service", "a.service"}},
		"/etc/b": providertest.Values{"content_wo_version": 3}}
	thereAndBack(t, roles.NewEtcdCluster(), roles.EtcdSettings(), providertest.Values{
		"extra_files": placed, "version": "3.6.16", "quota_mib": 2048, "allowed_cidrs": []any{"10.240.0.0/24"}, "extra_args": providertest.Values{"etcd": providertest.Values{"v": "1"}}, "early_renewal": "60h0m0s",
	})
	thereAndBack(t, roles.NewEtcdBackup(), roles.EtcdBackupSettings(), providertest.Values{
		"extra_files": placed, "bucket": "example-snapshots", "region": "eu-west-1", "prefix": "a/", "endpoint": "http://10.0.0.1:9000", "kms_key_id": "alias/a", "interval": "15m0s", "keep": 7, "keep_for": "48h0m0s",
		"before_changes": false,
	})
	controlPlane := providertest.With(configured.controlPlane, providertest.Values{
		"extra_files": placed, "version": "1.36.4", "pod_cidr": "10.1.0.0/16", "service_cidr": "10.2.0.0/24", "dns_ip": "10.2.0.7", "domain": "x.y", "extra_sans": []any{"a", "b"},
		"admission_plugins": providertest.Values{"PodSecurity": providertest.Values{"kind": "PodSecurityConfiguration"}}, "early_renewal": "60h0m0s",
		"workload_identity": providertest.Values{"issuer": "https://oidc.example.com"},
	})
	thereAndBack(t, roles.NewControlPlane(), roles.ControlPlaneSettings(), controlPlane)
	thereAndBack(t, roles.NewWorkerPool(), roles.WorkerPoolSettings(), providertest.With(configured.pool, providertest.Values{
		"extra_files": placed, "version": "1.36.4", "containerd_version": "2.3.7", "runc_version": "1.5.2", "cni_plugins_version": "1.9.1", "cni": "none", "kube_proxy": false, "sandbox_image": "pause",
		"labels": providertest.Values{"a": "b"}, "taints": []any{providertest.Values{"key": "a", "effect": "NoSchedule"}}, "registries": providertest.Values{"*": providertest.Values{"mirrors": []any{providertest.Values{"url": "https://m", "ca_pem": "x", "user": "u", "password_wo_version": 2}}}},
		"max_unavailable": 3, "drain_timeout": "10m0s", "early_renewal": "60h0m0s",
	}))
	thereAndBack(t, roles.NewLB(), roles.LBSettings(), providertest.Values{"extra_files": placed, "port": 7443, "virtual_ip": "10.240.0.9", "former_virtual_ips": []any{"10.240.0.8"}, "virtual_router_id": 7, "allowed_cidrs": []any{"10.240.0.0/24"}, "check_interval": "2.5s"})
}

func thereAndBack[M, S any](t *testing.T, r resource.Resource, all roles.Settings[M, S], configured providertest.Values) {
	t.Helper()
	var described resource.SchemaResponse
	r.Schema(t.Context(), resource.SchemaRequest{}, &described)
	typ := described.Schema.Type().TerraformType(t.Context())
	var none S
	for name, one := range all {
		if configured[name] == nil {
			t.Errorf("%s: nothing to try it with", name)
			continue
		}
		var before, after M
		var s S
		state := tfsdk.State{Schema: described.Schema, Raw: providertest.Build(typ, providertest.Values{name: configured[name]})}
		if diags := state.Get(t.Context(), &before); diags.HasError() {
			t.Fatal(name, diags)
		}
		empty := tfsdk.State{Schema: described.Schema, Raw: providertest.Build(typ, providertest.Values{})}
		if diags := empty.Get(t.Context(), &after); diags.HasError() {
			t.Fatal(name, diags)
		}
		if one.ToSpec(t.Context(), &before, &s); reflect.DeepEqual(s, none) {
			t.Errorf("%s goes nowhere", name)
		}
		one.FromSpec(t.Context(), &s, &after)
		if diags := empty.Set(t.Context(), &after); diags.HasError() {
			t.Fatal(name, diags)
		}
		if diffs, err := state.Raw.Diff(empty.Raw); err != nil || len(diffs) > 0 {
			t.Errorf("%s does not come back: %v %v", name, diffs, err)
		}
		s = none
		if one.ToSpec(t.Context(), new(M), &s); !reflect.DeepEqual(s, none) {
			t.Errorf("nothing for %s is %v", name, s)
		}
	}
}

// TestReferences checks that every reference fits its model.
func TestReferences(t *testing.T) {
	roundTrip(t, "host", reference.OfHost)
	roundTrip(t, "subnet", reference.OfSubnet)
	roundTrip(t, "network", reference.OfNetwork)
	roundTrip(t, "pki", reference.OfPKI)
	roundTrip(t, "lb", reference.OfLB)
	roundTrip(t, "etcd", reference.OfEtcd)
	roundTrip(t, "control plane", reference.OfControlPlane)
	roundTrip(t, "taint", roles.OfTaint)
}

func roundTrip[M any](t *testing.T, name string, r tf.Reference[M]) {
	t.Helper()
	nothing := map[string]attr.Value{}
	for attribute, typ := range r.Type().AttrTypes {
		v, err := typ.ValueFromTerraform(t.Context(), tftypes.NewValue(typ.TerraformType(t.Context()), nil))
		if err != nil {
			t.Fatal(err)
		}
		nothing[attribute] = v
	}
	var diags diag.Diagnostics
	want := types.ObjectValueMust(r.Type().AttrTypes, nothing)
	m, ok := r.Read(t.Context(), want, &diags)
	if !ok {
		t.Errorf("%s: %v", name, diags)
		return
	}
	if got := r.Value(t.Context(), m); !got.Equal(want) {
		t.Errorf("%s: got %v, wanted %v", name, got, want)
	}
}
