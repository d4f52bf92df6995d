package host

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

// TestObserveOddThings observes everything that can be in the place of a file.
func TestObserveOddThings(t *testing.T) {
	m := newLocalMachine(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	odd := []string{"-n", " leading", "trailing ", "q'u\"o$(te)`s`", `back\slash\n`, "tab\tand:colon", "ünïcode", "* ?[a]", "end", " end"}
	var want desired.State
	must(os.MkdirAll(m.file("odd"), 0o755))
	for _, name := range odd {
		m.write("odd/"+name, name)
		want.Files = append(want.Files, desired.File{Path: m.file("odd/" + name), Mode: 0o644, Content: []byte(name)})
	}
	add := func(name string, content []byte) {
		want.Files = append(want.Files, desired.File{Path: m.file(name), Mode: 0o644, Content: content})
	}
	must(syscall.Mkfifo(m.file("fifo"), 0o644)) // reading it would block
	add("fifo", []byte("x"))
	must(os.Symlink("odd/end", m.file("link")))
	add("link", []byte("end"))
	must(os.Symlink("nowhere", m.file("dangling")))
	add("dangling", []byte("x"))
	must(os.Mkdir(m.file("dir"), 0o755))
	add("dir", []byte("x"))
	m.write("huge", "")
	must(os.Truncate(m.file("huge"), 1<<40)) // sparse
	add("huge", []byte("x"))
	m.write("future", "x")
	must(os.Chtimes(m.file("future"), time.Unix(1<<33, 0), time.Unix(1<<33, 0)))
	add("future", []byte("x"))
	m.write("cert", "-----BEGIN CERTIFICATE-----\n\x00\n")
	add("cert", nil)
	m.write("large-cert", strings.Repeat("x", maxContent+1))
	add("large-cert", nil)
	want.Files = append(want.Files, desired.File{Path: m.file("odd/end2"), Mode: 0o600, Secret: true})
	m.write("odd/end2", "secret")
	must(os.Chmod(m.file("odd/end2"), 0o600))
	must(os.Symlink("dir", m.file("dirlink")))
	want.Directories = []desired.Directory{{Path: m.file("dirlink"), Mode: 0o755}, {Path: m.file("cert"), Mode: 0o755}}

	start := time.Now()
	obs := m.observe(want, Record{})
	if d := time.Since(start); d > time.Minute {
		t.Errorf("took %s", d)
	}
	for _, name := range odd {
		if f := obs.Files[m.file("odd/"+name)]; f.Type != Regular || f.SHA256 != desired.Sum([]byte(name)) {
			t.Errorf("%q: %+v", name, f)
		}
	}
	for name, typ := range map[string]FileType{"fifo": Special, "link": Symlink, "dangling": Symlink, "dir": Directory, "huge": Regular} {
		if f := obs.Files[m.file(name)]; f.Type != typ || f.SHA256 != "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if got, ok := obs.Content(m.file("cert")); !ok || string(got) != "-----BEGIN CERTIFICATE-----\n\x00\n" {
		t.Errorf("certificate: %q, %v", got, ok)
	}
	for _, name := range []string{"large-cert", "odd/end2", "odd/end", "nowhere"} {
		if got, ok := obs.Content(m.file(name)); ok {
			t.Errorf("content of %s was fetched: %.20q", name, got)
		}
	}
	words := strings.ReplaceAll(Words(m.layout().diff(want, obs, Record{})), m.root, "")
	if got := digests.ReplaceAllString(words, "#"); got != "directory /cert: is a file, wanted a directory; "+
		"file /fifo: is a special file, wanted a regular file; file /link: is a symbolic link, wanted a regular file; "+
		"file /dangling: is a symbolic link, wanted a regular file; file /dir: is a directory, wanted a regular file; "+
		"file /huge: content differs, wanted #" {
		t.Errorf("difference: %s", got)
	}
	if obs.BootID == "" || time.Since(obs.Time).Abs() > time.Minute {
		t.Errorf("boot %q, time %s", obs.BootID, obs.Time)
	}
}

// TestObserveKernel observes settings and modules of this machine's kernel.
func TestObserveKernel(t *testing.T) {
	m := newLocalMachine(t)
	osrelease, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	want := desired.State{
		Sysctls: map[string]string{"kernel.osrelease": strings.TrimSpace(string(osrelease)), "net/ipv4/ip_local_port_range": "1\t2", "kernel.no_such": "1"},
		Modules: []string{"overlay"},
	}
	obs := m.observe(want, Record{})
	if got := obs.Sysctls["kernel/osrelease"]; got != want.Sysctls["kernel.osrelease"] {
		t.Errorf("kernel.osrelease is %q", got)
	}
	if got := strings.Fields(obs.Sysctls["net/ipv4/ip_local_port_range"]); len(got) != 2 || len(got[0]) < 2 {
		t.Errorf("port range is %q", got)
	}
	if _, ok := obs.Sysctls["kernel/no_such"]; ok {
		t.Error("a setting that does not exist was found")
	}
	if !obs.Modules["overlay"] {
		t.Error("overlay is in /proc/filesystems and was not found")
	}
}

func TestBadStatesAreRefused(t *testing.T) {
	m := newLocalMachine(t)
	for name, s := range map[string]desired.State{
		"newline in a path":     {Files: []desired.File{{Path: "/a\nb"}}},
		"relative directory":    {Directories: []desired.Directory{{Path: "a"}}},
		"unit that is a path":   {Units: []desired.Unit{{Name: "../x.service"}}},
		"unit without a type":   {Units: []desired.Unit{{Name: "x"}}},
		"package is an option":  {Packages: []string{"--force"}},
		"module with a space":   {Modules: []string{"a b"}},
		"sysctl outside":        {Sysctls: map[string]string{"../../etc/passwd": "x"}},
		"sysctl of two lines":   {Sysctls: map[string]string{"a.b": "x\ny"}},
		"binary without digest": {Binaries: []desired.Binary{{Name: "x", URL: "http://x", Installs: []desired.Install{{Path: "/x"}}}}},
	} {
		if _, err := m.layout().observe(t.Context(), m, s, Record{}); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if m.trips.Load() != 0 {
		t.Error("the machine was asked nevertheless")
	}
}

func TestProcPath(t *testing.T) {
	for key, want := range map[string]string{
		"net.ipv4.ip_forward":              "net/ipv4/ip_forward",
		"net/ipv4/conf/eth0.1/rp_filter":   "net/ipv4/conf/eth0.1/rp_filter",
		"net.ipv4.conf.eth0/1.rp_filter":   "net/ipv4/conf/eth0.1/rp_filter",
		"kernel.panic":                     "kernel/panic",
		"net.bridge.bridge-nf-call-arptab": "net/bridge/bridge-nf-call-arptab",
	} {
		if got := procPath(key); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}
