package apply

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
)

var testNodes = nodesOf(map[string]node{
	"worker-0":     {Address: "10.240.0.20", Pods: "10.200.3.0/24"},
	"controller-1": {Address: "10.240.0.11", Pods: "10.200.1.0/24"},
	"controller-0": {Address: "10.240.0.10", Pods: "10.200.0.0/24"},
})

var testCluster = cluster{
	Endpoint: "10.240.0.30:6443", Token: "abcdef.0123456789abcdef", CertificateKey: "c0ffee",
	Vars: labVars{
		Kubelet:    object{"failCgroupV1": false, "cgroupDriver": "cgroupfs"},
		KubeProxy:  object{"conntrack": object{"maxPerCore": 0}},
		Containerd: object{"plugins": object{"io.containerd.cri.v1.runtime": object{"restrict_oom_score_adj": true}}},
	},
}

func TestNodesOf(t *testing.T) {
	var names []string
	for _, n := range testNodes {
		names = append(names, n.Name)
	}
	if got := strings.Join(names, " "); got != "controller-0 controller-1 worker-0" {
		t.Errorf("nodes %s", got)
	}
}

// kinds returns the documents by kind.
func kinds(t *testing.T, text []byte) map[string]object {
	t.Helper()
	out := map[string]object{}
	for document := range strings.SplitSeq(string(text), "---\n") {
		if document == "" {
			continue
		}
		var o object
		if err := json.Unmarshal([]byte(document), &o); err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		out[o["kind"].(string)] = o
	}
	return out
}

// at returns a field of an object.
func at(t *testing.T, o any, path ...string) any {
	t.Helper()
	for _, field := range path {
		fields, ok := o.(object)
		if !ok {
			t.Fatalf("no object above %s in %v", field, path)
		}
		o = fields[field]
	}
	return o
}

func TestInitConfig(t *testing.T) {
	text, err := testCluster.initConfig(testNodes[0])
	if err != nil {
		t.Fatal(err)
	}
	got := kinds(t, text)
	for _, want := range []struct {
		value any
		path  []string
	}{
		{"10.240.0.10", []string{"InitConfiguration", "localAPIEndpoint", "advertiseAddress"}},
		{"controller-0", []string{"InitConfiguration", "nodeRegistration", "name"}},
		{"c0ffee", []string{"InitConfiguration", "certificateKey"}},
		{"10.240.0.30:6443", []string{"ClusterConfiguration", "controlPlaneEndpoint"}},
		{"3.6.16-0", []string{"ClusterConfiguration", "etcd", "local", "imageTag"}},
		{"v1.15.0", []string{"ClusterConfiguration", "dns", "imageTag"}},
		{"cgroupfs", []string{"KubeletConfiguration", "cgroupDriver"}},
		{"nftables", []string{"KubeProxyConfiguration", "mode"}},
		{0.0, []string{"KubeProxyConfiguration", "conntrack", "maxPerCore"}},
	} {
		top := object{}
		for kind, o := range got {
			top[kind] = o
		}
		if found := at(t, top, want.path...); found != want.value {
			t.Errorf("%s is %v, want %v", strings.Join(want.path, "."), found, want.value)
		}
	}
	if _, set := at(t, got["ClusterConfiguration"], "networking").(object)["podSubnet"]; set {
		t.Error("the controller manager would give nodes other networks than their bridges have")
	}
}

func TestJoinConfig(t *testing.T) {
	for _, n := range testNodes[1:] {
		text, err := testCluster.joinConfig(n, "sha256:feed")
		if err != nil {
			t.Fatal(err)
		}
		join := kinds(t, text)["JoinConfiguration"]
		if got := at(t, join, "discovery", "bootstrapToken", "caCertHashes"); !reflect.DeepEqual(got, []any{"sha256:feed"}) {
			t.Errorf("%s trusts %v", n.Name, got)
		}
		if _, joins := join["controlPlane"]; joins != n.controller() {
			t.Errorf("%s joins the control plane: %v", n.Name, joins)
		}
	}
}

func TestContainerdConfig(t *testing.T) {
	text, err := testCluster.containerdConfig()
	if err != nil {
		t.Fatal(err)
	}
	var got object
	if err := toml.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	runtime := at(t, got, "plugins", "io.containerd.cri.v1.runtime")
	if at(t, runtime, "restrict_oom_score_adj") != true || at(t, runtime, "cni", "conf_dir") != "/etc/cni/net.d" {
		t.Errorf("the lab's settings are not merged:\n%s", text)
	}
	if at(t, runtime, "containerd", "runtimes", "runc", "options", "SystemdCgroup") != false {
		t.Errorf("containerd uses systemd for control groups, the kubelet does not:\n%s", text)
	}
}

func TestHAProxyConfig(t *testing.T) {
	got := haproxyConfig(testNodes)
	if n := strings.Count(got, "\n    server "); n != 2 || !strings.Contains(got, "server controller-1 10.240.0.11:6443\n") {
		t.Errorf("%d servers in:\n%s", n, got)
	}
}

func TestCNIConfig(t *testing.T) {
	got, err := cniConfig(testNodes[2])
	if err != nil || !strings.Contains(string(got), `"subnet": "10.200.3.0/24"`) {
		t.Errorf("%v\n%s", err, got)
	}
}
