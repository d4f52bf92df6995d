package host

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRead reads files by path and by pattern, and what programs say; what is
// not there is left out.
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

// TestStarts: the boot, and nothing of units that are not asked for.
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
