package host

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRead reads files by path and by pattern, and programs' versions. What does not exist is left
// out.
func TestRead(t *testing.T) {
	m := newLocalMachine(t)
	m.write("a.crt", "one\n")
	m.write("b.crt", "")
	m.write("it's a key", "two")
	m.write("program", "#!/bin/sh\necho \"told $1\"; exit 1\n")
	if err := os.Chmod(m.file("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := Read(t.Context(), m, []string{m.file("*.crt"), m.file("none"), m.file("none-*"), m.root}, []string{m.file("program"), m.file("a.crt")})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]byte{m.file("a.crt"): []byte("one\n"), m.file("b.crt"): {}, m.file("program"): []byte("told --version\n")}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestStarts checks that only the boot and the units asked for are returned.
func TestStarts(t *testing.T) {
	m := newLocalMachine(t)
	want, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Skip(err)
	}
	boot, starts, err := Starts(t.Context(), m)
	if err != nil || boot+"\n" != string(want) || len(starts) != 0 {
		t.Errorf("boot %q, starts %q, %v", boot, starts, err)
	}
}

// TestReadActive checks that only files of active units are read, and that it is an error if
// systemd does not answer.
func TestReadActive(t *testing.T) {
	m := newLocalMachine(t)
	m.write("ca.crt", "the authority")
	m.write("it's.key", "the key")
	m.write("config", "clusters:\n- name: demo\n  cluster:\n    certificate-authority: "+m.file("ca.crt")+"\n    server: https://10.240.0.40:6443\nusers:\n"+
		"- name: node\n  user:\n    client-certificate: "+m.file("none")+"\n    client-key: "+m.file("it's.key")+"\n")
	m.write("other", "not asked for")
	m.state("active.one.service", "active\n", "active.two.service", "inactive\n", "active.three.service", "active\n")
	ask := []UnitFiles{
		{Unit: "one.service", Files: []string{m.file("none")}, Kubeconfigs: []string{m.file("config"), m.file("none")}},
		{Unit: "two.service", Files: []string{m.file("other")}}, {Unit: "three.service"}, {Unit: "four.service"},
	}
	active, files, err := ReadActive(t.Context(), m, ask...)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"one.service", "three.service"}, active); d != "" {
		t.Error(d)
	}
	want := map[string][]byte{m.file("config"): []byte(m.read("config")), m.file("ca.crt"): []byte("the authority"), m.file("it's.key"): []byte("the key")}
	if d := cmp.Diff(want, files); d != "" {
		t.Error(d)
	}
	if trips := m.trips.Load(); trips != 1 {
		t.Errorf("%d round trips", trips)
	}
	m.state("nobus", "")
	if active, _, err := ReadActive(t.Context(), m, ask...); err == nil || !strings.Contains(err.Error(), "systemctl cannot tell whether one.service is active") {
		t.Errorf("active are %q, error is %v", active, err)
	}
}

// TestReadHalf: a file that cannot be read to its end is an error, not a file with less in it.
func TestReadHalf(t *testing.T) {
	m := newLocalMachine(t)
	m.write("whole.key", "one")
	m.write("cat", "#!/bin/sh\ncase $* in *whole.key) printf half; exit 1 ;; esac\nexec /bin/cat \"$@\"\n")
	if err := os.Chmod(m.file("cat"), 0o755); err != nil {
		t.Fatal(err)
	}
	m.path = m.root + ":" + m.path
	if files, err := Read(t.Context(), m, []string{m.file("whole.key")}, nil); err == nil {
		t.Errorf("read %q", files)
	}
	m.state("active.one.service", "active\n")
	if _, files, err := ReadActive(t.Context(), m, UnitFiles{Unit: "one.service", Files: []string{m.file("whole.key")}}); err == nil {
		t.Errorf("read %q", files)
	}
}

// TestReadNoted: enabled units that a note lists are returned with their files, whether they are
// active or not.
func TestReadNoted(t *testing.T) {
	m := newLocalMachine(t)
	m.write("key", "the key")
	m.write("note", "one.service\nthree.service\nfour.service\nfive.service.x\n")
	m.state("active.one.service", "active\n", "active.two.service", "active\n", "active.three.service", "inactive\n", "active.four.service", "inactive\n", "active.five.service", "inactive\n",
		"enabled.one.service", "enabled\n", "enabled.three.service", "enabled\n", "enabled.five.service", "enabled\n")
	ask := []UnitFiles{{Unit: "one.service"}, {Unit: "two.service"}, {Unit: "three.service", Files: []string{m.file("key")}}, {Unit: "four.service"}, {Unit: "five.service"}}
	active, noted, files, err := ReadNoted(t.Context(), m, m.file("note"), ask...)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"one.service", "two.service"}, active) + cmp.Diff([]string{"one.service", "three.service"}, noted); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string][]byte{m.file("key"): []byte("the key")}, files); d != "" {
		t.Error(d)
	}
	if _, noted, _, err := ReadNoted(t.Context(), m, m.file("none"), ask...); err != nil || noted != nil {
		t.Errorf("without a note: %v, %v", noted, err)
	}
}

// TestReadHead reads the beginning of the first file of a pattern, whatever bytes it has.
func TestReadHead(t *testing.T) {
	m := newLocalMachine(t)
	m.write("2.wal", "second")
	m.write("1.wal", "\x00\xff\n\x00longer")
	for _, tt := range []struct {
		pattern string
		n       int
		want    string
	}{{"*.wal", 4, "\x00\xff\n\x00"}, {"2.wal", 100, "second"}, {"none*", 4, ""}} {
		got, err := ReadHead(t.Context(), m, m.file(tt.pattern), tt.n)
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %q, %v", tt.pattern, got, err)
		}
	}
}
