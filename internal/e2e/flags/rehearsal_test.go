package flags

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// fixture is a small cluster with its own keys, for rendering.
type fixture struct {
	etcd    component.EtcdSpec
	control component.ControlPlaneSpec
	worker  component.WorkerSpec
	store   pki.Store
}

// judgement is the expected answer of a program to a changed configuration.
type judgement struct {
	name   string
	change func(*fixture)
	want   string // part of the error; empty if the program accepts the configuration
}

// TestRehearsal lets the real programs check real configurations, as a roll does before it stops
// anything: in their own namespaces, without network and without write access.
func TestRehearsal(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for namespaces")
	}
	accepted := func(*fixture) {}
	apiServer := func(flag, value string) func(*fixture) {
		return func(f *fixture) { f.control.APIServer.Args = component.SingleArgs(map[string]string{flag: value}) }
	}
	manager := func(flag, value string) func(*fixture) {
		return func(f *fixture) {
			f.control.ControllerManager.Args = component.SingleArgs(map[string]string{flag: value})
		}
	}
	scheduler := func(field string, value any) func(*fixture) {
		return func(f *fixture) { f.control.Scheduler.Config = map[string]any{field: value} }
	}
	kubelet := func(field string, value any) func(*fixture) {
		return func(f *fixture) { f.worker.Kubelet.Config[field] = value }
	}
	schedulerFlag := func(flag, value string) func(*fixture) {
		return func(f *fixture) { f.control.Scheduler.Args = component.SingleArgs(map[string]string{flag: value}) }
	}
	kubeletFlag := func(flag, value string) func(*fixture) {
		return func(f *fixture) { f.worker.Kubelet.Args = component.SingleArgs(map[string]string{flag: value}) }
	}
	proxyFlag := func(flag, value string) func(*fixture) {
		return func(f *fixture) { f.worker.KubeProxy.Args = component.SingleArgs(map[string]string{flag: value}) }
	}
	etcd := func(flag, value string) func(*fixture) {
		return func(f *fixture) { f.etcd.Args = component.SingleArgs(map[string]string{flag: value}) }
	}
	for _, tt := range []struct {
		program    string
		judgements []judgement
	}{
		{artifact.KubeAPIServer, []judgement{
			{"accepted", accepted, ""},
			{"configured plugin", podSecurity("baseline"), ""},
			{"peers", apiServer("feature-gates", "UnknownVersionInteroperabilityProxy=true"), ""},
			{"gate with a prefix", apiServer("feature-gates", "kube:InPlacePodVerticalScaling=true"), ""},
			{"unknown gate with a prefix", apiServer("feature-gates", "kube:Foo=true"), "unrecognized feature gate: Foo"},
			{"flag", apiServer("no-such-flag", "1"), "unknown flag: --no-such-flag"},
			{"duration", apiServer("event-ttl", "long"), `invalid argument "long" for "--event-ttl" flag`},
			{"value", apiServer("goaway-chance", "5"), "--goaway-chance can not be"},
			{"gate", apiServer("feature-gates", "Foo=true"), "unrecognized feature gate: Foo"},
			{"missing file", apiServer("token-auth-file", "/etc/kubernetes/none"), "open /etc/kubernetes/none: no such file"},
			{"plugin's configuration", podSecurity("basline"),
				`failed to initialize admission plugin "PodSecurity": PodSecurity configuration error: enforce: must be one of privileged, baseline, restricted`},
		}},
		{artifact.KubeControllerManager, []judgement{
			{"accepted", accepted, ""},
			{"flag", manager("no-such-flag", "1"), "unknown flag: --no-such-flag"},
			{"gate", manager("feature-gates", "Foo=true"), "unrecognized feature gate: Foo"},
			{"controller taken out", manager("controllers", "*,-foo"), `"foo" is not in the list of known controllers`},
			{"controller", manager("controllers", "*,foo"), `"foo" is not in the list of known controllers`},
			{"TLS version", manager("tls-min-version", "9"), `unknown tls version "9"`},
		}},
		{artifact.KubeScheduler, []judgement{
			{"accepted", accepted, ""},
			{"flag", schedulerFlag("no-such-flag", "1"), "unknown flag: --no-such-flag"},
			{"gate", schedulerFlag("feature-gates", "Foo=true"), "unrecognized feature gate: Foo"},
			{"value", scheduler("percentageOfNodesToScore", 200),
				"percentageOfNodesToScore: Invalid value: 200"},
			{"plugin", scheduler("profiles", []any{map[string]any{"schedulerName": "x",
				"plugins": map[string]any{"score": map[string]any{"enabled": []any{map[string]any{"name": "Foo"}}}}}}), `"Foo" does not exist`},
		}},
		{artifact.Kubelet, []judgement{
			{"accepted", accepted, ""},
			{"value", kubelet("maxPods", -1), "maxPods (--max-pods) -1 must not be a negative number"},
			{"flag", kubeletFlag("no-such-flag", "1"), "unknown flag: --no-such-flag"},
			{"gate in a flag", kubeletFlag("feature-gates", "Foo=true"), "unrecognized feature gate: Foo"},
			{"gate", kubelet("featureGates", map[string]any{"Foo": true}), "unrecognized feature gate: Foo"},
		}},
		{artifact.KubeProxy, []judgement{
			{"accepted", accepted, ""},
			{"flag", proxyFlag("no-such-flag", "1"), "unknown flag: --no-such-flag"},
			{"gate", func(f *fixture) {
				f.worker.KubeProxy.Config = map[string]any{"featureGates": map[string]any{"Foo": true}}
			}, "unrecognized feature gate: Foo"},
			{"mode", func(f *fixture) { f.worker.KubeProxy.Config = map[string]any{"mode": "foo"} }, `Invalid value: "foo": must be`},
		}},
		{artifact.Containerd, []judgement{
			{"accepted", accepted, ""},
			{"type", func(f *fixture) {
				f.worker.Containerd.Config = map[string]any{"plugins": map[string]any{"io.containerd.cri.v1.images": map[string]any{"snapshotter": 3}}}
			}, "cannot decode TOML integer into struct field config.ImageConfig.Snapshotter"},
			{"key", containerd("io.containerd.cri.v1.images", map[string]any{"snapshoter": "native"}), `nothing reads its key plugins."io.containerd.cri.v1.images".snapshoter`},
			{"plugin", containerd("io.containerd.cri.v1.image", map[string]any{"snapshotter": "native"}), `nothing reads its table plugins."io.containerd.cri.v1.image"`},
			{"option of runc", containerd("io.containerd.cri.v1.runtime", map[string]any{"containerd": map[string]any{"runtimes": map[string]any{"crun": map[string]any{
				"runtime_type": "io.containerd.runc.v2", "options": map[string]any{"SystemCgroup": true}}}}}), "nothing reads the option SystemCgroup of its runtime crun"},
		}},
		{artifact.Etcd, []judgement{
			{"accepted", accepted, ""},
			{"value", etcd("election-timeout", "100"),
				"--election-timeout[100ms] should be at least"},
			{"flag", etcd("no-such-flag", "1"),
				"flag provided but not defined: -no-such-flag"},
		}},
	} {
		for _, v := range versions {
			t.Run(tt.program+" "+v, func(t *testing.T) {
				f := newFixture(t, v)
				program := program(t, find(t, f.artifacts(), tt.program), member(tt.program))
				for _, j := range tt.judgements {
					t.Run(j.name, func(t *testing.T) {
						f := newFixture(t, v)
						j.change(&f)
						root := t.TempDir()
						f.render(t, root)
						refused := rehearse(t, root, program, tt.program)
						if j.want == "" && refused != "" || !strings.Contains(refused, j.want) {
							t.Errorf("refused for %q, wanted %q", refused, j.want)
						}
					})
				}
			})
		}
	}
}

// containerd changes the configuration of one of its plugins.
func containerd(plugin string, config map[string]any) func(*fixture) {
	return func(f *fixture) {
		f.worker.Containerd.Config = map[string]any{"plugins": map[string]any{plugin: config}}
	}
}

func podSecurity(enforce string) func(*fixture) {
	return func(f *fixture) {
		f.control.APIServer.AdmissionPlugins = map[string]map[string]any{"PodSecurity": {"apiVersion": "pod-security.admission.config.k8s.io/v1",
			"kind": "PodSecurityConfiguration", "defaults": map[string]any{"enforce": enforce}}}
	}
}

// member is the path of a program within its download.
func member(program string) string {
	switch program {
	case artifact.Etcd:
		return "etcd-v" + artifact.DefaultEtcd + "-linux-amd64/etcd"
	case artifact.Containerd:
		return "bin/containerd"
	}
	return ""
}

func newFixture(t *testing.T, v string) fixture {
	t.Helper()
	store := pki.NewMemoryStore(nil)
	ref, err := pki.Bootstrap(t.Context(), store, "demo", time.Now(), rand.Reader, pki.Options{Store: pki.StoreSSM})
	if err != nil {
		t.Fatal(err)
	}
	c := cluster
	c.PKI = ref
	etcd, err := catalog(t).EtcdSet(artifact.DefaultEtcd)
	etcd = set(t, etcd, err)
	control, err := catalog(t).ControlPlaneSet(v)
	control = set(t, control, err)
	worker, err := catalog(t).WorkerSet(v, "", "", "", true)
	worker = set(t, worker, err)
	nodes := []component.Node{controller}
	return fixture{
		store: store,
		etcd:  component.EtcdSpec{Cluster: c, Version: artifact.DefaultEtcd, Members: nodes, Artifacts: etcd},
		control: component.ControlPlaneSpec{Cluster: c, Version: v, Nodes: nodes, Artifacts: control,
			EtcdEndpoints: []string{"https://10.240.0.10:2379"}},
		worker: component.WorkerSpec{Cluster: c, Version: v, ControlPlaneEndpoint: "https://10.240.0.40:6443", Artifacts: worker,
			// The machine that runs the test may be an old one.
			Kubelet: component.KubeletSpec{Config: map[string]any{"failCgroupV1": false}}},
	}
}

func (f fixture) artifacts() []artifact.Artifact {
	return slices.Concat(f.etcd.Artifacts, f.control.Artifacts, f.worker.Artifacts)
}

// render writes all files of all roles, including keys, below root.
func (f fixture) render(t *testing.T, root string) {
	t.Helper()
	etcd, err1 := component.Etcd(f.etcd, controller)
	control, err2 := component.ControlPlane(f.control, controller)
	node, err3 := component.Workers(f.worker)(worker)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	put := func(path string, content []byte, mode uint32) {
		path = filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, os.FileMode(mode))); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range []component.Machine{etcd, control, node} {
		for _, file := range m.State.Files {
			put(file.Path, file.Content, file.Mode)
		}
		for _, slot := range m.Certificates {
			pair := f.issue(t, slot)
			put(slot.CertPath, pair.CertPEM, 0o644)
			put(slot.KeyPath, pair.KeyPEM, slot.KeyMode)
		}
		for _, secret := range m.Secrets {
			put(secret.Path, f.secret(t, secret), secret.Mode)
		}
	}
}

func (f fixture) issue(t *testing.T, slot pki.Slot) pki.KeyPair {
	t.Helper()
	ref := f.etcd.Cluster.PKI
	key, err := f.store.Get(t.Context(), ref.IssuingKey(slot.CA))
	if err != nil {
		t.Fatal(err)
	}
	authority, err := pki.LoadAuthority(pki.KeyPair{CertPEM: []byte(ref.Bundle(slot.CA)), KeyPEM: key})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue(slot.Request, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func (f fixture) secret(t *testing.T, s component.Secret) []byte {
	t.Helper()
	var values [][]byte
	for _, name := range s.Sources {
		v, err := f.store.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, v)
	}
	if s.Render == nil {
		return values[0]
	}
	content, err := s.Render(values)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// confine runs a program with another /etc, without a network, and with write access only to
// /var/log.
const confine = `set -e
etc=$1; shift
mount -t overlay overlay -o "ro,lowerdir=$etc:/etc" /etc
mount -t tmpfs tmpfs /var/log
for dir in /var/lib /run; do mount -o bind,ro "$dir" "$dir"; done
exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs "$@"
`

// rehearse returns why a program would not start with the files below root.
func rehearse(t *testing.T, root, program, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, "etc/systemd/system", name+".service"))
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(content), "\nExecStart=")
	line, _, _ = strings.Cut(line, "\nRestart=")
	words := strings.Split(line, " \\\n  ")[1:]
	for i, w := range words {
		words[i] = strings.Trim(w, `"`)
	}
	var status int
	var said []byte
	for _, rehearsal := range component.RehearsalArgs(append([]string{name}, words...)) {
		ctx, cancel := context.WithTimeout(t.Context(), runTimeout)
		defer cancel()
		args := append([]string{"--net", "--mount", "sh", "-c", confine, "sh", filepath.Join(root, "etc"), program}, slices.Concat(words, rehearsal)...)
		cmd := exec.CommandContext(ctx, "unshare", args...)
		// The variables that the unit reads from bootstrap.env.
		cmd.Env = append(os.Environ(), "ETCD_INITIAL_CLUSTER=controller-0=https://10.240.0.10:2380")
		out, _ := cmd.CombinedOutput() // the exit status says it
		if ctx.Err() != nil {
			t.Fatalf("%s did not end:\n%s", name, out)
		}
		said = append(said, out...)
		if status = cmd.ProcessState.ExitCode(); status != 0 {
			break // systemd ends a unit there
		}
	}
	refused := component.Refusal(status, string(said), host.Complaint(string(said)))
	t.Logf("%d; refused for %q\n%s", status, refused, said[max(0, len(said)-1000):])
	return refused
}
