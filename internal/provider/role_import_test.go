package provider

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/controlplane"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/etcdbackup"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/etcdcluster"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/loadbalancer"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/workerpool"
)

// TestImportIsComplete checks that every setting of a machine can be read back from it, so that a
// plan after an import is empty.
func TestImportIsComplete(t *testing.T) {
	c := newRoles(t)
	importBack[etcdModel](t, c, NewEtcdCluster(), with(c.etcd, values{"extra_args": values{"etcd": values{"election-timeout": "2000"}}}),
		func(s etcdcluster.Cluster) (component.Machine, error) {
			s.Spec.Members = []component.Node{s.Targets[0].Node}
			return component.Etcd(s.Spec, s.Targets[0].Node)
		})
	controlPlane := with(c.controlPlane, configured.controlPlane)
	delete(controlPlane, "early_renewal") // cannot be read from machines
	controlPlane["admission_plugins"] = values{"PodSecurity": values{"kind": "PodSecurityConfiguration"}}
	controlPlane["audit_policy"] = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n" // in the form in which it is written
	importBack[controlPlaneModel](t, c, NewControlPlane(), with(controlPlane, values{
		"extra_sans": []any{"k8s.example.com", "203.0.113.77"}, "pod_cidr": "10.1.0.0/16", "service_cidr": "10.2.0.0/24", "domain": "x.y", "dns_ip": "10.2.0.7",
		"pod_routes": values{"10.1.1.0/24": "10.240.0.21"},
	}), func(s controlplane.ControlPlane) (component.Machine, error) {
		s.Spec.Nodes = []component.Node{s.Targets[0].Node}
		return component.ControlPlane(s.Spec, s.Targets[0].Node)
	}, "lb", "node_cidrs", "dns_ip") // lb may be missing, the others are read from workers
	pool := with(c.pool, configured.pool)
	delete(pool, "drain_timeout")
	pool["kubelet_config"] = values{"maxPods": 80, "cgroupDriver": "cgroupfs", "evictionHard": values{"memory.available": "5%"}}
	importBack[workerPoolModel](t, c, NewWorkerPool(), with(pool, values{
		"name": "workers", "cni": "bridge", "kube_proxy": true, "sandbox_image": "example.com/pause:1", "labels": values{"tier": "blue"}, "registry_mirrors": values{"*": "http://m:5000"},
		"taints": []any{values{"key": "a", "value": "b", "effect": "NoSchedule"}}, "containerd_version": "2.3.7", "runc_version": "1.5.2", "cni_plugins_version": "1.9.1",
	}), func(s workerpool.Pool) (component.Machine, error) { return component.Worker(s.Spec, s.Targets[0].Node) }, "name")
	importBack[etcdBackupModel](t, c, NewEtcdBackup(), with(c.backup(), values{"prefix": "a/", "interval": "15m0s", "keep": 7, "before_changes": false}),
		func(s etcdbackup.Backup) (component.Machine, error) {
			s.Spec.Members = []component.Node{s.Targets[0].Node}
			return component.EtcdBackup(s.Spec, s.Targets[0].Node)
		})
	lb := values{"cluster": "demo", "host": c.pool["hosts"].([]any)[0], "controllers": c.etcd["hosts"], "pki": c.etcd["pki"], "port": 7443, "virtual_router_id": 51, "check_interval": "2.5s"}
	importBack[lbModel](t, c, NewLB(), lb, func(s loadbalancer.LoadBalancer) (component.Machine, error) {
		return component.LoadBalancer(s.Spec, s.Targets[0].Node)
	}, "cluster")
}

// importBack builds the first machine of a role and imports the role from it.
func importBack[M any, S rollout.Role](t *testing.T, c roles, made resource.Resource, config values, build func(S) (component.Machine, error), given ...string) {
	t.Helper()
	r := made.(*roleResource[M, S])
	r.Session = c.data
	var described resource.SchemaResponse
	r.Schema(t.Context(), resource.SchemaRequest{}, &described)
	var diags diag.Diagnostics
	model := func(config values) (m M) {
		t.Helper()
		state := tfsdk.State{Schema: described.Schema, Raw: buildObject(t, described, config)}
		diags.Append(state.Get(t.Context(), &m)...)
		return m
	}
	want := model(config)
	r.role.outputs(t.Context(), &want, &diags)
	spec := r.spec(t.Context(), &want, &diags)
	files, err := rollout.Files(spec)
	if diags.HasError() || err != nil {
		t.Fatal(r.role.name, diags, err)
	}
	machine, err := build(spec)
	if err != nil {
		t.Fatal(err)
	}

	id := values{}
	for _, name := range append(given, r.role.importer.needs...) {
		id[name] = config[name]
	}
	m := model(id)
	found, err := rollout.ReadRole(r.specWithoutDownloads(t.Context(), &m, &diags), firstNode(spec), foundOn(t, machine))
	if err != nil {
		t.Fatal(r.role.name, err)
	}
	r.role.settings.fromSpec(t.Context(), &found, &m)
	r.role.outputs(t.Context(), &m, &diags)
	again, err := rollout.Files(r.spec(t.Context(), &m, &diags))
	if diags.HasError() || err != nil {
		t.Fatal(r.role.name, diags, err)
	}
	if diff := cmp.Diff(files, again); diff != "" {
		t.Errorf("%s: the files are others: %s", r.role.name, diff)
	}
	before, after := tfsdk.State{Schema: described.Schema, Raw: buildObject(t, described, nil)}, tfsdk.State{Schema: described.Schema, Raw: buildObject(t, described, nil)}
	diags.Append(before.Set(t.Context(), &want)...)
	diags.Append(after.Set(t.Context(), &m)...)
	var was, is map[string]tftypes.Value
	if diags.HasError() || before.Raw.As(&was) != nil || after.Raw.As(&is) != nil {
		t.Fatal(r.role.name, diags)
	}
	for name := range r.role.settings {
		if !was[name].Equal(is[name]) {
			t.Errorf("%s: %s was %v and is %v", r.role.name, name, plain(was[name]), plain(is[name]))
		}
	}
}

func buildObject(t *testing.T, described resource.SchemaResponse, config values) tftypes.Value {
	t.Helper()
	return build(described.Schema.Type().TerraformType(t.Context()), with(values{}, config))
}

func firstNode(r rollout.Role) component.Node { return r.Definition().Targets[0].Node }

// foundOn returns what is read from a machine with the given files.
func foundOn(t *testing.T, m component.Machine) component.Found {
	t.Helper()
	f := component.Found{Files: map[string][]byte{}, Releases: map[string]string{}}
	for _, file := range m.State.Files {
		f.Files[file.Path] = file.Content
	}
	for _, b := range m.State.Binaries {
		for _, i := range b.Installs {
			f.Releases[i.Path] = b.Version
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, slot := range m.Certificates {
		template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: slot.Request.DNSNames}
		for _, ip := range slot.Request.IPs {
			template.IPAddresses = append(template.IPAddresses, ip.AsSlice())
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		f.Files[slot.CertPath] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	return f
}
