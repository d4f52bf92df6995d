package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "config")
	if err := os.WriteFile(name, []byte("a longer old content"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Replace(name, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(name)
	if err != nil || string(content) != "new" {
		t.Errorf("the file holds %q, %v", content, err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a file that others could read is now %v, %v", info.Mode(), err)
	}
	if err := Replace(filepath.Join(dir, "none", "config"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without its directory: %v", err)
	}
	if err := Replace(dir, nil, 0o600); err == nil {
		t.Error("a directory was replaced")
	}
	if left, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(left) != 1 {
		t.Errorf("left beside the directory: %v, %v", left, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left beside the file: %v, %v", left, err)
	}
}

func TestJSON(t *testing.T) {
	name := filepath.Join(t.TempDir(), "state.json")
	got := map[string]int{"a": 1}
	if err := ReadJSON(name, &got); err != nil || got["a"] != 1 {
		t.Errorf("without a file: %v, %v", got, err)
	}
	if err := WriteJSON(name, map[string]int{"a": 2}, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ReadJSON(name, &got); err != nil || got["a"] != 2 {
		t.Errorf("read again: %v, %v", got, err)
	}
	if err := WriteJSON(name, func() {}, 0o600); err == nil {
		t.Error("a function was written")
	}
	if err := Replace(name, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ReadJSON(name, &got); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("half a file: %v", err)
	}
}

func TestAtHome(t *testing.T) {
	for name, want := range map[string]string{"~/a": "/home/u/a", "~": "/home/u", "~root/a": "~root/a", "/~/a": "/~/a", "a~": "a~", "": ""} {
		if got := AtHome(name, "/home/u"); got != want {
			t.Errorf("%s is %s, wanted %s", name, got, want)
		}
	}
	if got := AtHome("~/a", ""); got != "~/a" {
		t.Errorf("without a home it is %s", got)
	}
}
