package component

import (
	"crypto/rand"
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/access"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/registry"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

func fileOf(t *testing.T, m Machine, path string) string {
	t.Helper()
	for _, f := range m.State.Files {
		if f.Path == path {
			return string(f.Content)
		}
	}
	t.Fatalf("%s is not there", path)
	return ""
}

func unitOf(t *testing.T, m Machine, name string) desired.Unit {
	t.Helper()
	for _, u := range m.State.Units {
		if u.Name == name {
			return u
		}
	}
	t.Fatalf("%s is not there", name)
	return desired.Unit{}
}

// The user's kubelet settings win field by field, and containerd follows their cgroup driver.
func TestKubeletOverrides(t *testing.T) {
	spec := workerSpec(t)
	spec.Kubelet.Taints = []Taint{{Key: "dedicated", Value: "gpu", Effect: "NoSchedule"}}
	spec.Kubelet.Labels = map[string]string{"tier": "blue", "node.kubernetes.io/pool": "a", "node-role.kubernetes.io/worker": ""}
	spec.Kubelet.Config = map[string]any{
		"cgroupDriver":   "cgroupfs",
		"failCgroupV1":   false,
		"maxPods":        50,
		"evictionHard":   map[string]any{"memory.available": "100Mi"},
		"authentication": map[string]any{"webhook": map[string]any{"cacheTTL": "10s"}},
		"syncFrequency":  "0s", // a zero set by the user stays
	}
	spec.Kubelet.Args = Args{"v": {"4"}, "cert-dir": {"/data/kubelet"}}
	spec.Containerd.Config = map[string]any{"plugins": map[string]any{"io.containerd.cri.v1.runtime": map[string]any{"restrict_oom_score_adj": true}}}
	spec.KubeProxy.Config = map[string]any{"conntrack": map[string]any{"maxPerCore": 32768}, "nodePortAddresses": []any{"primary"}}
	spec.Containerd.Registries = registry.Registries{
		"registry.k8s.io": {{URL: "http://10.0.0.1:5000"}}, "docker.io": {{URL: "https://mirror.example.com/v2/hub/"}}, "*": {{URL: "http://10.0.0.1:5000"}}}
	m := must(t)(Workers(spec)(worker0))
	for _, path := range []string{
		KubeletConfigPath, KubeProxyConfigPath, ContainerdConfig, unitPath(KubeletUnit),
		ContainerdHostsDir + "/registry.k8s.io/hosts.toml", ContainerdHostsDir + "/docker.io/hosts.toml", ContainerdHostsDir + "/_default/hosts.toml",
	} {
		golden(t, filepath.Join("overrides", strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", "_")), []byte(fileOf(t, m, path)))
	}
}

// TestProtectedKernel: a machine whose kubelet only compares the kernel's settings has the settings
// that the kubelet wants, also after the next boot. No other machine sets them.
func TestProtectedKernel(t *testing.T) {
	for _, tt := range []struct {
		name     string
		config   map[string]any
		protects bool
	}{
		{"by default", nil, false},
		{"off", map[string]any{"protectKernelDefaults": false}, false},
		{"on", map[string]any{"protectKernelDefaults": true}, true},
	} {
		spec := workerSpec(t)
		spec.Kubelet.Config = tt.config
		got := must(t)(Workers(spec)(worker0)).State.Sysctls
		for key, want := range map[string]string{
			"vm.overcommit_memory": "1", "vm.panic_on_oom": "0", "kernel.panic": "10", "kernel.panic_on_oops": "1",
			"kernel.keys.root_maxkeys": "1000000", "kernel.keys.root_maxbytes": "25000000",
		} {
			if found, set := got[key]; set != tt.protects || set && found != want {
				t.Errorf("%s: sysctl %s is %q", tt.name, key, found)
			}
		}
		if got["net.ipv4.ip_forward"] != "1" {
			t.Errorf("%s: the others are %v", tt.name, got)
		}
	}
}

// TestAuthentication renders issuers beside the provider's own rule, and reads them back.
func TestAuthentication(t *testing.T) {
	build := must(t)
	spec := controlPlaneSpec(t)
	issuer := map[string]any{"url": "https://login.example.com", "audiences": []any{"kubernetes"}}
	spec.APIServer.Authentication = map[string]any{"jwt": []any{map[string]any{"issuer": issuer,
		"claimMappings": map[string]any{"username": map[string]any{"claim": "sub", "prefix": "people:"}, "groups": map[string]any{"expression": "claims.roles"}}}}}
	if err := spec.Check().Err(); err != nil {
		t.Fatal(err)
	}
	m := build(ControlPlane(spec, spec.Nodes[0]))
	content := fileOf(t, m, AuthenticationPath)
	for _, want := range []string{"anonymous:\n  conditions:\n  - path: /livez\n", "url: https://login.example.com", "prefix: 'people:'"} {
		if !strings.Contains(content, want) {
			t.Errorf("no %q in\n%s", want, content)
		}
	}
	for _, tt := range []struct {
		name string
		edit func(jwt map[string]any)
		want string
	}{
		{"no issuer", func(jwt map[string]any) { delete(jwt, "issuer") }, "authentication.jwt[0].issuer.url: Required value"},
		{"not HTTPS", func(jwt map[string]any) {
			jwt["issuer"] = map[string]any{"url": "http://x.example.com", "audiences": []any{"a"}}
		}, "URL scheme must be https"},
		{"the cluster's own issuer", func(jwt map[string]any) {
			jwt["issuer"] = map[string]any{"url": "https://kubernetes.default.svc.cluster.local", "audiences": []any{"a"}}
		}, "URL must not overlap with disallowed issuers"},
		{"another authority than PEM", func(jwt map[string]any) {
			jwt["issuer"] = map[string]any{"url": "https://x.example.com", "audiences": []any{"a"}, "certificateAuthority": "x"}
		}, "authentication.jwt[0].issuer.certificateAuthority"},
		{"an expression that does not compile", func(jwt map[string]any) {
			jwt["claimMappings"] = map[string]any{"username": map[string]any{"expression": "claims.sub +"}}
		}, "authentication.jwt[0].claimMappings.username.expression"},
		{"an unknown field", func(jwt map[string]any) { jwt["claimMapping"] = map[string]any{} }, `unknown field "jwt[0].claimMapping"`},
		{"another type", func(jwt map[string]any) { jwt["issuer"] = "https://x.example.com" }, "authentication.jwt[0].issuer: this takes an object"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := spec
			jwt := map[string]any{"issuer": issuer, "claimMappings": map[string]any{"username": map[string]any{"claim": "sub", "prefix": ""}}}
			tt.edit(jwt)
			spec.APIServer.Authentication = map[string]any{"jwt": []any{jwt}}
			if errs := spec.Check(); len(errs) == 0 || errs[0].Field != "authentication" || !strings.Contains(errs.Err().Error(), tt.want) {
				t.Errorf("%v", errs)
			}
		})
	}
	spec.APIServer.Authentication = map[string]any{"anonymous": map[string]any{"enabled": false}}
	if errs := spec.Check(); len(errs) != 1 || !strings.Contains(errs[0].Error(), "authentication.anonymous: the provider sets it") {
		t.Errorf("%v", errs)
	}
}

func TestControlPlaneOverrides(t *testing.T) {
	spec := controlPlaneSpec(t)
	spec.APIServer.AuditPolicy = []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n")
	spec.APIServer.AdmissionPlugins = map[string]map[string]any{"PodSecurity": {
		"apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
		"defaults": map[string]any{"enforce": "baseline"},
	}, "EventRateLimit": nil}
	spec.Scheduler.Config = map[string]any{"leaderElection": map[string]any{"leaseDuration": "30s"}, "parallelism": 8}
	spec.APIServer.Args = Args{
		"tls-min-version":          {"VersionTLS13"},
		"goaway-chance":            {},
		"service-account-key-file": {ServiceAccountPubPath, "/etc/old.pub"},
	}
	m := must(t)(ControlPlane(spec, controllers[0]))
	for _, path := range []string{AuditPolicyPath, AdmissionPath, SchedulerConfigPath, unitPath(APIServerUnit)} {
		golden(t, filepath.Join("overrides", strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", "_")), []byte(fileOf(t, m, path)))
	}
	if !cmp.Equal(unitOf(t, m, APIServerUnit).RestartOn[len(unitOf(t, m, APIServerUnit).RestartOn)-1], AdmissionPath) {
		t.Error("the API server does not restart for its admission configuration, which it reads only once")
	}
}

func TestNoCNI(t *testing.T) {
	spec := workerSpec(t)
	spec.CNI.Network = CNINone
	n := worker0
	n.PodCIDR = node("x", "10.0.0.1", "", "").PodCIDR
	m := must(t)(Workers(spec)(n))
	for _, p := range m.State.Paths() {
		if p == CNIConfigPath || p == PodEgressPath {
			t.Errorf("%s is there without a network of ours", p)
		}
	}
	if m.State.Units[0].Name != ContainerdUnit {
		t.Errorf("the first unit is %s", m.State.Units[0].Name)
	}
}

// When a changed CA is applied, every program that verifies with it restarts.
func TestChangedCARestartsItsUsers(t *testing.T) {
	for _, release := range version.Releases() {
		workers, control := workerSpec(t), controlPlaneSpec(t)
		workers.Version, control.Version = release.Newest, release.Newest
		worker, controller := must(t)(Workers(workers)(worker0)), must(t)(ControlPlane(control, controllers[0]))
		for _, test := range []struct {
			machine    Machine
			unit, path string
		}{
			{worker, KubeletUnit, NodeCAPath},
			{worker, KubeProxyUnit, NodeCAPath},
			{controller, APIServerUnit, CAPath},
			{controller, APIServerUnit, APIServerEtcdCAPath},
			{controller, APIServerUnit, ServiceAccountPubPath},
			{controller, ControllerManagerUnit, CAPath},
			{controller, ControllerManagerUnit, ServiceAccountKeyPath},
			{controller, SchedulerUnit, CAPath},
		} {
			if !slices.Contains(unitOf(t, test.machine, test.unit).RestartOn, test.path) {
				t.Errorf("%s %s does not restart for %s", test.unit, release.Newest, test.path)
			}
		}
	}
}

// While keys rotate, all generations are trusted and the first of each issues.
func TestRotatingKeys(t *testing.T) {
	spec := controlPlaneSpec(t)
	ref, err := pki.Bootstrap(t.Context(), pki.NewMemoryStore(nil), "demo", time.Now(), rand.Reader, pki.Options{
		Store: pki.StoreSSM, Generations: pki.Generations{KubernetesCA: []int{2, 1}, ServiceAccount: []int{2, 1}, Encryption: []int{2, 1}}})
	if err != nil {
		t.Fatal(err)
	}
	spec.Cluster.PKI = ref
	m := must(t)(ControlPlane(spec, controllers[0]))
	if got := strings.Count(fileOf(t, m, CAPath), "BEGIN CERTIFICATE"); got != 2 {
		t.Errorf("%s holds %d certificates", CAPath, got)
	}
	if got := fileOf(t, m, CASigningPath); got != ref.IssuingCertificate(pki.KubernetesCA) || strings.Count(got, "BEGIN") != 1 {
		t.Errorf("the signing certificate is %s", got)
	}
	if got := strings.Count(fileOf(t, m, ServiceAccountPubPath), "BEGIN PUBLIC KEY"); got != 2 {
		t.Errorf("%s holds %d keys", ServiceAccountPubPath, got)
	}
	origins := map[string]string{}
	for _, s := range m.Secrets {
		origins[s.Path] = s.Origin()
	}
	if diff := cmp.Diff(map[string]string{
		CAKeyPath: "kubernetes-ca-2.key", ServiceAccountKeyPath: "service-account-2.key",
		EncryptionConfigPath: "encryption-2.key, encryption.key as secretbox",
	}, origins); diff != "" {
		t.Error(diff)
	}
}

// A member that joins or leaves does not change the units of the others.
func TestScalingEtcdChangesNoOther(t *testing.T) {
	spec := etcdSpec(t)
	spec.Members = controllers[:1]
	before := must(t)(Etcd(spec, controllers[0]))
	spec.Members = controllers
	after := must(t)(Etcd(spec, controllers[0]))
	for i, f := range before.State.Files {
		if !f.Once && !cmp.Equal(f, after.State.Files[i]) {
			t.Errorf("%s changed", f.Path)
		}
	}
	if diff := cmp.Diff(before.Certificates, after.Certificates, cmp.Comparer(func(a, b Node) bool { return a == b }), cmpAddr); diff != "" {
		t.Error(diff)
	}

	spec.Existing, spec.InitialCluster, spec.Token = true, controllers[:2], "demo-run-7"
	joining := must(t)(Etcd(spec, controllers[1]))
	want := "ETCD_INITIAL_CLUSTER=controller-0=https://10.240.0.10:2380,controller-1=https://10.240.0.11:2380\nETCD_INITIAL_CLUSTER_STATE=existing\nETCD_INITIAL_CLUSTER_TOKEN=demo-run-7\n"
	if diff := cmp.Diff(want, fileOf(t, joining, EtcdBootstrapEnv)); diff != "" {
		t.Error(diff)
	}
	if got := BegunToken([]byte(want)); got != spec.Token {
		t.Errorf("begun with the token %q", got)
	}
	if got := BegunToken([]byte(want + etcdStartedMark + "\n")); got != "" {
		t.Errorf("a member that has started was begun with the token %q", got)
	}
}

func TestEncryptionConfig(t *testing.T) {
	key := func(s string) []byte { return []byte(base64.StdEncoding.EncodeToString([]byte(s)) + "\n") }
	old, fresh := key("0123456789abcdef0123456789abcdef"), key("fedcba9876543210fedcba9876543210")
	for name, test := range map[string]struct {
		generations []int
		keys        [][]byte
	}{
		"encryption-config.yaml":          {[]int{1}, [][]byte{old}},
		"encryption-config-rotating.yaml": {[]int{2, 1}, [][]byte{fresh, old}},
	} {
		b, err := encryptionConfig(test.generations)(test.keys)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, b)
	}
	render := encryptionConfig([]int{1})
	if _, err := render([][]byte{old, fresh}); err == nil {
		t.Error("two keys for one generation")
	}
	for _, bad := range []string{"", "secret!", "c2hvcnQ="} {
		if _, err := render([][]byte{[]byte(bad)}); err == nil || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("error for %q is %v", bad, err)
		}
	}
}

func TestObjects(t *testing.T) {
	spec := ControlPlaneSpec{Access: []access.Entry{{Group: "oidc:ops", ClusterRole: "view"}}}
	var docs []string
	for _, o := range spec.SystemObjects() {
		b, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		for _, noise := range []string{"creationTimestamp", "status:", ": null"} {
			if strings.Contains(string(b), noise) {
				t.Errorf("%s %s has %s", o.GetKind(), o.GetName(), noise)
			}
		}
		docs = append(docs, string(b))
	}
	golden(t, filepath.Join("objects", "system.yaml"), []byte(strings.Join(docs, "---\n")))
}

// A worker has exactly the packages whose programs are called.
func TestWorkerPackages(t *testing.T) {
	for _, tt := range []struct {
		mode, cni string
		want      []string
	}{
		{"nftables", CNIBridge, []string{"nftables"}},
		{"nftables", CNINone, []string{"nftables"}},
		{"iptables", CNIBridge, []string{"iptables", "nftables"}},
		{"iptables", CNINone, []string{"iptables"}},
		{"ipvs", CNINone, []string{"ipset", "iptables"}},
		{"", CNINone, []string{"iptables"}},
	} {
		spec := workerSpec(t)
		spec.CNI.Network = tt.cni
		spec.KubeProxy.Config = map[string]any{"mode": tt.mode}
		m, err := Workers(spec)(worker0)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(m.State.Packages, tt.want) {
			t.Errorf("mode %q, CNI %q: packages %v, want %v", tt.mode, tt.cni, m.State.Packages, tt.want)
		}
	}
}

// TestEtcdHasStarted: what the unit notes at the start of a member is what is read afterwards.
func TestEtcdHasStarted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bootstrap.env")
	settings := fileOf(t, must(t)(Etcd(etcdSpec(t), controllers[0])), EtcdBootstrapEnv)
	for _, started := range []bool{false, true, true} {
		if started {
			script := strings.ReplaceAll(etcdHasStarted, EtcdBootstrapEnv, file)
			if out, err := exec.CommandContext(t.Context(), "sh", "-c", script).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		} else if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if EtcdHasStarted(text) != started {
			t.Errorf("started: %v, with\n%s", !started, text)
		}
	}
}
