package cache

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func used(t *testing.T, cacheDir string) []string {
	t.Helper()
	var got []string
	must(t, Prune(cacheDir, func(used []string) error { got = used; return nil }))
	slices.Sort(got)
	return got
}

func TestUsers(t *testing.T) {
	cacheDir, a, b := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "b")
	must(t, os.Mkdir(b, 0o755))
	must(t, Use(cacheDir, a, "/image/1"))
	must(t, Use(cacheDir, b, "/image/2", "/layout"))
	must(t, Use(cacheDir, a, "/image/3", "/image/1"))
	if got, want := used(t, cacheDir), []string{"/image/1", "/image/2", "/image/3", "/layout"}; !slices.Equal(got, want) {
		t.Errorf("used is %q, want %q", got, want)
	}
	must(t, Release(cacheDir, a))
	must(t, Release(cacheDir, a)) // again
	if got, want := used(t, cacheDir), []string{"/image/2", "/layout"}; !slices.Equal(got, want) {
		t.Errorf("after a release, used is %q, want %q", got, want)
	}
	must(t, os.Remove(b)) // without Release
	for range 2 {
		if got := used(t, cacheDir); len(got) > 0 {
			t.Errorf("a lab without a directory uses %q", got)
		}
	}
}

func TestUnreadableUserKeepsAll(t *testing.T) {
	cacheDir := t.TempDir()
	must(t, Use(cacheDir, t.TempDir(), "/image"))
	files, err := filepath.Glob(filepath.Join(cacheDir, usersDir, "*.json"))
	must(t, err)
	must(t, os.WriteFile(files[0], []byte("{"), 0o644))
	if err := Prune(cacheDir, func([]string) error { t.Error("asked to remove"); return nil }); err == nil {
		t.Error("no error")
	}
}

func TestSweep(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"old", "old/sub", "older", "kept", "linked", "holder", "holder/kept", ".half-built"} {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	must(t, os.WriteFile(filepath.Join(dir, "old", "sub", "file"), nil, 0o444))
	must(t, os.WriteFile(filepath.Join(dir, ".lock"), nil, 0o644))
	link := filepath.Join(t.TempDir(), "by another path")
	must(t, os.Symlink(dir, link))

	keep := []string{filepath.Join(dir, "kept"), filepath.Join(link, "linked"), filepath.Join(dir, "holder", "kept"), filepath.Join(dir, "not there"), ""}
	removed, err := Sweep(dir, keep)
	must(t, err)
	if want := []string{filepath.Join(dir, "old"), filepath.Join(dir, "older")}; !slices.Equal(removed, want) {
		t.Errorf("removed %q, want %q", removed, want)
	}
	var left []string
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{".lock", "holder", "kept", "linked"}; !slices.Equal(left, want) {
		t.Errorf("left is %q, want %q", left, want)
	}
	if removed, err := Sweep(filepath.Join(dir, "no such directory"), nil); err != nil || removed != nil {
		t.Errorf("of no directory: %q, %v", removed, err)
	}
}

func TestDefaultDir(t *testing.T) {
	t.Setenv("K8S_LAB_CACHE", "/somewhere")
	if got := DefaultDir(); got != "/somewhere" {
		t.Errorf("DefaultDir() = %s", got)
	}
	t.Setenv("K8S_LAB_CACHE", "")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	if got := DefaultDir(); got != "/var/cache/k8s-lab" {
		t.Errorf("DefaultDir() without a home = %s", got)
	}
}
