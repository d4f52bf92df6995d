package lab

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLimits(t *testing.T) {
	dir := t.TempDir()
	limit, restore, slice := filepath.Join(dir, "limit"), filepath.Join(dir, "claims", "restore"), filepath.Join(dir, "claims", "slice-3")
	is := func(want string) {
		t.Helper()
		if b, err := os.ReadFile(limit); err != nil || string(b) != want {
			t.Errorf("limit is %q (%v), wanted %q", b, err, want)
		}
	}
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write(limit, "128\n")
	do(raise(limit, restore, 8192))
	is("8192")
	do(raise(limit, restore, 8192))
	write(slice, "/another/lab\n")
	do(restoreLimit(limit, restore))
	is("8192") // another lab is up
	do(os.Remove(slice))
	do(restoreLimit(limit, restore))
	is("128")
	write(limit, "100000\n")
	do(raise(limit, restore, 8192))
	do(restoreLimit(limit, restore))
	is("100000\n") // enough already: never touched
}
