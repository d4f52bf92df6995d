package provider_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// refusal is a configuration that a plan must refuse.
type refusal struct {
	resource string
	config   providertest.Values
	name     string
	value    any
	want     string // part of the error, which must be on the attribute
}

func (r refusal) try(t *testing.T, c *providertest.Core) {
	t.Helper()
	config := maps.Clone(r.config)
	config[r.name] = r.value
	got := c.Instance(r.resource).Plan(config).Failure()
	if !strings.Contains(got, r.want) || !strings.HasPrefix(got, `"`+r.name+`"`) {
		t.Errorf("%s.%s = %.200v:\n got %q,\nwanted %q on the attribute", r.resource, r.name, r.value, got, r.want)
	}
}

// registries is the argument for one registry.
func registries(name string, mirrors ...providertest.Values) providertest.Values {
	list := []any{}
	for _, m := range mirrors {
		list = append(list, m)
	}
	return providertest.Values{name: providertest.Values{"mirrors": list}}
}

// TestRefusedOnNewCluster checks that what would break a cluster is an error of the first plan,
// when nearly nothing is known yet.
func TestRefusedOnNewCluster(t *testing.T) {
	t.Parallel()
	c := providertest.OfflineCore(t)
	ref := providertest.Values{
		"cluster": "demo", "vpc_id": "vpc-1", "vpc_cidr": "10.240.0.0/16", "node_cidr": "10.240.0.0/24",
		"subnets":            []any{providertest.Values{"id": "subnet-1", "cidr": "10.240.0.0/24"}},
		"security_group_ids": providertest.Values{"lb": "sg-1", "controller": "sg-2", "etcd": "sg-3", "worker": "sg-4", "ssh": "sg-5"},
	}
	machine := providertest.Values{"name": "worker-0", "role": "worker", "network": ref}
	keys := providertest.Values{"cluster": "demo"}
	etcd := providertest.Values{"version": "3.6.16", "hosts": providertest.Unknown, "pki": providertest.Unknown}
	addon := providertest.Values{"name": "own", "control_plane": providertest.Unknown}
	const object = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}`
	kubelet := func(flags providertest.Values) providertest.Values { return providertest.Values{"kubelet": flags} }
	server := func(flags providertest.Values) providertest.Values {
		return providertest.Values{"kube_apiserver": flags}
	}
	for _, r := range []refusal{
		{"k8s_machine", machine, "name", "localhost", "for itself: choose another name"},
		{"k8s_machine", machine, "instance_type", "t3", "not the name of an instance type"},
		{"k8s_machine", machine, "timeouts", providertest.Values{"create": "-5m"}, "not longer than zero"},
		{"k8s_pki", keys, "timeouts", providertest.Values{"read": "0s"}, "not longer than zero"},
		{"k8s_pki", keys, "ca_validity", "1m", "at least 24h"},
		{"k8s_pki", keys, "ca_validity", "87600000h", "at most 2500000h"},
		{"k8s_pki", keys, "ca_validity", "10 years", "is not a duration such as 87600h"},
		{"k8s_etcd_cluster", etcd, "version", "2.0.0", "etcd 2.0.0 is not supported"},
		{"k8s_etcd_cluster", etcd, "extra_args", providertest.Values{"etcd": providertest.Values{"v": "a\nb"}}, "line break"},
		{"k8s_etcd_cluster", etcd, "extra_args", providertest.Values{"etcd": providertest.Values{"data-dir": "/data"}}, `extra_args.etcd["data-dir"]: the provider sets it`},
		{"k8s_worker_pool", newPool, "labels", providertest.Values{"kubernetes.io/hostname": "x"}, "kubernetes.io/hostname"},
		{"k8s_worker_pool", newPool, "labels", providertest.Values{"beta.kubernetes.io/arch": "x"}, "the kubelet sets it"},
		{"k8s_worker_pool", newPool, "taints", []any{providertest.Values{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}}, "Kubernetes sets it"},
		{"k8s_worker_pool", newPool, "registries", registries("https://docker.io", providertest.Values{"url": "https://m"}), "is not a registry"},
		{"k8s_worker_pool", newPool, "registries", registries("docker.io\n", providertest.Values{"url": "https://m"}), "is not a registry"},
		{"k8s_worker_pool", newPool, "registries", registries("docker.io", providertest.Values{"url": "https://m/\n[x]"}), "not an http or https URL"},
		{"k8s_worker_pool", newPool, "registries", registries("docker.io"), "at least 1"},
		{"k8s_worker_pool", newPool, "registries", registries("docker.io", providertest.Values{"url": "https://m", "user": "u"}), "password_wo"},
		{"k8s_worker_pool", newPool, "registries", registries("docker.io", providertest.Values{"url": "https://m", "password_wo": "p"}), "user"},
		{"k8s_worker_pool", newPool, "registries", registries("docker.io", providertest.Values{"url": "https://m", "password_wo_version": 1}), "password_wo"},
		{"k8s_worker_pool", newPool, "registries", registries("docker.io", providertest.Values{"url": providertest.Unknown}, providertest.Values{"url": "http://m", "user": "u", "password_wo": providertest.Unknown}), "everybody on the way"},
		{"k8s_worker_pool", newPool, "sandbox_image", "a\nb", "sandbox_image"},
		{"k8s_worker_pool", newPool, "extra_args", kubelet(providertest.Values{"v": "4\n5"}), "line break"},
		{"k8s_worker_pool", newPool, "extra_args", kubelet(providertest.Values{"hostname-override": "x"}), `extra_args.kubelet["hostname-override"]: the provider sets it`},
		{"k8s_worker_pool", newPool, "extra_args", kubelet(providertest.Values{"node-labels": "a=b"}), "use the argument labels"},
		{"k8s_worker_pool", newPool, "extra_args", kubelet(providertest.Values{"config": nil}), "use the argument kubelet_config"},
		{"k8s_worker_pool", newPool, "extra_args", providertest.Values{"kube_proxy": providertest.Values{"proxy-mode": "ipvs"}}, "use the argument kube_proxy_config"},
		{"k8s_worker_pool", newPool, "kubelet_config", providertest.Values{"containerRuntimeEndpoint": "unix:///x"}, "kubelet_config.containerRuntimeEndpoint: the provider sets it"},
		{"k8s_worker_pool", newPool, "kubelet_config", providertest.Values{"memoryManagerPolicy": "Static"}, "needs reservedMemory of 500Mi"},
		{"k8s_worker_pool", newPool, "kubelet_config", providertest.Values{"maxPods": "many"}, `kubelet_config.maxPods: this takes a whole number, but "many" is a string`},
		{"k8s_worker_pool", newPool, "kubelet_config", providertest.Values{"authentication": providertest.Values{"webhook": providertest.Values{"enabled": "maybe"}}}, "kubelet_config.authentication.webhook.enabled: this takes true or false"},
		{"k8s_worker_pool", newPool, "kubelet_config", providertest.Values{"clusterDNS": "10.32.0.10"}, "kubelet_config.clusterDNS: this takes a list"},
		{"k8s_worker_pool", newPool, "kubelet_config", providertest.Values{"registerWithTaints": []any{providertest.Values{"key": "a"}, providertest.Values{"key": 5}}}, "kubelet_config.registerWithTaints[1].key: this takes a string"},
		{"k8s_worker_pool", newPool, "kubelet_config", providertest.Values{"syncFrequency": "soon"}, "kubelet_config.syncFrequency: "},
		{"k8s_worker_pool", newPool, "kube_proxy_config", providertest.Values{"conntrack": providertest.Values{"maxPerCore": "x"}}, "kube_proxy_config.conntrack.maxPerCore: this takes a whole number"},
		{"k8s_worker_pool", providertest.With(newPool, providertest.Values{"kube_proxy": false}), "kube_proxy_config", providertest.Values{"mode": "nftables"}, "there is no kube-proxy that could use it"},
		{"k8s_worker_pool", providertest.With(newPool, providertest.Values{"kube_proxy": false}), "extra_args", providertest.Values{"kube_proxy": providertest.Values{"v": "2"}}, "there is no kube-proxy that could use it"},
		{"k8s_control_plane", newControllers, "scheduler_config", providertest.Values{"parallelism": "x"}, "scheduler_config.parallelism: this takes a whole number"},
		{"k8s_control_plane", newControllers, "extra_args", server(providertest.Values{"etcd-servers": "https://10.0.0.1:2379"}), `extra_args.kube_apiserver["etcd-servers"]: the provider sets it`},
		{"k8s_control_plane", newControllers, "extra_args", server(providertest.Values{"audit-policy-file": "/x"}), "use the argument audit_policy"},
		{"k8s_control_plane", newControllers, "extra_args", providertest.Values{"kube_scheduler": providertest.Values{"config": "/x"}}, "use the argument scheduler_config"},
		{"k8s_control_plane", newControllers, "extra_args", providertest.Values{"kube_apiserver": providertest.Values{"oidc-issuer-url": "https://x.example.com"}}, "use the argument authentication"},
		{"k8s_control_plane", newControllers, "extra_args", providertest.Values{"kube_apiserver": providertest.Values{"anonymous-auth": "false"}}, "the provider sets it"},
		{"k8s_control_plane", newControllers, "authentication", providertest.Values{"jwt": []any{providertest.Values{"issuer": providertest.Values{"audiences": []any{"a"}}}}}, "authentication.jwt[0].issuer.url: Required value"},
		{"k8s_control_plane", newControllers, "access", []any{providertest.Values{"cluster_role": "view"}}, "either group or user"},
		{"k8s_control_plane", newControllers, "access", []any{providertest.Values{"group": "oidc:ops", "role": "deployer"}}, "set namespace"},
		{"k8s_control_plane", newControllers, "access", []any{providertest.Values{"group": "system:masters", "cluster_role": "view"}}, "nothing takes that back"},
		{"k8s_control_plane", newControllers, "extra_args", providertest.Values{"kube_controller_manager": providertest.Values{"root-ca-file": "/x"}}, "the provider sets it"},
		{"k8s_addon", addon, "manifests", []any{object, "kind: ["}, "document 1"},
		{"k8s_addon", providertest.With(addon, providertest.Values{"manifests": []any{object}}), "ignore_fields", providertest.Values{"ConfigMap": []any{"data["}}, "is not the path of a field"},
		{"k8s_addon", providertest.With(addon, providertest.Values{"manifests": []any{object}}), "ignore_fields", providertest.Values{"ConfigMap": []any{"metadata.name"}}, "it cannot be ignored"},
		{"k8s_addon", addon, "manifests", []any{object, object}, "ConfigMap a is given twice"},
		{"k8s_addon", addon, "manifests", []any{`{"apiVersion": "v1", "kind": "List", "items": [{"kind": "ConfigMap"}]}`}, "required"},
	} {
		r.try(t, c)
	}
}

// TestRefusedAmongResources checks that a role refuses machines, keys and parts of another cluster.
func TestRefusedAmongResources(t *testing.T) {
	t.Parallel()
	c := providertest.NewRoles(t)
	host := func(config providertest.Values, more providertest.Values) []any {
		return []any{providertest.With(config["hosts"].([]any)[0].(providertest.Values), more)}
	}
	lb := providertest.Values{"host": host(c.Pool, providertest.Values{"name": "lb-0", "pod_cidr": nil})[0], "controllers": c.ControlPlane["hosts"], "pki": c.Etcd["pki"]}
	addon := providertest.Values{"name": "coredns", "control_plane": c.Pool["control_plane"]}
	own := providertest.With(addon, providertest.Values{"name": "own", "manifests": []any{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {x: y}}"}})
	balancer := func(more providertest.Values) providertest.Values {
		return providertest.With(c.ControlPlane["lb"].(providertest.Values), more)
	}
	for _, r := range []refusal{
		{"k8s_addon", addon, "version", "1.0.0", "Built in: 1.15.0, 1.14.6."},
		{"k8s_addon", addon, "image", "a b", "not the name of an image"},
		{"k8s_addon", addon, "environment", providertest.Values{"A B": "1"}, "not the name of an environment variable"},
		{"k8s_control_plane", c.ControlPlane, "hosts", host(c.ControlPlane, providertest.Values{"role": "worker"}), "controller-0 has the role worker"},
		{"k8s_etcd_cluster", c.Etcd, "hosts", host(c.Etcd, providertest.Values{"role": "worker"}), "controller-0 has the role worker"},
		{"k8s_worker_pool", c.Pool, "hosts", host(c.Pool, providertest.Values{"role": "lb"}), "worker-0 has the role lb"},
		{"k8s_lb", lb, "controllers", host(c.ControlPlane, providertest.Values{"role": "worker"}), "controller-0 has the role worker"},
		{"k8s_control_plane", c.ControlPlane, "lb", balancer(providertest.Values{"controllers": providertest.Values{"controller-9": "10.240.0.19"}}), "controller-9"},
		{"k8s_control_plane", c.ControlPlane, "lb", balancer(providertest.Values{"controllers": providertest.Values{"controller-0": "10.240.0.11"}}), "10.240.0.11"},
		{"k8s_control_plane", c.ControlPlane, "lb", balancer(providertest.Values{"cluster": "other"}), "cluster other"},
		{"k8s_addon", own, "ignore_fields", providertest.Values{"ConfigMap b": []any{"data.x"}}, "They are: ConfigMap a."},
		{"k8s_addon", own, "ignore_fields", providertest.Values{"ConfigMap a": []any{"data.z"}}, "has no field data.z"},
	} {
		r.try(t, c.Core)
	}
}

// TestUnknownReleases checks that the plan which brings in a release that nobody knows warns of it,
// and later plans do not.
func TestUnknownReleases(t *testing.T) {
	t.Parallel()
	c := providertest.OfflineCore(t)
	for resource, config := range map[string]providertest.Values{
		"k8s_control_plane": providertest.With(newControllers, providertest.Values{"version": "1.36.99"}),
		"k8s_worker_pool":   providertest.With(newPool, providertest.Values{"version": "1.36.99"}),
		"k8s_etcd_cluster":  {"version": "3.6.999", "hosts": providertest.Unknown, "pki": providertest.Unknown},
	} {
		said := c.Instance(resource).Plan(config)
		if said.Failure() != "" || len(said.Warnings) != 1 || said.Warnings[0].Summary != "Unknown release" || !strings.Contains(said.Warnings[0].Detail, "is later than") {
			t.Errorf("%s: %s %v", resource, said.Failure(), said.Warnings)
		}
	}
	r := providertest.NewRoles(t)
	etcd := r.Applied("k8s_etcd_cluster", r.Etcd)
	if said := etcd.Plan(r.Etcd); len(said.Warnings) > 0 || !etcd.Empty(said) {
		t.Errorf("an unchanged plan says %v", said.Warnings)
	}
}

// TestNetworkDefaultsAreKept checks that an existing control plane keeps its networks when the
// defaults of the provider become others.
func TestNetworkDefaultsAreKept(t *testing.T) {
	t.Parallel()
	c := providertest.NewRoles(t)
	i := c.Applied("k8s_control_plane", c.ControlPlane)
	if got := i.Get("service_cidr"); got != "10.32.0.0/20" {
		t.Errorf("the default is %v", got)
	}
	i = c.Applied("k8s_control_plane", providertest.With(c.ControlPlane, providertest.Values{"service_cidr": "10.32.0.0/24", "pod_cidr": "10.64.0.0/12"}))
	if ch := i.Plan(c.ControlPlane); ch.Failure() != "" || len(ch.Replace) > 0 || !i.Empty(ch) {
		t.Errorf("%s: replaces %v\n%s", ch.Failure(), ch.Replace, i.Differences(ch))
	}
	providertest.Mention(t, i.Plan(providertest.With(c.ControlPlane, providertest.Values{"service_cidr": "10.33.0.0/24"})).Failure(), "It is 10.32.0.0/24, and this plan changes it")
	if ch := i.Plan(providertest.With(c.ControlPlane, providertest.Values{"version": "1.36.3"})); len(ch.Replace) > 0 {
		t.Errorf("another release replaces %v", ch.Replace)
	}
}

// TestWithoutLoadBalancer checks that a single controller is the address of its cluster, and that
// several need a load balancer.
func TestWithoutLoadBalancer(t *testing.T) {
	t.Parallel()
	c := providertest.NewRoles(t)
	config := maps.Clone(c.ControlPlane)
	delete(config, "lb")
	host := config["hosts"].([]any)[0].(providertest.Values)
	i := c.Applied("k8s_control_plane", config)
	if ref := i.Get("ref").(providertest.Values); ref["endpoint"] != "https://203.0.113.9:6443" || ref["private_endpoint"] != "https://10.240.0.10:6443" {
		t.Errorf("the endpoints are %v", ref)
	}
	i = c.Applied("k8s_control_plane", providertest.With(config, providertest.Values{"hosts": []any{providertest.With(host, providertest.Values{"public_ip": "203.0.113.10", "address": "bastioned.example.com"})}}))
	if ref := i.Get("ref").(providertest.Values); ref["endpoint"] != "https://203.0.113.10:6443" {
		t.Errorf("the endpoints are %v", ref)
	}
	if ch := c.Instance("k8s_control_plane").Plan(providertest.With(config, providertest.Values{"hosts": []any{providertest.With(host, providertest.Values{"public_ip": providertest.Unknown, "private_ip": providertest.Unknown})}})); ch.Failure() != "" {
		t.Errorf("a machine that does not exist yet: %s", ch.Failure())
	}
	got := c.Instance("k8s_control_plane").Plan(providertest.With(config, providertest.Values{"hosts": []any{host, providertest.Unknown, providertest.Unknown}})).Failure()
	if !strings.HasPrefix(got, `"lb"): Missing load balancer: 3 controllers need a load balancer: set lb to the ref of a k8s_lb.`) {
		t.Errorf("three controllers: %q", got)
	}
}

// TestSensitiveManifests checks that nothing of sensitive manifests is planned besides their names.
func TestSensitiveManifests(t *testing.T) {
	t.Parallel()
	c := providertest.NewRoles(t)
	config := providertest.Values{
		"name": "own", "control_plane": c.Pool["control_plane"],
		"manifests":           []any{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"},
		"sensitive_manifests": []any{"{apiVersion: v1, kind: Secret, metadata: {name: b, namespace: x}, stringData: {password: hunter2}}"},
	}
	i := c.Applied("k8s_addon", config)
	objects := i.Get("objects").(providertest.Values)
	if digest, _ := objects["ConfigMap a"].(string); objects["Secret x/b"] != "sensitive" || !strings.HasPrefix(digest, "sha256:") {
		t.Errorf("objects are %v", objects)
	}
	if ch := i.Plan(config); !i.Empty(ch) {
		t.Errorf("the second plan is not empty: %s", i.Differences(ch))
	}
	got := c.Instance("k8s_addon").Plan(providertest.With(config, providertest.Values{"sensitive_manifests": []any{"password: [hunter2"}})).Failure()
	if !strings.HasPrefix(got, `"sensitive_manifests"`) || strings.Contains(got, "hunter2") {
		t.Errorf("broken: %q", got)
	}
}
