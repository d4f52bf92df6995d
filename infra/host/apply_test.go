package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

const secretWord = "hunter2-hunter2"

var digests = regexp.MustCompile(`[0-9a-f]{12}\.\.`)

// appState has one of everything and two units. One unit uses the configuration and the program,
// the other uses neither.
func appState(t *testing.T, m *localMachine, web *mirror, version string) desired.State {
	url, sum := web.add("/app-"+version, []byte("#!/bin/sh\necho app "+version+"\n"))
	tools := tarball(t, map[string]string{"./bin/one": "one " + version, "./bin/two": "two " + version, "README": "no"})
	toolsURL, toolsSum := web.add("/tools-"+version+".tar.gz", tools)
	unit := func(name string) desired.File {
		return desired.File{Path: m.file("units/" + name), Mode: 0o644,
			Content: []byte("[Service]\nExecStart=" + m.file("bin/app") + "\n")}
	}
	return desired.State{
		Directories: []desired.Directory{{Path: m.file("data/inner"), Mode: 0o700}},
		Files: []desired.File{
			{Path: m.file("etc/app.conf"), Mode: 0o644, Content: []byte("version=" + version + "\n")},
			{Path: m.file("etc/reload.conf"), Mode: 0o644, Content: []byte("reload " + version + "\n")},
			{Path: m.file("etc/pki/app.key"), Mode: 0o640, Group: "daemon", Secret: true, Content: []byte(secretWord + version)},
			{Path: m.file("etc/odd 'na$me\\ "), Mode: 0o600, Content: []byte{}},
			{Path: m.file("etc/once"), Mode: 0o644, Once: true, Content: []byte("first")},
			unit("app.service"), unit("other.service"),
		},
		Binaries: []desired.Binary{
			{Name: "app", Version: version, URL: url, SHA256: sum, Installs: []desired.Install{{Path: m.file("bin/app")}}},
			{Name: "tools", Version: version, URL: toolsURL, SHA256: toolsSum, Installs: []desired.Install{
				{Member: "bin/one", Path: m.file("opt/bin/one")}, {Member: "./bin/two", Path: m.file("opt/bin/two")}}},
		},
		Units: []desired.Unit{
			{Name: "other.service", Enabled: true, Active: true},
			{Name: "app.service", Enabled: true, Active: true,
				RestartOn: []string{m.file("etc/app.conf"), m.file("bin/app"), m.file("etc/pki/app.key")},
				ReloadOn:  []string{m.file("etc/reload.conf")}},
		},
	}
}

func TestFirstInstall(t *testing.T) {
	m, web := newLocalMachine(t), newMirror(t)
	want := appState(t, m, web, "1")
	var said []string
	changes := m.diff(want, Record{})
	rec, err := m.layout().apply(t.Context(), m, want, changes, Record{}, Options{Progress: func(s string) { said = append(said, s) }})
	if err != nil {
		t.Fatal(err)
	}
	if n := m.trips.Load(); n != 2 {
		t.Errorf("first install took %d round trips, want one to observe and one to apply", n)
	}
	if left := m.diff(want, rec); len(left) > 0 {
		t.Errorf("second plan is not empty: %s", Words(left))
	}
	for path, wantContent := range map[string]string{
		"etc/app.conf": "version=1\n", "etc/odd 'na$me\\ ": "", "etc/once": "first", "opt/bin/one": "one 1", "opt/bin/two": "two 1",
		"state/config.app.service": "version=1\n", "etc/pki/app.key": secretWord + "1",
	} {
		if got := m.read(path); got != wantContent {
			t.Errorf("%s holds %q, want %q", path, got, wantContent)
		}
	}
	if m.starts("app.service") != 1 || m.starts("other.service") != 1 {
		t.Errorf("each unit should have been started once: %d, %d", m.starts("app.service"), m.starts("other.service"))
	}
	if n := strings.Count(m.read("state/calls"), "daemon-reload\n"); n != 1 {
		t.Errorf("daemon-reload ran %d times", n)
	}
	if all := strings.Join(said, "\n"); !strings.Contains(all, "downloading app 1") || !strings.Contains(all, "restart app.service") {
		t.Errorf("progress does not tell what was done:\n%s", all)
	}
	for _, dir := range []string{"cache", "run/pending"} {
		if left, _ := filepath.Glob(m.file(dir) + "/*"); len(left) > 0 {
			t.Errorf("left behind in %s: %v", dir, left)
		}
	}
	if left, _ := filepath.Glob(m.file("run/staging.*")); len(left) > 0 {
		t.Errorf("staging directories left behind: %v", left)
	}
}

// TestRepair damages one thing at a time. The difference must name only that, Apply must repair it
// in one round trip, and only the units concerned may restart.
func TestRepair(t *testing.T) {
	m, web := newLocalMachine(t), newMirror(t)
	want := appState(t, m, web, "1")
	rec := m.converge(want, Record{})

	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	type unitStarts struct{ app, other int }
	for _, tt := range []struct {
		name   string
		damage func()
		words  string // without the root directory, digests as "#"
		starts unitStarts
	}{
		{"nothing", func() {}, "", unitStarts{}},
		{"file content", func() { m.write("etc/app.conf", "version=0\n") },
			"file /etc/app.conf: content differs (sha256 found #, wanted #)", unitStarts{app: 1}},
		{"file missing", func() { must(os.Remove(m.file("etc/app.conf"))) }, "file /etc/app.conf: missing", unitStarts{app: 1}},
		{"file mode", func() { must(os.Chmod(m.file("etc/app.conf"), 0o666)) }, "file /etc/app.conf: mode 0666, wanted 0644", unitStarts{}},
		{"file owner and group", func() { must(os.Chown(m.file("etc/app.conf"), 12345, 1)) },
			"file /etc/app.conf: owner 12345, wanted root; file /etc/app.conf: group daemon, wanted root", unitStarts{}},
		{"file is a link", func() {
			must(os.Rename(m.file("etc/app.conf"), m.file("etc/elsewhere")))
			must(os.Symlink("elsewhere", m.file("etc/app.conf")))
		}, "file /etc/app.conf: is a symbolic link, wanted a regular file", unitStarts{app: 1}},
		{"file is an empty directory", func() { must(os.Remove(m.file("etc/app.conf"))); must(os.Mkdir(m.file("etc/app.conf"), 0o755)) },
			"file /etc/app.conf: is a directory, wanted a regular file", unitStarts{app: 1}},
		{"file is a full directory", func() {
			must(os.Remove(m.file("etc/app.conf")))
			must(os.MkdirAll(m.file("etc/app.conf/kept"), 0o755))
		}, "file /etc/app.conf: is a directory, wanted a regular file", unitStarts{app: 1}},
		{"file that only needs a reload", func() { m.write("etc/reload.conf", "x") },
			"file /etc/reload.conf: content differs (sha256 found #, wanted #)", unitStarts{}},
		{"secret content", func() { m.write("etc/pki/app.key", "foreign") }, "file /etc/pki/app.key: differs", unitStarts{app: 1}},
		{"secret mode", func() { must(os.Chmod(m.file("etc/pki/app.key"), 0o644)) }, "file /etc/pki/app.key: mode 0644, wanted 0640", unitStarts{}},
		{"file wanted once", func() { m.write("etc/once", "second") }, "", unitStarts{}},
		{"directory missing", func() { must(os.Remove(m.file("data/inner"))) }, "directory /data/inner: missing", unitStarts{}},
		{"directory mode", func() { must(os.Chmod(m.file("data/inner"), 0o777)) }, "directory /data/inner: mode 0777, wanted 0700", unitStarts{}},
		{"directory is a file", func() { must(os.Remove(m.file("data/inner"))); m.write("data/inner", "") },
			"directory /data/inner: is a file, wanted a directory", unitStarts{}},
		{"unit file", func() { m.write("units/app.service", "[Service]\n") },
			"file /units/app.service: content differs (sha256 found #, wanted #)", unitStarts{app: 1}},
		{"unit stopped", func() { m.write("state/active.app.service", "inactive") }, "unit app.service: stopped, wanted running", unitStarts{app: 1}},
		{"unit failed", func() { m.write("state/active.other.service", "failed") }, "unit other.service: failed, wanted running", unitStarts{other: 1}},
		{"unit disabled", func() { must(os.Remove(m.file("state/enabled.app.service"))) }, "unit app.service: disabled, wanted enabled", unitStarts{}},
		{"unit masked", func() {
			must(os.MkdirAll(m.file("control"), 0o755))
			must(os.Symlink("/dev/null", m.file("control/app.service")))
			m.write("state/masked.app.service", "")
		}, "unit app.service: masked, wanted enabled", unitStarts{}},
		{"daemon-reload forgotten", func() { m.write("state/loaded.app.service", "old") },
			"unit app.service: systemd has not loaded its files as they are on disk (needs daemon-reload)", unitStarts{app: 1}},
		{"foreign drop-in", func() {
			must(os.MkdirAll(m.file("runtime/app.service.d"), 0o755))
			m.write("runtime/app.service.d/50-x.conf", "[Service]\n")
		}, "drop-in /runtime/app.service.d/50-x.conf: not wanted, changes app.service", unitStarts{app: 1}},
		{"program missing", func() { must(os.Remove(m.file("bin/app"))) }, "binary /bin/app: missing, wanted app 1", unitStarts{app: 1}},
		{"program replaced", func() { m.write("bin/app", "#!/bin/sh\necho something else entirely\n") },
			"binary /bin/app: content differs (sha256 found #, wanted #)", unitStarts{app: 1}},
		{"program truncated", func() { must(os.Truncate(m.file("bin/app"), 5)) },
			"binary /bin/app: truncated to 5 bytes, wanted app 1 (21 bytes)", unitStarts{app: 1}},
		{"program not executable", func() { must(os.Chmod(m.file("bin/app"), 0o644)) },
			"binary /bin/app: not executable: mode 0644, wanted 0755", unitStarts{}},
		{"program of an archive", func() { m.write("opt/bin/two", "two 2") },
			"binary /opt/bin/two: content differs (sha256 found #, wanted #)", unitStarts{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m.t = t
			one, err := os.Stat(m.file("opt/bin/one"))
			must(err)
			before := unitStarts{m.starts("app.service"), m.starts("other.service")}
			tt.damage()
			changes := m.diff(want, rec)
			got := digests.ReplaceAllString(strings.ReplaceAll(Words(changes), m.root, ""), "#")
			if got != tt.words {
				t.Errorf("the difference reads\n%s\nwant\n%s", got, tt.words)
			}
			trips := m.trips.Load()
			rec, err = m.layout().apply(t.Context(), m, want, changes, rec, Options{})
			must(err)
			if n := m.trips.Load() - trips; n > 1 {
				t.Errorf("the repair took %d round trips", n)
			}
			if left := m.diff(want, rec); len(left) > 0 {
				t.Errorf("after the repair: %s", Words(left))
			}
			starts := unitStarts{m.starts("app.service") - before.app, m.starts("other.service") - before.other}
			if starts != tt.starts {
				t.Errorf("units started %+v, want %+v", starts, tt.starts)
			}
			if now, err := os.Stat(m.file("opt/bin/one")); err != nil || !os.SameFile(one, now) {
				t.Errorf("a program nobody touched was replaced")
			}
		})
	}
	if kept, _ := filepath.Glob(m.file("etc/app.conf.displaced.*/kept")); len(kept) != 1 {
		t.Error("the content of a directory that was in the way is gone")
	}
}

func TestUpgradeRestartsOnlyWhatChanged(t *testing.T) {
	m, web := newLocalMachine(t), newMirror(t)
	rec := m.converge(appState(t, m, web, "1"), Record{})
	rec = m.converge(appState(t, m, web, "2"), rec)
	if m.starts("app.service") != 2 || m.starts("other.service") != 1 {
		t.Errorf("starts: app %d, other %d; want 2 and 1", m.starts("app.service"), m.starts("other.service"))
	}
	if got := m.read("etc/once"); got != "first" {
		t.Errorf("a file wanted once was overwritten with %q", got)
	}
	if rec.Files[m.file("bin/app")].Source == "" || rec.Files[m.file("bin/app")].Inode == 0 {
		t.Errorf("record does not identify the program: %+v", rec.Files[m.file("bin/app")])
	}
}

// TestLostRecord checks that without a record, installed files are recognised by their digest or by
// the receipt on the machine, and then adopted.
func TestLostRecord(t *testing.T) {
	m, web := newLocalMachine(t), newMirror(t)
	want := appState(t, m, web, "1")
	rec := m.converge(want, Record{})
	obs := m.observe(want, Record{})
	if left := m.layout().diff(want, obs, Record{}); len(left) > 0 {
		t.Errorf("without a record: %s", Words(left))
	}
	if d := cmp.Diff(rec, m.layout().adopt(want, obs, Record{})); d != "" {
		t.Errorf("adopted record (-applied +adopted):\n%s", d)
	}
}

func TestUnchangedProgramsAreNotHashed(t *testing.T) {
	m, web := newLocalMachine(t), newMirror(t)
	want := appState(t, m, web, "1")
	rec := m.converge(want, Record{})
	path := m.file("bin/app")
	f := rec.Files[path]
	f.SHA256 = strings.Repeat("0", 64) // would show if the receipt were trusted
	rec.Files[path] = f
	if got := m.observe(want, rec).Files[path].SHA256; got != f.SHA256 {
		t.Errorf("the program was hashed although size, time and inode are as recorded: %s", got)
	}
	now := time.Now()
	if err := os.Chtimes(path, now, now); err != nil {
		t.Fatal(err)
	}
	if got := m.observe(want, rec).Files[path].SHA256; got != want.Binaries[0].SHA256 {
		t.Errorf("a touched program must be hashed; got %s", got)
	}
}

func TestSkipRestartLeavesRestartsPending(t *testing.T) {
	m, web := newLocalMachine(t), newMirror(t)
	rec := m.converge(appState(t, m, web, "1"), Record{})
	want := appState(t, m, web, "2")
	rec, err := m.layout().apply(t.Context(), m, want, m.diff(want, rec), rec, Options{SkipRestart: true})
	if err != nil {
		t.Fatal(err)
	}
	if m.starts("app.service") != 1 || m.read("etc/app.conf") != "version=2\n" {
		t.Error("SkipRestart must install and not restart")
	}
	left := m.diff(want, rec)
	if got := Words(left); got != "unit app.service: restart still due since an earlier change" {
		t.Errorf("left: %s", got)
	}
	m.converge(want, rec)
	if got := m.read("state/config.app.service"); got != "version=2\n" {
		t.Errorf("app runs with %q", got)
	}
}

func TestFailedUnit(t *testing.T) {
	m, web := newLocalMachine(t), newMirror(t)
	want := appState(t, m, web, "1")
	want.Files[len(want.Files)-1].Content = []byte("[Service]\nExecStart=/bin/false\n") // other.service
	_, err := m.layout().apply(t.Context(), m, want, m.diff(want, Record{}), Record{}, Options{})
	var apply *ApplyError
	if !errors.As(err, &apply) || apply.Unit != "other.service" || apply.Step.Kind != StepRestartUnit || !strings.Contains(err.Error(), "Job for other.service failed") {
		t.Fatalf("error is %v", err)
	}
	if m.starts("app.service") != 0 {
		t.Error("a unit was started after the failure of one before it")
	}
	m.converge(appState(t, m, web, "1"), Record{})
}

// TestInterrupted kills Apply, with all its processes, at random moments. The next Observe, Diff
// and Apply must converge, and the unit must run with what is on disk.
func TestInterrupted(t *testing.T) {
	m, web := newLocalMachine(t), newMirror(t)
	rec := m.converge(appState(t, m, web, "0"), Record{})
	start := time.Now()
	rec = m.converge(appState(t, m, web, "1"), rec)
	whole := time.Since(start)
	random := rand.New(rand.NewPCG(7, 7))
	rounds := 24
	if testing.Short() {
		rounds = 4
	}
	for i := range rounds {
		version := []string{"2", "3"}[i%2]
		want := appState(t, m, web, version)
		changes := m.diff(want, rec)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.Int64N(int64(whole))))
		partial, err := m.layout().apply(ctx, m, want, changes, rec, Options{})
		cancel()
		if random.IntN(2) == 0 {
			rec = partial // the caller may or may not have saved it
		}
		t.Logf("round %d: %v", i, err)
		rec = m.converge(want, rec)
		if got := m.read("state/config.app.service"); got != "version="+version+"\n" {
			t.Fatalf("round %d: app runs with %q, wanted version %s", i, got, version)
		}
	}
	left, _ := filepath.Glob(m.file("run/staging.*"))
	for _, dir := range []string{"etc", "etc/pki", "bin", "opt/bin", "units"} {
		hidden, _ := filepath.Glob(m.file(dir) + "/.*.k8s-new")
		left = append(left, hidden...)
	}
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestSecretsAreNeverReadable watches every rename of a secret through a stand-in for mv that first
// records who can read the file.
func TestSecretsAreNeverReadable(t *testing.T) {
	m, web := newLocalMachine(t), newMirror(t)
	want := appState(t, m, web, "1")
	shims := t.TempDir()
	log := filepath.Join(shims, "log")
	shim := "#!/bin/sh\nfor f; do [ ! -f \"$f\" ] || stat -c \"%a %G $f\" \"$f\" >>" + log + "; done\nPATH=" + os.Getenv("PATH") + " exec mv \"$@\"\n"
	if err := os.WriteFile(filepath.Join(shims, "mv"), []byte(shim), 0o755); err != nil {
		t.Fatal(err)
	}
	m.path = shims + ":" + m.path
	m.converge(want, Record{})
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if strings.HasSuffix(fields[2], "/2") || strings.Contains(line, "app.key") { // 2: its index in the upload
			seen++
			if fields[0] != "640" || fields[1] != "daemon" {
				t.Errorf("mode and group before a rename: %s", line)
			}
		}
	}
	if seen < 2 {
		t.Errorf("the secret was moved %d times:\n%s", seen, b)
	}
	changes := m.diff(appState(t, m, web, "2"), Record{})
	if words := Words(changes); strings.Contains(words, secretWord) || strings.Contains(words, desired.Sum([]byte(secretWord + "2"))[:12]) {
		t.Errorf("a secret or its digest is in the text of the changes: %s", words)
	}
}

func TestRemove(t *testing.T) {
	m, web := newLocalMachine(t), newMirror(t)
	want := appState(t, m, web, "1")
	m.converge(want, Record{})
	if err := os.WriteFile(m.file("data/inner/.hidden"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	trips := m.trips.Load()
	for range 2 { // removing again is no error
		if err := m.layout().remove(t.Context(), m, Removal{State: want, Dirs: []string{m.file("data"), m.file("etc")}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := m.trips.Load() - trips; n != 2 {
		t.Errorf("two removals took %d round trips", n)
	}
	for _, p := range append(want.Paths(), m.file("data"), m.file("etc")) {
		if _, err := os.Lstat(p); err == nil {
			t.Errorf("%s is still there", p)
		}
	}
	if err := m.layout().remove(t.Context(), m, Removal{State: want, Dirs: []string{"/etc"}}); err == nil {
		t.Error("removal of /etc was not refused")
	}
}

// TestRemoveClaimed: a machine with another claim is not touched. Otherwise the caller's script
// runs first, and the claim is removed with the rest.
func TestRemoveClaimed(t *testing.T) {
	m, web := newLocalMachine(t), newMirror(t)
	want := appState(t, m, web, "1")
	m.converge(want, Record{})
	m.write("claim", "theirs\n")
	what := Removal{State: want, ClaimFile: m.file("claim"), Claim: "mine",
		First: "test -e '" + m.file("etc/app.conf") + "' && : >'" + m.file("first") + "'; exit 3"}
	if err := m.layout().remove(t.Context(), m, what); !errors.Is(err, ErrClaimed) || m.read("claim") == "" || len(m.diff(want, Record{})) > 0 {
		t.Errorf("with another claim: %v, %s", err, Words(m.diff(want, Record{})))
	}
	if _, err := os.Stat(m.file("first")); err == nil {
		t.Error("the script ran on a machine with another claim")
	}
	what.Claim, what.Kill = "theirs", true
	if err := m.layout().remove(t.Context(), m, what); err != nil {
		t.Fatal(err)
	}
	for _, p := range append(want.Paths(), what.ClaimFile) {
		if _, err := os.Lstat(p); err == nil {
			t.Errorf("%s is still there", p)
		}
	}
	if _, err := os.Stat(m.file("first")); err != nil {
		t.Errorf("the script did not run before the removal: %v", err)
	}
	if err := m.layout().remove(t.Context(), m, what); err != nil {
		t.Errorf("without a claim: %v", err)
	}
}

// TestRemoveMountPoint: the directory on which a volume is mounted is emptied. What belongs to the
// file system stays.
func TestRemoveMountPoint(t *testing.T) {
	m := newLocalMachine(t)
	data := m.file("data")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(data, 0o700))
	if err := syscall.Mount("none", data, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(data, 0) })
	must(os.MkdirAll(m.file("data/member/wal"), 0o700))
	must(os.Mkdir(m.file("data/lost+found"), 0o700))
	inner := m.file(`data/a 1\2/inner`) // the kernel writes such names in octal
	for _, dir := range []string{filepath.Dir(inner), inner} {
		must(os.MkdirAll(dir, 0o700))
		must(syscall.Mount("none", dir, "tmpfs", 0, "size=1m"))
		t.Cleanup(func() { _ = syscall.Unmount(dir, 0) })
	}
	m.write("data/.hidden", "")
	for range 2 {
		must(m.layout().remove(t.Context(), m, Removal{Dirs: []string{data}}))
	}
	left, err := os.ReadDir(data)
	if must(err); len(left) != 1 || left[0].Name() != "lost+found" {
		t.Errorf("left: %v", left)
	}
}

// TestUnitCheck checks that the loss of what a unit sets up beside its process is drift, that a
// restart of only that unit repairs it, and that it is not reported in addition to another restart
// or a stopped unit.
func TestUnitCheck(t *testing.T) {
	m := newLocalMachine(t)
	link := m.file("state/config.app.service") // every start writes it
	want := desired.State{
		Files: []desired.File{
			{Path: m.file("etc/app.conf"), Mode: 0o644, Content: []byte("1")},
			{Path: m.file("units/app.service"), Mode: 0o644, Content: []byte("[Service]\nExecStart=/bin/app\n")},
		},
		Units: []desired.Unit{{Name: "app.service", Enabled: true, Active: true, RestartOn: []string{m.file("etc/app.conf")},
			Check: "test -e " + link + " || { echo '" + link + ":'; echo ' is missing'; exit 1; }"}},
	}
	rec := m.converge(want, Record{})
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	changes := m.diff(want, rec)
	if got := Words(changes); got != "unit app.service: "+link+": is missing" {
		t.Fatalf("drift: %s", got)
	}
	m.converge(want, rec)
	if n := m.starts("app.service"); n != 2 {
		t.Errorf("app.service was started %d times, wanted 2", n)
	}
	m.write("etc/app.conf", "by hand")
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if changes := m.diff(want, rec); len(changes) != 1 || changes[0].Kind != finding.File {
		t.Errorf("drift: %s", Words(changes))
	}
	m.converge(want, rec)
	m.write("state/active.app.service", "inactive")
	if got := Words(m.diff(want, rec)); got != "unit app.service: stopped, wanted running" {
		t.Errorf("drift: %s", got)
	}
	want.Units[0].Check = "exit 3"
	m.converge(desired.State{Files: want.Files, Units: []desired.Unit{{Name: "app.service", Enabled: true, Active: true}}}, rec)
	if got := Words(m.diff(want, rec)); got != "unit app.service: exit status 3" {
		t.Errorf("drift: %s", got)
	}
	_, err := m.layout().apply(t.Context(), m, want, m.diff(want, rec), rec, Options{})
	if err == nil || !strings.Contains(err.Error(), "the machine is still not as wanted: unit app.service: exit status 3") {
		t.Errorf("a check that fails after the restart: %v", err)
	}
	want.Units[0].Check = "true\nfalse"
	if err := validate(want); err == nil {
		t.Error("a check of two lines was accepted")
	}
}

// TestPartialApply checks that changes can be made one after the other and that a restart that is
// due in between is not forgotten.
func TestPartialApply(t *testing.T) {
	m, web := newLocalMachine(t), newMirror(t)
	rec := m.converge(appState(t, m, web, "1"), Record{})
	want := appState(t, m, web, "2")
	changes := m.diff(want, rec)
	first := slices.DeleteFunc(slices.Clone(changes), func(c Change) bool { return c.Target != m.file("etc/app.conf") })
	// A unit whose own file is left out must not look overridden.
	part := desired.State{Files: want.Files[:1], Units: want.Units[:1]}
	if _, err := m.layout().apply(t.Context(), m, part, first, rec, Options{}); err != nil {
		t.Fatal(err)
	}
	if m.starts("app.service") != 1 || m.read("etc/app.conf") != "version=2\n" {
		t.Error("the file alone was to be changed")
	}
	if !m.observe(want, rec).Units["app.service"].RestartPending {
		t.Error("nobody would ever restart app.service")
	}
	m.converge(want, rec)
	if got := m.read("state/config.app.service"); got != "version=2\n" {
		t.Errorf("app runs with %q", got)
	}
}

// TestStaleStaging: a killed run's upload is deleted, also if another process has its pid, and if it
// was killed before it knew when it had started.
func TestStaleStaging(t *testing.T) {
	m, web := newLocalMachine(t), newMirror(t)
	m.converge(appState(t, m, web, "0"), Record{})
	var stale []string
	for _, name := range []string{fmt.Sprintf("staging.%d.1.abcdef", os.Getpid()), "staging.999999999.1.abcdef", "staging.999999999..abcdef"} {
		dir := m.file("run/" + name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		stale = append(stale, dir)
	}
	m.converge(appState(t, m, web, "1"), Record{})
	for _, dir := range stale {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("left behind: %s: %v", dir, err)
		}
	}
}
