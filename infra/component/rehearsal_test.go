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
		if got := refusedFor(tt.status, host.Complaint(tt.output)); got != tt.want {
			t.Errorf("%s: refused for %q, wanted %q", tt.name, got, tt.want)
		}
	}
	if got := refusedFor(1, strings.Repeat("é", 1000)); len(got) > maxComplaint+4 || !strings.HasSuffix(got, "é ...") {
		t.Errorf("a long complaint is quoted as %q", got)
	}
}

// TestIgnored uses what the programs really print. TestRehearsal of internal/e2e/flags runs them.
func TestIgnored(t *testing.T) {
	for _, tt := range []struct{ name, output, want string }{
		{"everything is read", "I1126 22:55:00.008098    6608 server.go:257] \"Effective KubeletConfiguration\" config=<\n", ""},
		{"the kubelet goes on without a field", `I1126 22:55:00.006595    6608 codec.go:102] "Using lenient decoding as strict decoding failed" err="strict decoding error: unknown field \"maxpods\""` + "\n" +
			`E1121 16:26:18.388748   29208 run.go:72] "command failed" err="stat ` + missingPath + `: no such file or directory"`, `nothing reads a part of its configuration: strict decoding error: unknown field "maxpods"`},
		{"kube-proxy too, in JSON", `{"ts":1,"msg":"Using lenient decoding as strict decoding failed","v":0,"err":"strict decoding error: unknown field \"mod\""}`,
			`nothing reads a part of its configuration: Using lenient decoding as strict decoding failed strict decoding error: unknown field "mod"`},
		{"containerd goes on without a key", `time="2026-11-26T22:54:59Z" level=warning msg="Ignoring unknown key in TOML" column=1 error="strict mode: fields in the document are missing in the target struct" file=c.toml key=oom_scor row=2`,
			"nothing reads its key oom_scor"},
		{"containerd goes on without a key of a plugin", `time="2026-11-26T22:54:59Z" level=warning msg="Ignoring unknown key in TOML for plugin" error="strict mode: fields in the document are missing in the target struct" key="registry config_pat" plugin=io.containerd.cri.v1.images`,
			`nothing reads its key plugins."io.containerd.cri.v1.images".registry.config_pat`},
		{"containerd has no such plugin", "version = 3\n[plugins]\n[plugins.'a.v1']\n[plugins.'a.v2']\nversion = 3\n[plugins]\ntime=\"2026\" level=info\n[plugins.'a.v1']\n", `nothing reads its table plugins."a.v2"`},
		{"runc has no such option", "version = 3\n" + runtimes("b", "SystemCgroup") + "version = 3\n" + runtimes("runc", "SystemdCgroup"), "nothing reads the option SystemCgroup of its runtime b"},
		{"what runc's shim reads and nothing prints", "version = 3\n" + runtimes("b", "NoPivotRoot") + "version = 3\n" + runtimes("runc", "SystemdCgroup"), ""},
		{"what runc has", "version = 3\n" + runtimes("b", "SystemdCgroup") + "version = 3\n" + runtimes("runc", "SystemdCgroup"), ""},
	} {
		if got := ignoredIn(tt.output); got != tt.want {
			t.Errorf("%s: %q, wanted %q", tt.name, got, tt.want)
		}
		if got := Refusal(0, tt.output, ""); (got != "") != (tt.want != "") || !strings.HasSuffix(got, tt.want) {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}

// runtimes is a configuration of containerd with one runtime that is runc, with one option.
func runtimes(name, option string) string {
	const at = "plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes."
	return "[" + at + name + "]\nruntime_type = 'io.containerd.runc.v2'\n[" + at + name + ".options]\n" + option + " = true\n"
}

func TestRehearsalArgs(t *testing.T) {
	if runs := RehearsalArgs([]string{"/usr/sbin/nft"}); len(runs) > 0 {
		t.Error("a program of which nothing is known is rehearsed")
	}
	runs := RehearsalArgs([]string{"/usr/local/bin/kube-proxy"})
	if len(runs) != 1 || len(runs[0]) != 1 {
		t.Fatalf("kube-proxy is rehearsed by %q", runs)
	}
	runs[0][0] = "changed"
	if again := RehearsalArgs([]string{"kube-proxy"}); again[0][0] == "changed" {
		t.Error("one caller can change the arguments for all others")
	}
}
