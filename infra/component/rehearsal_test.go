package component

import (
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
)

// TestRefusal uses what the programs really print. TestRehearsal of internal/e2e/flags runs them.
func TestRefusal(t *testing.T) {
	const failed = `E1121 16:26:18.388748   29208 run.go:72] "command failed" err=`
	for _, tt := range []struct {
		name   string
		status int
		output string
		want   string
	}{
		{"accepted", 0, `I1121 16:26:45.022178   31795 options.go:436] "Wrote configuration" file="/dev/null"`, ""},
		{"came to the end", 1, failed + `"stat ` + missingPath + `: no such file or directory"`, ""},
		{"came to the end, fatally", 255, "F1121 16:25:02.726768   26855 instance.go:233] Error creating leases: error creating storage factory: open " + missingPath + ": no such file or directory", ""},
		{"came to the end, in JSON", 255, `{"ts":1795278393089.2122,"caller":"controlplane/instance.go:233","msg":"Error creating leases: open ` + missingPath + `: no such file or directory","v":0}`, ""},
		{"a gate of ours is gone", 1, failed + `"unrecognized feature gate: ` + peerGate + `"`, ""},
		{"killed", 9, "Error: x", ""},
		{"not even confined", 226, "", ""},
		{"silent", 1, "I1121 16:26:45.022178   31795 options.go:436] \"Starting\"\n", ""},
		{"cannot write", 1, failed + `"ensureLogFile: mkdir /data: read-only file system"`, ""},
		{"no network", 1, failed + `"Unable to find suitable network address.error='no default routes found in \"/proc/net/route\"'"`, ""},
		{"etcd came to its ports", 1, `{"level":"info","msg":"closed etcd server"}` + "\n" +
			`{"level":"fatal","msg":"discovery failed","error":"listen tcp 10.240.0.10:2380: bind: cannot assign requested address"}`, ""},
		{"crashed", 2, "panic: runtime error: invalid memory address or nil pointer dereference\n\ngoroutine 1 [running]:\n", ""},

		{"value", 1, "I1121 16:25:01.314608   26855 server.go:150] Version: v1.36.4\n" + failed + `"enable-admission-plugins plugin \"Foo\" is unknown"`, `enable-admission-plugins plugin "Foo" is unknown`},
		{"value, in JSON", 1, `{"ts":1,"caller":"cli/run.go:72","msg":"command failed","err":"unknown tls version \"9\""}`, `unknown tls version "9"`},
		{"several lines", 1, failed + "<\n\tunknown labels\n\tnot allowed\n >\n", "unknown labels not allowed"},
		{"flag", 1, "Usage:\n  kube-apiserver [flags]\n\nError: unknown flag: --no-such\n", "unknown flag: --no-such"},
		{"fatal", 255, "F1121 16:26:26.225279   29882 instance.go:250] Reconciler not implemented: x\n", "Reconciler not implemented: x"},
		{"panic", 2, "panic: unrecognized feature gate: Foo\n\ngoroutine 1 [running]:\nmain.main()\n\tx.go:37 +0x2a\n", "unrecognized feature gate: Foo"},
		{"the kubelet's whole configuration", 1, failed + `"failed to validate kubelet configuration, error: maxPods -1 must not be negative, path: &TypeMeta{Kind:,APIVersion:,}"`,
			"failed to validate kubelet configuration, error: maxPods -1 must not be negative"},
		{"etcd's flag", 2, "flag provided but not defined: -no-such\nUsage:\n\n  etcd [flags]\n    Start an etcd server.\n", "flag provided but not defined: -no-such"},
		{"etcd's value", 1, `{"level":"info","msg":"Running: ","args":["etcd"]}` + "\n" + `{"level":"warn","msg":"failed to verify flags","error":"unknown auto-compaction-mode \"foo\""}`,
			`unknown auto-compaction-mode "foo"`},
		{"containerd", 1, "containerd: toml: cannot decode TOML integer into struct field config.ImageConfig.Snapshotter of type string\n",
			"toml: cannot decode TOML integer into struct field config.ImageConfig.Snapshotter of type string"},
	} {
		if got := Refusal(tt.status, host.Complaint(tt.output)); got != tt.want {
			t.Errorf("%s: refused for %q, wanted %q", tt.name, got, tt.want)
		}
	}
	if got := Refusal(1, strings.Repeat("é", 1000)); len(got) > maxComplaint+4 || !strings.HasSuffix(got, "é ...") {
		t.Errorf("a long complaint is quoted as %q", got)
	}
}

func TestRehearsalArgs(t *testing.T) {
	if _, ok := RehearsalArgs([]string{"/usr/sbin/nft"}); ok {
		t.Error("a program of which nothing is known is rehearsed")
	}
	args, ok := RehearsalArgs([]string{"/usr/local/bin/kube-proxy"})
	if !ok || len(args) != 1 {
		t.Errorf("kube-proxy is rehearsed by %q", args)
	}
	args[0] = "changed"
	if again, _ := RehearsalArgs([]string{"kube-proxy"}); again[0] == "changed" {
		t.Error("who is told the words can change them for all others")
	}
}
