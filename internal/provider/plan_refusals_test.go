package provider

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
)

// refusal is a configuration that a plan must refuse.
type refusal struct {
	resource string
	config   values
	name     string
	value    any
	want     string // part of the error, which must be on the attribute
}

func (r refusal) try(t *testing.T, c *core) {
	t.Helper()
	config := maps.Clone(r.config)
	config[r.name] = r.value
	got := c.instance(r.resource).plan(config).failure()
	if !strings.Contains(got, r.want) || !strings.HasPrefix(got, `"`+r.name+`"`) {
		t.Errorf("%s.%s = %.200v:\n got %q,\nwanted %q on the attribute", r.resource, r.name, r.value, got, r.want)
	}
}

// TestRefusedOnNewCluster checks that what would break a cluster is an error of the first plan,
// when nearly nothing is known yet.
func TestRefusedOnNewCluster(t *testing.T) {
	t.Parallel()
	c := offlineCore(t)
	ref := values{
		"cluster": "demo", "vpc_id": "vpc-1", "vpc_cidr": "10.240.0.0/16", "node_cidr": "10.240.0.0/24",
		"subnets":            []any{values{"id": "subnet-1", "cidr": "10.240.0.0/24"}},
		"security_group_ids": values{"worker": "sg-1"},
	}
	machine := values{"name": "worker-0", "role": "worker", "network": ref}
	keys := values{"cluster": "demo"}
	etcd := values{"version": "3.6.16", "hosts": unknown, "pki": unknown}
	addon := values{"name": "own", "pki": unknown, "control_plane": unknown}
	const object = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}`
	kubelet := func(flags values) values { return values{"kubelet": flags} }
	server := func(flags values) values { return values{"kube_apiserver": flags} }
	for _, r := range []refusal{
		{"k8s_machine", machine, "name", "localhost", "is the name of every machine for itself"},
		{"k8s_machine", machine, "instance_type", "t3", "not the name of an instance type"},
		{"k8s_machine", machine, "timeouts", values{"create": "-5m"}, "not longer than zero"},
		{"k8s_pki", keys, "timeouts", values{"read": "0s"}, "not longer than zero"},
		{"k8s_pki", keys, "ca_validity", "1m", "at least 24h"},
		{"k8s_pki", keys, "ca_validity", "87600000h", "at most 2500000h"},
		{"k8s_pki", keys, "ca_validity", "10 years", "is not a duration such as 87600h"},
		{"k8s_etcd_cluster", etcd, "version", "2.0.0", "etcd 2.0.0 is not supported"},
		{"k8s_etcd_cluster", etcd, "extra_args", values{"etcd": values{"v": "a\nb"}}, "line break"},
		{"k8s_etcd_cluster", etcd, "extra_args", values{"etcd": values{"data-dir": "/data"}}, `extra_args.etcd["data-dir"]: the provider sets it`},
		{"k8s_worker_pool", newPool, "labels", values{"kubernetes.io/hostname": "x"}, "kubernetes.io/hostname"},
		{"k8s_worker_pool", newPool, "labels", values{"beta.kubernetes.io/arch": "x"}, "the kubelet sets it"},
		{"k8s_worker_pool", newPool, "taints", []any{values{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}}, "Kubernetes sets it"},
		{"k8s_worker_pool", newPool, "registry_mirrors", values{"https://docker.io": "https://m"}, "is not a registry"},
		{"k8s_worker_pool", newPool, "registry_mirrors", values{"docker.io\n": "https://m"}, "is not a registry"},
		{"k8s_worker_pool", newPool, "registry_mirrors", values{"docker.io": "https://m/\n[x]"}, "not an http or https URL"},
		{"k8s_worker_pool", newPool, "sandbox_image", "a\nb", "sandbox_image"},
		{"k8s_worker_pool", newPool, "extra_args", kubelet(values{"v": "4\n5"}), "line break"},
		{"k8s_worker_pool", newPool, "extra_args", kubelet(values{"hostname-override": "x"}), `extra_args.kubelet["hostname-override"]: the provider sets it`},
		{"k8s_worker_pool", newPool, "extra_args", kubelet(values{"node-labels": "a=b"}), "use the argument labels"},
		{"k8s_worker_pool", newPool, "extra_args", kubelet(values{"config": nil}), "the provider sets it"},
		{"k8s_worker_pool", newPool, "kubelet_config", values{"maxPods": "many"}, `kubelet_config.maxPods: this takes a whole number, but "many" is a string`},
		{"k8s_worker_pool", newPool, "kubelet_config", values{"authentication": values{"webhook": values{"enabled": "maybe"}}}, "kubelet_config.authentication.webhook.enabled: this takes true or false"},
		{"k8s_worker_pool", newPool, "kubelet_config", values{"clusterDNS": "10.32.0.10"}, "kubelet_config.clusterDNS: this takes a list"},
		{"k8s_worker_pool", newPool, "kubelet_config", values{"registerWithTaints": []any{values{"key": "a"}, values{"key": 5}}}, "kubelet_config.registerWithTaints[1].key: this takes a string"},
		{"k8s_worker_pool", newPool, "kubelet_config", values{"syncFrequency": "soon"}, "kubelet_config.syncFrequency: "},
		{"k8s_worker_pool", newPool, "kube_proxy_config", values{"conntrack": values{"maxPerCore": "x"}}, "kube_proxy_config.conntrack.maxPerCore: this takes a whole number"},
		{"k8s_worker_pool", with(newPool, values{"kube_proxy": false}), "kube_proxy_config", values{"mode": "nftables"}, "there is no kube-proxy that could use it"},
		{"k8s_worker_pool", with(newPool, values{"kube_proxy": false}), "extra_args", values{"kube_proxy": values{"v": "2"}}, "there is no kube-proxy that could use it"},
		{"k8s_control_plane", newControllers, "scheduler_config", values{"parallelism": "x"}, "scheduler_config.parallelism: this takes a whole number"},
		{"k8s_control_plane", newControllers, "extra_args", server(values{"etcd-servers": "https://10.0.0.1:2379"}), `extra_args.kube_apiserver["etcd-servers"]: the provider sets it`},
		{"k8s_control_plane", newControllers, "extra_args", server(values{"audit-policy-file": "/x"}), "use the argument audit_policy"},
		{"k8s_control_plane", newControllers, "extra_args", values{"kube_scheduler": values{"config": "/x"}}, "use the argument scheduler_config"},
		{"k8s_control_plane", newControllers, "extra_args", values{"kube_controller_manager": values{"root-ca-file": "/x"}}, "the provider sets it"},
		{"k8s_addon", addon, "manifests", []any{object, "kind: ["}, "document 1"},
		{"k8s_addon", addon, "manifests", []any{object, object}, "ConfigMap a is given twice"},
		{"k8s_addon", addon, "manifests", []any{`{"apiVersion": "v1", "kind": "List", "items": [{"kind": "ConfigMap"}]}`}, "required"},
	} {
		r.try(t, c)
	}
}

// TestRefusedAmongResources checks that a role refuses machines, keys and parts of another cluster.
func TestRefusedAmongResources(t *testing.T) {
	t.Parallel()
	c := newRoles(t)
	other := c.instance("k8s_pki")
	other.must(values{"cluster": "other", "key_store": "state"})
	host := func(config values, more values) []any {
		return []any{with(config["hosts"].([]any)[0].(values), more)}
	}
	lb := values{"cluster": "demo", "host": host(c.pool, values{"name": "lb-0", "pod_cidr": nil})[0], "controllers": c.controlPlane["hosts"], "pki": c.pool["pki"]}
	addon := values{"name": "coredns", "pki": c.pool["pki"], "control_plane": c.pool["control_plane"]}
	balancer := func(more values) values { return with(c.controlPlane["lb"].(values), more) }
	for _, r := range []refusal{
		{"k8s_control_plane", c.controlPlane, "hosts", host(c.controlPlane, values{"role": "worker"}), "controller-0 has the role worker"},
		{"k8s_etcd_cluster", c.etcd, "hosts", host(c.etcd, values{"role": "worker"}), "controller-0 has the role worker"},
		{"k8s_worker_pool", c.pool, "hosts", host(c.pool, values{"role": "lb"}), "worker-0 has the role lb"},
		{"k8s_lb", lb, "controllers", host(c.controlPlane, values{"role": "worker"}), "controller-0 has the role worker"},
		{"k8s_control_plane", c.controlPlane, "lb", balancer(values{"controllers": values{"controller-9": "10.240.0.19"}}), "controller-9"},
		{"k8s_control_plane", c.controlPlane, "lb", balancer(values{"controllers": values{"controller-0": "10.240.0.11"}}), "10.240.0.11"},
		{"k8s_control_plane", c.controlPlane, "lb", balancer(values{"cluster": "other"}), "cluster other"},
		{"k8s_control_plane", c.controlPlane, "etcd", with(c.controlPlane["etcd"].(values), values{"cluster": "other"}), "cluster other"},
		{"k8s_control_plane", c.controlPlane, "pki", other.get("ref"), "cluster other"},
		{"k8s_worker_pool", c.pool, "pki", other.get("ref"), "cluster other"},
		{"k8s_addon", addon, "pki", other.get("ref"), "cluster other"},
	} {
		r.try(t, c.core)
	}
}

// TestUnknownReleases checks that the plan which brings in a release that nobody knows warns of it,
// and later plans do not.
func TestUnknownReleases(t *testing.T) {
	t.Parallel()
	c := offlineCore(t)
	for resource, config := range map[string]values{
		"k8s_control_plane": with(newControllers, values{"version": "1.36.99"}),
		"k8s_worker_pool":   with(newPool, values{"version": "1.36.99"}),
		"k8s_etcd_cluster":  {"version": "3.6.999", "hosts": unknown, "pki": unknown},
	} {
		said := c.instance(resource).plan(config)
		if said.failure() != "" || len(said.warnings) != 1 || said.warnings[0].Summary != "Unknown release" || !strings.Contains(said.warnings[0].Detail, "is later than") {
			t.Errorf("%s: %s %v", resource, said.failure(), said.warnings)
		}
	}
	r := newRoles(t)
	etcd := r.applied("k8s_etcd_cluster", r.etcd)
	if said := etcd.plan(r.etcd); len(said.warnings) > 0 || !etcd.empty(said) {
		t.Errorf("an unchanged plan says %v", said.warnings)
	}
}

// TestFlags checks that a flag can be given twice, as a number, and taken away, and that another
// spelling is no change.
func TestFlags(t *testing.T) {
	t.Parallel()
	c := newRoles(t)
	with := func(flags values) values {
		return with(c.controlPlane, values{"extra_args": values{"kube_apiserver": flags}})
	}
	i := c.applied("k8s_control_plane", with(values{"v": 4, "profiling": nil, "service-account-key-file": []any{"/a", "/b"}}))
	m := controlPlaneModel{}
	got := extraArgsOf(t, i, &m)
	if want := map[string][]string{"v": {"4"}, "profiling": nil, "service-account-key-file": {"/a", "/b"}}; !maps.EqualFunc(got, want, slices.Equal[[]string]) {
		t.Errorf("flags %v, wanted %v", got, want)
	}
	if ch := i.plan(with(values{"v": 4, "profiling": nil, "service-account-key-file": []any{"/a", "/b"}})); !i.empty(ch) {
		t.Errorf("the second plan is not empty: %s", i.differences(ch))
	}
	for what, flags := range map[string]values{
		"another value": {"v": 5, "profiling": nil, "service-account-key-file": []any{"/a", "/b"}},
		"one less":      {"v": 4, "profiling": nil, "service-account-key-file": []any{"/a"}},
		"not removed":   {"v": 4, "service-account-key-file": []any{"/a", "/b"}},
	} {
		if ch := i.plan(with(flags)); ch.failure() != "" || i.empty(ch) {
			t.Errorf("%s plans nothing: %s", what, ch.failure())
		}
	}
}

// extraArgsOf returns the flags of kube-apiserver in the state.
func extraArgsOf(t *testing.T, i *instance, m *controlPlaneModel) map[string][]string {
	t.Helper()
	var described resource.SchemaResponse
	NewControlPlane().Schema(t.Context(), resource.SchemaRequest{}, &described)
	state := tfsdk.State{Schema: described.Schema, Raw: i.state}
	if diags := state.Get(t.Context(), m); diags.HasError() {
		t.Fatal(diags)
	}
	return extraArgs(m.ExtraArgs, artifact.KubeAPIServer)
}

// TestNetworkDefaultsAreKept checks that an existing control plane keeps its networks when the
// defaults of the provider become others.
func TestNetworkDefaultsAreKept(t *testing.T) {
	t.Parallel()
	c := newRoles(t)
	i := c.applied("k8s_control_plane", c.controlPlane)
	if got := i.get("service_cidr"); got != "10.32.0.0/20" {
		t.Errorf("the default is %v", got)
	}
	i = c.applied("k8s_control_plane", with(c.controlPlane, values{"service_cidr": "10.32.0.0/24", "pod_cidr": "10.64.0.0/12"}))
	if ch := i.plan(c.controlPlane); ch.failure() != "" || len(ch.replace) > 0 || !i.empty(ch) {
		t.Errorf("%s: replaces %v\n%s", ch.failure(), ch.replace, i.differences(ch))
	}
	if ch := i.plan(with(c.controlPlane, values{"service_cidr": "10.33.0.0/24"})); len(ch.replace) == 0 {
		t.Error("another network replaces nothing")
	}
	if ch := i.plan(with(c.controlPlane, values{"version": "1.36.3"})); len(ch.replace) > 0 {
		t.Errorf("another release replaces %v", ch.replace)
	}
}

// TestWithoutLoadBalancer checks that a single controller is the address of its cluster, and that
// several need a load balancer.
func TestWithoutLoadBalancer(t *testing.T) {
	t.Parallel()
	c := newRoles(t)
	config := maps.Clone(c.controlPlane)
	delete(config, "lb")
	host := config["hosts"].([]any)[0].(values)
	i := c.applied("k8s_control_plane", config)
	if ref := i.get("ref").(values); ref["endpoint"] != "https://203.0.113.9:6443" || ref["private_endpoint"] != "https://10.240.0.10:6443" {
		t.Errorf("the endpoints are %v", ref)
	}
	i = c.applied("k8s_control_plane", with(config, values{"hosts": []any{with(host, values{"public_ip": "203.0.113.10", "address": "bastioned.example.com"})}}))
	if ref := i.get("ref").(values); ref["endpoint"] != "https://203.0.113.10:6443" {
		t.Errorf("the endpoints are %v", ref)
	}
	if ch := c.instance("k8s_control_plane").plan(with(config, values{"hosts": []any{with(host, values{"public_ip": unknown, "private_ip": unknown})}})); ch.failure() != "" {
		t.Errorf("a machine that does not exist yet: %s", ch.failure())
	}
	got := c.instance("k8s_control_plane").plan(with(config, values{"hosts": []any{host, unknown, unknown}})).failure()
	if !strings.HasPrefix(got, `"lb"): Missing load balancer: 3 controllers need a load balancer: set lb to the ref of a k8s_lb.`) {
		t.Errorf("three controllers: %q", got)
	}
}

// TestSensitiveManifests checks that nothing of sensitive manifests is planned besides their names.
func TestSensitiveManifests(t *testing.T) {
	t.Parallel()
	c := newRoles(t)
	config := values{
		"name": "own", "pki": c.pool["pki"], "control_plane": c.pool["control_plane"],
		"manifests":           []any{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"},
		"sensitive_manifests": []any{"{apiVersion: v1, kind: Secret, metadata: {name: b, namespace: x}, stringData: {password: hunter2}}"},
	}
	i := c.applied("k8s_addon", config)
	objects := i.get("objects").(values)
	if digest, _ := objects["ConfigMap a"].(string); objects["Secret x/b"] != "sensitive" || !strings.HasPrefix(digest, "sha256:") {
		t.Errorf("objects are %v", objects)
	}
	if ch := i.plan(config); !i.empty(ch) {
		t.Errorf("the second plan is not empty: %s", i.differences(ch))
	}
	got := c.instance("k8s_addon").plan(with(config, values{"sensitive_manifests": []any{"password: [hunter2"}})).failure()
	if !strings.HasPrefix(got, `"sensitive_manifests"`) || strings.Contains(got, "hunter2") {
		t.Errorf("broken: %q", got)
	}
}
