package host

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-golden +got), -update rewrites it:\n%s", path, d)
	}
}

const goodUnit = "/etc/systemd/system/a.service"

// TestDiffUnit checks the states that systemd reports, one at a time.
func TestDiffUnit(t *testing.T) {
	want := desired.State{
		Files: []desired.File{{Path: goodUnit, Mode: 0o644, Content: []byte("x")}},
		Units: []desired.Unit{{Name: "a.service", Enabled: true, Active: true}},
	}
	distro := desired.State{Units: want.Units}
	idle := desired.State{Units: []desired.Unit{{Name: "a.service"}}}
	running := Unit{LoadState: "loaded", ActiveState: "active", SubState: "running", UnitFileState: "enabled", FragmentPath: goodUnit}
	for _, tt := range []struct {
		name  string
		want  desired.State
		found func(u *Unit)
		words string
	}{
		{"good", want, func(*Unit) {}, ""},
		{"reloading", want, func(u *Unit) { u.ActiveState = "reloading" }, ""},
		{"static", want, func(u *Unit) { u.UnitFileState = "static" }, ""},
		{"starting", want, func(u *Unit) { u.ActiveState, u.SubState = "activating", "start" }, "starting, wanted running"},
		{"crashing", want, func(u *Unit) {
			u.ActiveState, u.SubState, u.Result, u.Again = "activating", "auto-restart", "exit-code", 2
		}, "failing again and again (exit-code), wanted running"},
		{"crashing, up at the moment", want, func(u *Unit) { u.Again = 2 }, "failing again and again, wanted running"},
		{"ended once", want, func(u *Unit) { u.Restarts, u.Again = 7, 1 }, ""},
		{"not started again", want, func(u *Unit) {
			u.ActiveState, u.SubState, u.Result, u.Restarts = "activating", "auto-restart", "exit-code", 7
		}, "waiting for its next start (exit-code), wanted running"},
		{"failed", want, func(u *Unit) { u.ActiveState, u.Result = "failed", "oom-kill" }, "failed (oom-kill), wanted running"},
		{"stopping", want, func(u *Unit) { u.ActiveState = "deactivating" }, "stopping, wanted running"},
		{"enabled at run time", want, func(u *Unit) { u.UnitFileState = "enabled-runtime" }, "enabled until the next boot only, wanted enabled"},
		{"linked", want, func(u *Unit) { u.UnitFileState = "linked" }, "linked, wanted enabled"},
		{"masked but running", want, func(u *Unit) { u.LoadState, u.UnitFileState, u.FragmentPath = "masked", "masked", "" }, "masked, wanted enabled"},
		{"unloadable", want, func(u *Unit) { u.LoadState = "bad-setting" }, "cannot be loaded (bad-setting), wanted enabled and running"},
		{"unknown", want, func(u *Unit) { *u = Unit{LoadState: "not-found", ActiveState: "inactive"} }, "unknown to systemd, wanted enabled and running"},
		{"needs reload", want, func(u *Unit) { u.NeedDaemonReload = true },
			"systemd has not loaded its files as they are on disk (needs daemon-reload)"},
		{"restart pending", want, func(u *Unit) { u.RestartPending, u.ReloadPending = true, true }, "restart still due since an earlier change"},
		{"reload pending", want, func(u *Unit) { u.ReloadPending = true }, "reload still due since an earlier change"},
		{"restart pending but stopped", want, func(u *Unit) { u.RestartPending, u.ActiveState = true, "inactive" }, "stopped, wanted running"},
		{"check failed", want, func(u *Unit) { u.CheckFailed = "/run/x points to /y" }, "/run/x points to /y"},
		{"check failed, restart pending", want, func(u *Unit) { u.CheckFailed, u.RestartPending = "x", true }, "restart still due since an earlier change"},
		{"check failed, drop-in", want, func(u *Unit) {
			u.CheckFailed, u.DropIns = "x", []string{"/etc/systemd/system/a.service.d/x.conf"}
		}, "drop-in /etc/systemd/system/a.service.d/x.conf: not wanted, changes a.service"},
		{"drop-in of ours in /usr", want, func(u *Unit) { u.DropIns = []string{"/usr/lib/systemd/system/a.service.d/x.conf"} },
			"drop-in /usr/lib/systemd/system/a.service.d/x.conf: not wanted, changes a.service"},
		{"drop-in of the distribution", distro, func(u *Unit) {
			u.FragmentPath, u.DropIns = "/usr/lib/systemd/system/a.service", []string{"/usr/lib/systemd/system/a.service.d/x.conf"}
		}, ""},
		{"drop-in for all services", want, func(u *Unit) { u.DropIns = []string{"/etc/systemd/system/service.d/x.conf"} }, ""},
		{"unit of the distribution replaced", distro, func(*Unit) {},
			"drop-in /etc/systemd/system/a.service: not wanted, takes the place of a.service"},
		{"fragment of lower precedence", want, func(u *Unit) { u.FragmentPath = "/usr/lib/systemd/system/a.service" }, ""},
		{"unwanted running", idle, func(u *Unit) { u.FragmentPath = "" }, "enabled, wanted disabled; unit a.service: running, wanted stopped"},
		{"unwanted failed", idle, func(u *Unit) { *u = Unit{LoadState: "loaded", ActiveState: "failed", UnitFileState: "disabled"} }, ""},
		{"unwanted crashing", idle, func(u *Unit) {
			*u = Unit{LoadState: "loaded", ActiveState: "activating", SubState: "auto-restart", UnitFileState: "disabled"}
		}, "waiting for its next start, wanted stopped"},
		{"unwanted missing", idle, func(u *Unit) { *u = Unit{LoadState: "not-found"} }, ""},
		{"unwanted masked", idle, func(u *Unit) { *u = Unit{LoadState: "masked", UnitFileState: "masked"} }, ""},
	} {
		u := running
		tt.found(&u)
		words := tt.words
		if words != "" && !strings.HasPrefix(words, "drop-in") {
			words = "unit a.service: " + words
		}
		got := Observation{Units: map[string]Unit{"a.service": u}, Files: map[string]File{goodUnit: {
			Type: Regular, Mode: 0o644, SHA256: desired.Sum([]byte("x"))}}}
		if w := Words(Diff(tt.want, got, Record{})); w != words {
			t.Errorf("%s: %q, want %q", tt.name, w, words)
		}
	}
}

// everything is a state with one of everything, for the golden files.
func everything() desired.State {
	return desired.State{
		Packages: []string{"socat", "haproxy"}, Modules: []string{"overlay", "br_netfilter"},
		Sysctls:     map[string]string{"net.ipv4.ip_forward": "1", "kernel.panic": "10"},
		Directories: []desired.Directory{{Path: "/var/lib/etcd", Mode: 0o700, Owner: "etcd", Group: "etcd"}},
		Files: []desired.File{
			{Path: "/etc/etcd/etcd.conf", Mode: 0o644, Content: []byte("a")},
			{Path: "/etc/etcd/it's.key", Mode: 0o600, Owner: "etcd", Content: []byte("b"), Secret: true},
			{Path: "/etc/systemd/system/etcd.service", Mode: 0o644, Content: []byte("c")},
			{Path: "/etc/etcd/certs.conf", Mode: 0o644, Content: []byte("d")},
		},
		Binaries: []desired.Binary{
			{Name: "kubelet", Version: "v1.36.4", URL: "https://dl.k8s.io/kubelet", SHA256: digestA,
				Installs: []desired.Install{{Path: "/usr/local/bin/kubelet"}}},
			{Name: "etcd", Version: "v3.6.16", URL: "https://example.com/etcd.tar.gz", SHA256: digestB,
				Installs: []desired.Install{{Member: "./etcd-v3.6.16/etcd", Path: "/usr/local/bin/etcd"}, {Member: "etcd-v3.6.16/etcdctl", Path: "/usr/local/bin/etcdctl"}}},
		},
		Units: []desired.Unit{
			{Name: "etcd.service", Enabled: true, Active: true, RestartOn: []string{"/usr/local/bin/etcd", "/etc/etcd/etcd.conf"}},
			{Name: "kubelet.service", Enabled: true, Active: true, RestartOn: []string{"/usr/local/bin/kubelet"}, ReloadOn: []string{"/etc/etcd/certs.conf"}},
			{Name: "swap.target"},
		},
	}
}

// damaged is an observation in which nothing is as wanted.
func damaged() Observation {
	return Observation{
		Sysctls:     map[string]string{"net/ipv4/ip_forward": "0"},
		Directories: map[string]File{"/var/lib/etcd": {Type: Directory, Mode: 0o755, Owner: "root", Group: "UNKNOWN", GID: 4000}},
		Files: map[string]File{
			"/etc/etcd/etcd.conf":              {Type: Regular, Mode: 0o600, SHA256: digestA},
			"/etc/etcd/it's.key":               {Type: Regular, Mode: 0o644, Owner: "etcd", UID: 5, SHA256: digestA},
			"/etc/systemd/system/etcd.service": {Type: Symlink},
			"/etc/etcd/certs.conf":             {Type: Regular, Mode: 0o644, SHA256: digestA},
			"/usr/local/bin/kubelet":           {Type: Regular, Mode: 0o755, SHA256: digestB},
			"/usr/local/bin/etcd":              {Type: Regular, Mode: 0o644, SHA256: digestA, Size: 10},
		},
		Units: map[string]Unit{
			"etcd.service": {LoadState: "masked", ActiveState: "inactive", DropIns: []string{"/run/systemd/system/etcd.service.d/x y.conf"}},
			"kubelet.service": {LoadState: "loaded", ActiveState: "active", UnitFileState: "disabled", NeedDaemonReload: true,
				FragmentPath: "/usr/lib/systemd/system/kubelet.service"},
			"swap.target": {LoadState: "loaded", ActiveState: "active", UnitFileState: "enabled"},
		},
	}
}

func TestGoldenWords(t *testing.T) {
	rec := Record{Files: map[string]FileRecord{"/usr/local/bin/etcd": {SHA256: digestB, Size: 20, Source: digestB}}}
	for name, got := range map[string]Observation{"fresh": {}, "damaged": damaged()} {
		changes := Diff(everything(), got, rec)
		var b strings.Builder
		for _, c := range changes {
			b.WriteString(c.String())
			if len(c.Restarts) > 0 {
				b.WriteString(" -> " + strings.Join(c.Restarts, ", "))
			}
			b.WriteString("\n")
		}
		golden(t, name+".words", b.String())
		want := standardLayout().expand(everything())
		p, err := standardLayout().newPlan(want, changes)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name+".script", standardLayout().script(p, want, Options{}, 600))
		for range 5 {
			if again := Words(Diff(everything(), got, rec)); again != Words(changes) {
				t.Fatalf("%s: the order is not stable:\n%s\n%s", name, again, Words(changes))
			}
		}
	}
}

func TestPlanNeedsContent(t *testing.T) {
	want := desired.State{Files: []desired.File{{Path: "/etc/x.key", Mode: 0o600, Secret: true, SHA256: digestA}}}
	l := standardLayout()
	if _, err := l.newPlan(want, Diff(want, Observation{}, Record{})); err == nil || !strings.Contains(err.Error(), "/etc/x.key") {
		t.Errorf("a file without content cannot be written: %v", err)
	}
	attributesOnly := Observation{Files: map[string]File{"/etc/x.key": {Type: Regular, Mode: 0o644, SHA256: digestA}}}
	if _, err := l.newPlan(want, Diff(want, attributesOnly, Record{})); err != nil {
		t.Errorf("its mode can be repaired without: %v", err)
	}
}

// TestUnreadableProgram: a finding has no digest if neither the found nor the wanted digest of a
// program is known.
func TestUnreadableProgram(t *testing.T) {
	kubelet := desired.Install{Path: "/usr/local/bin/kubelet", Member: "kubelet"}
	want := desired.State{Binaries: []desired.Binary{{Name: "kubelet", Version: "v1.36.4", URL: "https://x/kubelet.tar.gz", SHA256: digestA, Installs: []desired.Install{kubelet}}}}
	got := Observation{Files: map[string]File{kubelet.Path: {Type: Regular, Mode: 0o755, Size: 20}}}
	if words := Words(Diff(want, got, Record{})); words != "binary /usr/local/bin/kubelet: content could not be read, wanted kubelet v1.36.4" {
		t.Errorf("%q", words)
	}
}
