package host

import (
	"os"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

// TestRetired ends a unit that is no longer wanted, with what it has left, and restarts another one.
func TestRetired(t *testing.T) {
	m := newLocalMachine(t)
	file := func(name, content string) desired.File {
		return desired.File{Path: m.file(name), Mode: 0o644, Content: []byte(content)}
	}
	stays := desired.State{
		Files: []desired.File{file("units/other.service", "[Service]\nExecStart=/bin/app\n")},
		Units: []desired.Unit{{Name: "other.service", Enabled: true, Active: true}},
	}
	before := desired.Merge(stays, desired.State{
		Files: []desired.File{file("etc/proxy.conf", "1"), file("units/proxy.service", "[Service]\nExecStart=/bin/app\n")},
		Units: []desired.Unit{{Name: "proxy.service", Enabled: true, Active: true}},
	})
	left := m.file("etc/left-in-the-kernel")
	gone := desired.Retired{Unit: "proxy.service", Paths: []string{m.file("units/proxy.service"), m.file("etc/proxy.conf"), m.file("bin/never")},
		Cleanup: "test -e " + m.file("etc/proxy.conf") + " && rm -- " + left, Restarts: []string{"other.service"}}
	after := stays
	after.Retired = []desired.Retired{gone}

	rec := m.converge(before, Record{})
	if got := Words(m.diff(after, rec)); got != "unit proxy.service: running, wanted none" {
		t.Fatalf("drift: %s", got)
	}
	_, err := m.layout().apply(t.Context(), m, after, m.diff(after, rec), rec, Options{})
	if err == nil || !strings.Contains(err.Error(), "clean up after proxy.service") {
		t.Fatalf("a cleanup that fails: %v", err)
	}
	if m.read("etc/proxy.conf") == "" {
		t.Fatal("the files are gone, so that nothing runs the cleanup again")
	}
	if got := Words(m.diff(after, rec)); got != "unit other.service: restart still due since an earlier change; unit proxy.service: stopped, wanted none" {
		t.Errorf("drift: %s", got)
	}
	m.write("etc/left-in-the-kernel", "x")
	m.converge(after, rec)
	for _, path := range append(gone.Paths, left) {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is still there", path)
		}
	}
	if m.read("state/enabled.proxy.service") != "" || m.read("state/active.proxy.service") == "active\n" {
		t.Error("proxy.service is still enabled or active")
	}
	if n := m.starts("other.service"); n != 2 {
		t.Errorf("other.service was started %d times, wanted 2", n)
	}
	m.write("state/active.proxy.service", "active")
	if got := Words(m.diff(after, rec)); got != "unit proxy.service: running, wanted none" {
		t.Errorf("drift of a unit that was started by hand: %s", got)
	}
	if err := validate(desired.State{Units: before.Units, Retired: after.Retired}); err == nil {
		t.Error("a unit both wanted and retired was accepted")
	}
	after.Retired[0].Cleanup = "true\nfalse"
	if err := validate(after); err == nil {
		t.Error("a cleanup of two lines was accepted")
	}
}

// TestRemoveRetired: a machine that was away when a unit was retired has nothing of it after a removal, and
// retired units that it never had are no error.
func TestRemoveRetired(t *testing.T) {
	m, web := newLocalMachine(t), newMirror(t)
	want := appState(t, m, web, "1")
	proxy := desired.State{
		Files: []desired.File{
			{Path: m.file("units/proxy.service"), Mode: 0o644, Content: []byte("[Service]\nExecStart=/bin/app\n")},
			{Path: m.file("etc/proxy.key"), Mode: 0o600, Content: []byte("1"), Secret: true},
		},
		Units: []desired.Unit{{Name: "proxy.service", Enabled: true, Active: true}},
	}
	m.converge(desired.Merge(want, proxy), Record{})
	want.Retired = []desired.Retired{
		{Unit: "never.service", Paths: []string{m.file("units/never.service")}},
		{Unit: "proxy.service", Paths: proxy.Paths(), Cleanup: "exit 1"},
	}
	for _, kill := range []bool{false, true} {
		if err := m.layout().remove(t.Context(), m, Removal{State: want, Kill: kill}); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range append(proxy.Paths(), want.Paths()...) {
		if _, err := os.Lstat(p); err == nil {
			t.Errorf("%s is still there", p)
		}
	}
	if _, err := os.Stat(m.file("state/enabled.proxy.service")); err == nil || m.read("state/active.proxy.service") != "inactive\n" {
		t.Error("proxy.service is still enabled or active")
	}
	if strings.Contains(m.read("state/calls"), "disable -- never.service") {
		t.Error("a unit that was never there was disabled")
	}
}

// TestForeignUnit: a unit of others restarts with a file, and nothing else happens to it. A file that goes takes the
// directory of its drop-ins along, and restarts what it had changed.
func TestForeignUnit(t *testing.T) {
	m := newLocalMachine(t)
	file := func(name, content string) desired.File {
		return desired.File{Path: m.file(name), Mode: 0o644, Content: []byte(content)}
	}
	own := desired.State{Files: []desired.File{file("units/app.service", "[Service]\nExecStart=/bin/app\n")}, Units: []desired.Unit{{Name: "app.service", Enabled: true, Active: true}}}
	rec := m.converge(desired.Merge(own, desired.State{Files: []desired.File{file("units/clock.service", "[Service]\nExecStart=/bin/app\n")}, Units: []desired.Unit{{Name: "clock.service", Active: true}}}), Record{})
	with := desired.Merge(own, desired.State{Files: []desired.File{file("etc/clock.conf", "1"), file("units/app.service.d/extra.conf", "[Service]\nNice=1\n")},
		Units: []desired.Unit{{Name: "clock.service", Active: true, Foreign: true, RestartOn: []string{m.file("etc/clock.conf")}}}})
	rec = m.converge(with, rec)
	if app, clock := m.starts("app.service"), m.starts("clock.service"); app != 2 || clock != 2 {
		t.Errorf("app.service was started %d times, clock.service %d times, wanted 2 and 2", app, clock)
	}
	m.write("state/active.clock.service", "inactive")
	if got := Words(m.diff(with, rec)); got != "" {
		t.Errorf("the state of a foreign unit is drift: %s", got)
	}
	without := own
	without.Units = append(without.Units, desired.Unit{Name: "clock.service", Active: true, Foreign: true})
	without.Retired = []desired.Retired{{Paths: []string{m.file("etc/clock.conf")}, Restarts: []string{"clock.service", "nowhere.service"}}, {Paths: []string{m.file("units/app.service.d/extra.conf")}}}
	if got := Words(m.diff(without, rec)); got != "file "+m.file("etc/clock.conf")+": exists, not wanted; file "+m.file("units/app.service.d/extra.conf")+": exists, not wanted" {
		t.Errorf("drift: %s", got)
	}
	m.converge(without, rec)
	if app, clock := m.starts("app.service"), m.starts("clock.service"); app != 3 || clock != 3 {
		t.Errorf("app.service was started %d times, clock.service %d times, wanted 3 and 3", app, clock)
	}
	for _, gone := range []string{"etc/clock.conf", "units/app.service.d"} {
		if _, err := os.Lstat(m.file(gone)); err == nil {
			t.Errorf("%s is still there", gone)
		}
	}
	if _, err := os.Lstat(m.file("etc")); err != nil {
		t.Error("a directory of others is gone")
	}
	with.Units[1].Name = "nowhere.service"
	if got := Words(m.diff(with, rec)); !strings.Contains(got, "unit nowhere.service: unknown to systemd") {
		t.Errorf("drift: %s", got)
	}
	with.Units[1].Name = "clock.service"
	if err := m.layout().remove(t.Context(), m, Removal{State: with}); err != nil {
		t.Fatal(err)
	}
	if m.read("state/active.clock.service") == "inactive\n" || m.read("state/active.app.service") != "inactive\n" {
		t.Error("the removal stopped a foreign unit, or not its own")
	}
}
