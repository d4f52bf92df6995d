package roles_test

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
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/roles"
)

// TestImportIsComplete checks that every setting of a machine can be read back from it, so that a
// plan after an import is empty.
func TestImportIsComplete(t *testing.T) {
	c := providertest.NewRoles(t)
	importBack[roles.EtcdModel](t, c, roles.NewEtcdCluster(), providertest.With(c.Etcd, providertest.Values{"extra_args": providertest.Values{"etcd": providertest.Values{"election-timeout": "2000"}}}),
		func(s etcdcluster.Cluster) (component.Machine, error) {
			s.Spec.Members = []component.Node{s.Targets[0].Node}
			return component.Etcd(s.Spec, s.Targets[0].Node)
		})
	controlPlane := providertest.With(c.ControlPlane, configured.controlPlane)
	delete(controlPlane, "early_renewal") // cannot be read from machines
	controlPlane["admission_plugins"] = providertest.Values{"PodSecurity": providertest.Values{"kind": "PodSecurityConfiguration"}}
	controlPlane["audit_policy"] = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n" // in the form in which it is written
	importBack[roles.ControlPlaneModel](t, c, roles.NewControlPlane(), providertest.With(controlPlane, providertest.Values{
		"extra_sans": []any{"k8s.example.com", "203.0.113.77"}, "pod_cidr": "10.1.0.0/16", "service_cidr": "10.2.0.0/24", "domain": "x.y", "dns_ip": "10.2.0.7",
		"pod_routes": providertest.Values{"10.1.1.0/24": "10.240.0.21"},
	}), func(s controlplane.ControlPlane) (component.Machine, error) {
		s.Spec.Nodes = []component.Node{s.Targets[0].Node}
		return component.ControlPlane(s.Spec, s.Targets[0].Node)
	}, "lb", "node_cidrs", "dns_ip", "access") // lb may be missing, the others are read from workers and from the API
	pool := providertest.With(c.Pool, configured.pool)
	delete(pool, "drain_timeout")
	pool["kubelet_config"] = providertest.Values{"maxPods": 80, "cgroupDriver": "cgroupfs", "evictionHard": providertest.Values{"memory.available": "5%"}}
	importBack[roles.WorkerPoolModel](t, c, roles.NewWorkerPool(), providertest.With(pool, providertest.Values{
		"name": "workers", "cni": "bridge", "kube_proxy": true, "sandbox_image": "example.com/pause:1", "labels": providertest.Values{"tier": "blue"}, "registries": providertest.Values{"*": providertest.Values{"mirrors": []any{providertest.Values{"url": "http://m:5000"}}}},
		"taints": []any{providertest.Values{"key": "a", "value": "b", "effect": "NoSchedule"}}, "containerd_version": "2.3.7", "runc_version": "1.5.2", "cni_plugins_version": "1.9.1",
	}), func(s workerpool.Pool) (component.Machine, error) {
		return component.Workers(s.Spec)(s.Targets[0].Node)
	}, "name")
	importBack[roles.EtcdBackupModel](t, c, roles.NewEtcdBackup(), providertest.With(c.Backup(), providertest.Values{"prefix": "a/", "interval": "15m0s", "keep": 7, "before_changes": false}),
		func(s etcdbackup.Backup) (component.Machine, error) {
			s.Spec.Members = []component.Node{s.Targets[0].Node}
			return component.EtcdBackup(s.Spec, s.Targets[0].Node)
		})
	lb := providertest.Values{"host": c.Pool["hosts"].([]any)[0], "controllers": c.Etcd["hosts"], "pki": c.Etcd["pki"], "port": 7443, "virtual_router_id": 51, "check_interval": "2.5s"}
	importBack[roles.LBModel](t, c, roles.NewLB(), lb, func(s loadbalancer.LoadBalancer) (component.Machine, error) {
		return component.LoadBalancer(s.Spec, s.Targets[0].Node)
	}, "cluster")
}

// importBack builds the first machine of a role and imports the role from it.
func importBack[M any, S rollout.Role](t *testing.T, c providertest.RoleSet, made resource.Resource, config providertest.Values, build func(S) (component.Machine, error), given ...string) {
	t.Helper()
	r := made.(*roles.RoleResource[M, S])
	r.Session = c.Data
	var described resource.SchemaResponse
	r.Schema(t.Context(), resource.SchemaRequest{}, &described)
	var diags diag.Diagnostics
	model := func(config providertest.Values) (m M) {
		t.Helper()
		state := tfsdk.State{Schema: described.Schema, Raw: buildObject(t, described, config)}
		diags.Append(state.Get(t.Context(), &m)...)
		return m
	}
	want := model(config)
	r.Outputs(t.Context(), &want, &diags)
	spec := r.Spec(t.Context(), &want, &diags)
	files, err := rollout.Files(spec)
	if diags.HasError() || err != nil {
		t.Fatal(r.Name(), diags, err)
	}
	machine, err := build(spec)
	if err != nil {
		t.Fatal(err)
	}

	id := providertest.Values{}
	for _, name := range append(given, r.Needs()...) {
		id[name] = config[name]
	}
	m := model(id)
	found, err := rollout.ReadRole(r.SpecWithoutDownloads(t.Context(), &m, &diags), firstNode(spec), foundOn(t, machine))
	if err != nil {
		t.Fatal(r.Name(), err)
	}
	r.Settings().FromSpec(t.Context(), &found, &m)
	r.Outputs(t.Context(), &m, &diags)
	again, err := rollout.Files(r.Spec(t.Context(), &m, &diags))
	if diags.HasError() || err != nil {
		t.Fatal(r.Name(), diags, err)
	}
	if diff := cmp.Diff(files, again); diff != "" {
		t.Errorf("%s: the files differ: %s", r.Name(), diff)
	}
	before, after := tfsdk.State{Schema: described.Schema, Raw: buildObject(t, described, nil)}, tfsdk.State{Schema: described.Schema, Raw: buildObject(t, described, nil)}
	diags.Append(before.Set(t.Context(), &want)...)
	diags.Append(after.Set(t.Context(), &m)...)
	var was, is map[string]tftypes.Value
	if diags.HasError() || before.Raw.As(&was) != nil || after.Raw.As(&is) != nil {
		t.Fatal(r.Name(), diags)
	}
	for name := range r.Settings() {
		if !was[name].Equal(is[name]) {
			t.Errorf("%s: %s was %v and is %v", r.Name(), name, providertest.Plain(was[name]), providertest.Plain(is[name]))
		}
	}
}

func buildObject(t *testing.T, described resource.SchemaResponse, config providertest.Values) tftypes.Value {
	t.Helper()
	return providertest.Build(described.Schema.Type().TerraformType(t.Context()), providertest.With(providertest.Values{}, config))
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
