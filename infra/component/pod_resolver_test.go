package component

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPodResolver runs the script that decides which resolv.conf pods get.
func TestPodResolver(t *testing.T) {
	const (
		stub   = "# by systemd-resolved\nnameserver 127.0.0.53\noptions edns0 trust-ad\nsearch .\n"
		uplink = "nameserver 172.30.0.2\nsearch eu-central-1.compute.internal\n"
		static = "search example.com\n  nameserver\t192.0.2.53"
		mixed  = "nameserver 192.0.2.53\nnameserver 127.0.0.1\n"
		v6stub = "nameserver ::1\n"
		empty  = "search example.com\n#nameserver 192.0.2.53\n"
	)
	for _, tt := range []struct {
		name          string
		own, resolved string // content; "" means that the file is missing
		want          string // "own", "resolved" or "": neither
	}{
		{"systemd-resolved's stub", stub, uplink, "resolved"},
		{"no systemd-resolved", static, "", "own"},
		{"systemd-resolved stopped, its file left behind", static, uplink, "own"},
		{"systemd-resolved removed, a dangling link", "", uplink, "resolved"},
		{"systemd-resolved masked after a reboot", "", "", ""},
		{"a stub and nothing else", stub, "", ""},
		{"a stub beside another server", mixed, uplink, "resolved"},
		{"a stub on IPv6", v6stub, uplink, "resolved"},
		{"no servers yet", empty, empty, ""},
		{"the network comes up", stub, empty, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := func(name string) string { return filepath.Join(dir, name) }
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			must(os.WriteFile(path("pod-resolver"), podResolverScript, 0o755))
			must(os.Symlink(path("target"), path("own")))
			if tt.own != "" {
				must(os.WriteFile(path("target"), []byte(tt.own), 0o644))
			}
			if tt.resolved != "" {
				must(os.WriteFile(path("resolved"), []byte(tt.resolved), 0o644))
			}
			link := path("run/resolv.conf")
			run := func(action string) (string, error) {
				out, err := exec.CommandContext(t.Context(), path("pod-resolver"), action, link, path("own"), path("resolved")).CombinedOutput()
				return strings.ReplaceAll(strings.TrimSpace(string(out)), dir, ""), err
			}
			if tt.want == "" {
				for _, action := range []string{"check", "link"} {
					if said, err := run(action); err == nil || !strings.HasPrefix(said, "no DNS server for pods: each of /own /resolved is missing, names none, or names one on loopback") {
						t.Errorf("%s: %q, %v", action, said, err)
					}
				}
				if _, err := os.Lstat(link); err == nil {
					t.Error("it made a link all the same")
				}
				return
			}
			if said, err := run("check"); err == nil || said != "/run/resolv.conf points to nothing, wanted /"+tt.want {
				t.Errorf("check before: %q, %v", said, err)
			}
			if said, err := run("link"); err != nil || said != "" {
				t.Errorf("link: %q, %v", said, err)
			}
			if said, err := run("check"); err != nil || said != "" {
				t.Errorf("check: %q, %v", said, err)
			}
			if target, err := os.Readlink(link); err != nil || target != path(tt.want) {
				t.Errorf("links to %s, %v", target, err)
			}
			must(os.Remove(link))
			must(os.Symlink("/elsewhere", link))
			if said, err := run("check"); err == nil || said != "/run/resolv.conf points to /elsewhere, wanted /"+tt.want {
				t.Errorf("check of another link: %q, %v", said, err)
			}
			must(os.Remove(link))
			must(os.WriteFile(link, []byte(stub), 0o644))
			if said, err := run("check"); err == nil || said != "/run/resolv.conf points to nothing, wanted /"+tt.want {
				t.Errorf("check of a file: %q, %v", said, err)
			}
			if said, err := run("link"); err != nil {
				t.Errorf("link over a file: %q, %v", said, err)
			}
			if said, err := run("check"); err != nil {
				t.Errorf("check at last: %q, %v", said, err)
			}
		})
	}
}

// TestOwnResolvConf checks that a resolv.conf set by the user needs no link.
func TestOwnResolvConf(t *testing.T) {
	for _, own := range []any{"/etc/pods.conf", "", nil} {
		spec := workerSpec(t)
		spec.Kubelet.Config = map[string]any{"resolvConf": own}
		m := must(t)(Workers(spec)(worker0))
		if u := unitOf(t, m, KubeletUnit); u.Check != "" || slices.Contains(m.State.Paths(), podResolverPath) ||
			strings.Contains(fileOf(t, m, unitPath(KubeletUnit)), "pod-resolver") {
			t.Errorf("resolvConf %v: the kubelet still decides by itself", own)
		}
	}
}
