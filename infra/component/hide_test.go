package component

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/registry"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/setting"
)

// canary is in every secret of TestTextHasNoSecrets.
const canary = "hunter2-is-a-secret"

// secretArgs gives a secret to every flag of a program that takes any text. Flags whose values have a grammar cannot
// have one.
func secretArgs(program string) Args {
	out := Args{}
	for _, class := range []setting.Class{setting.Free, setting.Unclassified, setting.EmptyNode} {
		for _, flag := range setting.Of(program).Names(setting.Flag, class) {
			if flagName.MatchString(flag) && !setting.Shown(program, setting.Flag, flag) {
				out[flag] = []string{"https://user:" + canary + "@example.com", canary}
			}
		}
	}
	return out
}

// rendered returns everything that is rendered for the machines of a cluster, with a secret wherever a user can give
// one.
func rendered(t *testing.T) []Machine {
	t.Helper()
	build := must(t)
	key := "-----BEGIN EC PRIVATE KEY-----\n" + canary + "\n-----END EC PRIVATE KEY-----\n"
	networks := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}

	etcd := etcdSpec(t)
	etcd.Args, etcd.AllowedCIDRs, etcd.Token = secretArgs(artifact.Etcd), networks, canary

	backup := etcdBackupSpec()
	backup.Endpoint = "https://user:" + canary + "@s3.example.com"

	control := controlPlaneSpec(t)
	control.AllowedCIDRs = networks
	control.APIServer.Args = secretArgs(artifact.KubeAPIServer)
	control.APIServer.AdmissionPlugins = map[string]map[string]any{"ImagePolicyWebhook": {"kind": "X", "token": canary, "list": []any{canary, map[string]any{"key": key}}}}
	control.ControllerManager.Args = secretArgs(artifact.KubeControllerManager)
	control.Scheduler.Args = secretArgs(artifact.KubeScheduler)
	control.Scheduler.Config = map[string]any{"extenders": []any{map[string]any{"urlPrefix": "https://user:" + canary + "@example.com",
		"tlsConfig": map[string]any{"serverName": canary}}}}

	workers := workerSpec(t)
	workers.AllowedCIDRs = networks
	workers.Kubelet.Args, workers.KubeProxy.Args = secretArgs(artifact.Kubelet), secretArgs(artifact.KubeProxy)
	workers.Kubelet.Config = map[string]any{"staticPodURL": "https://user:" + canary + "@example.com", "staticPodURLHeader": map[string]any{"Authorization": []any{canary}}}
	workers.KubeProxy.Config = map[string]any{"bindAddress": canary}
	workers.Containerd.Config = map[string]any{"plugins": map[string]any{"io.containerd.grpc.v1.cri": map[string]any{"registry": map[string]any{
		"configs": map[string]any{"registry.example.com": map[string]any{"auth": map[string]any{"password": canary, "auth": canary, "identitytoken": canary}}}}}},
		"proxy_plugins": map[string]any{"x": map[string]any{"address": "http://user:" + canary + "@proxy:3128"}}}
	workers.Containerd.Registries = registry.Registries{
		"docker.io": {{URL: "https://mirror.example.com/" + canary}}, "quay.io": {{URL: "https://mirror.example.com/" + canary, User: "reader", Password: canary}}}
	spot := worker0
	spot.InstanceID, spot.DrainOnRebalance = "i-0123456789abcdef0", true

	balancer := loadBalancerSpec()
	balancer.AllowedCIDRs, balancer.VirtualIP, balancer.Machines = networks, netip.MustParseAddr("10.240.0.9"), []Node{lb0, controllers[0]}
	return []Machine{
		build(Etcd(etcd, controllers[0])), build(EtcdBackup(backup, controllers[0])), build(ControlPlane(control, controllers[0])),
		build(Workers(workers)(spot)), build(LoadBalancer(balancer, lb0)),
	}
}

// TestTextHasNoSecrets looks through everything that is rendered: the text that is shown has no
// secret, and secrets, kubeconfigs, certificates and programs have no text.
func TestTextHasNoSecrets(t *testing.T) {
	t.Parallel()
	var secrets, texts int
	for _, m := range rendered(t) {
		names := map[string]bool{}
		for _, f := range m.State.Files {
			names[f.Path] = true
			if bytes.Contains(f.Content, []byte(canary)) {
				secrets++
			}
			if f.Text == nil {
				continue
			}
			texts++
			if bytes.Contains(f.Text, []byte(canary)) || bytes.Contains(f.Text, []byte("PRIVATE KEY")) {
				t.Errorf("the text of %s has a secret:\n%s", f.Path, f.Text)
			}
			if f.Hides() != bytes.Contains(f.Content, []byte(canary)) {
				t.Errorf("%s: hides %t, has a secret %t", f.Path, f.Hides(), !f.Hides())
			}
			if f.Secret || f.Once || f.Mode&0o111 != 0 || f.Mode&0o004 == 0 || strings.Contains(f.Path, "kubeconfig") || strings.HasSuffix(f.Path, ".crt") {
				t.Errorf("%s has a text (mode %04o)", f.Path, f.Mode)
			}
		}
		for _, s := range m.Secrets {
			if names[s.Path] {
				t.Errorf("%s is a secret and a file", s.Path)
			}
			if bytes.Contains(s.Text, []byte(canary)) || strings.Contains(s.Origin(), canary) {
				t.Errorf("%s shows a secret: %s\n%s", s.Path, s.Origin(), s.Text)
			}
		}
	}
	// The units of six programs, the files of the scheduler, the kubelet, kube-proxy, containerd, a mirror, the
	// admission plugins, the snapshots, and the members of etcd.
	if secrets != 14 || texts < 25 {
		t.Errorf("%d files have a secret, and %d have a text", secrets, texts)
	}
}

// TestTextWithoutUser: what the provider sets by itself is shown in full.
func TestTextWithoutUser(t *testing.T) {
	t.Parallel()
	build := must(t)
	for _, m := range []Machine{
		build(Etcd(etcdSpec(t), controllers[0])), build(EtcdBackup(etcdBackupSpec(), controllers[0])),
		build(ControlPlane(controlPlaneSpec(t), controllers[0])), build(Workers(workerSpec(t))(worker0)), build(LoadBalancer(loadBalancerSpec(), lb0)),
	} {
		for _, f := range m.State.Files {
			if f.Hides() {
				t.Errorf("%s hides something:\n%s", f.Path, f.Text)
			}
		}
	}
}

func TestHide(t *testing.T) {
	t.Parallel()
	for value, open := range map[string]bool{
		"true": true, "False": true, "4": true, "-1": true, "0.5": true, "8589934592": true, "100Mi": true, "30s": true, "1h30m": true, "10%": true,
		"": false, "123456789012": false, "0123456789abcdef": false, "swordfish": false, "1h30": false, "VersionTLS13": false,
	} {
		got := Args{"oidc-issuer-url": {value}}.hide(artifact.KubeAPIServer, Args{"oidc-issuer-url": {value}})
		if shown := slices.Equal(got["oidc-issuer-url"], []string{value}); shown != open {
			t.Errorf("%q: shown %t", value, shown)
		}
	}
	args := Args{"tls-min-version": {"VersionTLS13"}, "etcd-servers": {"https://10.0.0.1:2379"}}
	if got := fmt.Sprint(args.hide(artifact.KubeAPIServer, Args{"tls-min-version": {"VersionTLS13"}, "gone": nil})); got != fmt.Sprint(args) {
		t.Errorf("%s", got)
	}
	file, err := configFile("/x", artifact.Kubelet, map[string]any{"a": "ours", "cgroupDriver": "systemd", "maxPods": int64(1), "below": map[string]any{"b": "ours", "c": "theirs"}},
		map[string]any{"cgroupDriver": "systemd", "maxPods": 1, "below": map[string]any{"c": "theirs"}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(file.Text), "a: ours\nbelow:\n  b: ours\n  c: (hidden)\ncgroupDriver: systemd\nmaxPods: 1\n"; got != want {
		t.Errorf("%s", got)
	}
	if (desired.File{Content: []byte("x")}).Hides() || !file.Hides() {
		t.Error("Hides is wrong for a file without secrets, or for one with secrets")
	}
}
