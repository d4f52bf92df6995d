package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cache"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
)

// TestPrune prunes a cache that has images of this version and of earlier ones. Some of the earlier
// images are in use, each in a different way.
func TestPrune(t *testing.T) {
	cacheDir := t.TempDir()
	put := func(elem ...string) string {
		t.Helper()
		dir := filepath.Join(append([]string{cacheDir}, elem...)...)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	write := func(content string, elem ...string) {
		t.Helper()
		name := filepath.Join(elem...)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var said []string
	l, err := New(t.TempDir(), cacheDir, progress.To(func(line string) { said = append(said, line) }))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := l.cacheDirs()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range kept {
		put(strings.TrimPrefix(dir, cacheDir))
	}
	nobodys := []string{put("images", "ami-old"), put("container-images", "old"), put("images", ".ami-cut-off"), put("container-images", ".new-1"), put("cilium", "images-old"), put("cilium", ".new-1")}

	stopped := t.TempDir() // has noted its use and does not run
	noted := put("images", "ami-noted")
	if err := cache.Use(cacheDir, stopped, noted); err != nil {
		t.Fatal(err)
	}
	// This lab's daemon and one of its machines were started by other versions.
	served, booted := put("container-images", "served"), put("images", "ami-booted")
	cilium := put("cilium", "images-served", "images")
	write(`{"images_dir": "`+served+`", "more_images": ["`+cilium+`"]}`, l.dir, settingsFile)
	write(booted, l.dir, "machines", "i-1", "image")
	kept = append(kept, noted, served, booted, cilium)

	there := func(dirs []string, want bool) {
		t.Helper()
		for _, dir := range dirs {
			if _, err := os.Stat(dir); (err == nil) != want {
				t.Errorf("%s: %v, want it there: %v", dir, err, want)
			}
		}
	}
	// While another process adds to the cache, nothing is removed.
	var held []func()
	for _, name := range []string{"lock", "images/.lock"} {
		unlock, err := cache.TryLock(filepath.Join(cacheDir, name))
		if err != nil || unlock == nil {
			t.Fatalf("%s cannot be locked: %v", name, err)
		}
		held = append(held, unlock)
	}
	l.prune(t.Context())
	there(append(nobodys, kept...), true)
	for _, unlock := range held {
		unlock()
	}
	if len(said) > 0 {
		t.Errorf("said %q", said)
	}

	l.prune(t.Context())
	there(nobodys, false)
	there(kept, true)
	if len(said) != 3 || !strings.Contains(said[0], nobodys[0]+", which no lab uses") || !strings.Contains(said[1], nobodys[1]) || !strings.Contains(said[2], nobodys[4]) {
		t.Errorf("said %q", said)
	}

	// The other lab is taken down, and this lab's machine is gone.
	if err := cache.Release(cacheDir, stopped); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(l.dir, "machines")); err != nil {
		t.Fatal(err)
	}
	l.prune(t.Context())
	there([]string{noted, booted}, false)
	there([]string{served, cilium}, true)
}
