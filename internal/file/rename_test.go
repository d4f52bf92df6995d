package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestRename(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "made"), filepath.Join(dir, "image")
	if err := os.MkdirAll(filepath.Join(from, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, "etc", "hostname"), []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Rename(from, to); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(to, "etc", "hostname")); err != nil || string(got) != "a" {
		t.Errorf("%q, %v", got, err)
	}
	if err := Rename(from, to); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what does not exist: %v", err)
	}
	if err := Rename(to, filepath.Join(dir, "none", "image")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("to where there is no directory: %v", err)
	}
}
