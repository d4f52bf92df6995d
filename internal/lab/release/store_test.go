package release

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
)

const helloArchive = "example.test/releases/v1.0.0/hello.tgz"

// offline returns a store that knows its upstream to be down.
func offline(dir string, l *recorder) *store {
	s := newStore(Options{CacheDir: dir, Progress: progress.To(l.print)}, "mirror")
	_ = s.upstream.markDown("example.test", errors.New("test"))
	return s
}

func TestStoreBuildsPacksAndRemembers(t *testing.T) {
	newModuleProxy(t).addHello("v1.0.0")
	dir, l := t.TempDir(), new(recorder)
	products := []product{helloProduct("v1.0.0")}
	must(t, offline(dir, l).ensure(t.Context(), products))

	archive := filepath.Join(dir, "mirror", helloArchive)
	if got, want := archiveNames(t, archive), "hello-dir/ hello-dir/hello"; got != want {
		t.Errorf("archive holds %q, want %q", got, want)
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = filepath.Join(dir, "mirror")
	if out, err := check.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != helloArchive+": OK" {
		t.Errorf("sha256sum: %v\n%s", err, out)
	}
	check = exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS", "hello.tgz.sha256")
	check.Dir = filepath.Dir(archive)
	if out, err := check.CombinedOutput(); err != nil || strings.Count(string(out), "OK") != 2 {
		t.Errorf("checksums as upstream publishes them: %v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "work")); !errors.Is(err, os.ErrNotExist) {
		t.Error("the work directory is left behind")
	}

	before := read(t, archive)
	t.Setenv("PATH", "") // nothing can be built any more
	must(t, offline(dir, l).ensure(t.Context(), products))
	if read(t, archive) != before {
		t.Error("a complete store changed")
	}
}

// TestStoreInPart checks that existing files can be used while the store is being added to.
func TestStoreInPart(t *testing.T) {
	proxy := newModuleProxy(t)
	proxy.addHello("v1.0.0")
	proxy.addHello("v1.1.0")
	dir, l := t.TempDir(), new(recorder)
	first, second := helloProduct("v1.0.0"), helloProduct("v1.1.0")
	must(t, offline(dir, l).ensure(t.Context(), []product{first}))

	adding := offline(dir, l)
	unlock, err := lock(t.Context(), dir, adding.progress)
	must(t, err)
	defer unlock()
	must(t, adding.load())
	must(t, adding.make(t.Context(), []product{second})) // and a third is still to come
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for _, p := range []product{first, second} {
		if err := offline(dir, l).ensure(ctx, []product{p}); err != nil {
			t.Errorf("%s %s, which is there: %v", p.name, p.version, err)
		}
	}
	if sums := read(t, dir, "mirror", "SHA256SUMS"); strings.Count(sums, "hello.tgz") != 2 {
		t.Errorf("checksums: %s", sums)
	}
}

func TestStoreIsReproducible(t *testing.T) {
	newModuleProxy(t).addHello("v1.0.0")
	var archives [2]string
	for i := range archives {
		dir := t.TempDir()
		must(t, offline(dir, new(recorder)).ensure(t.Context(), []product{helloProduct("v1.0.0")}))
		archives[i] = read(t, dir, "mirror", helloArchive)
	}
	if archives[0] != archives[1] {
		t.Error("two builds of one release differ")
	}
}

func TestStoreRepairs(t *testing.T) {
	newModuleProxy(t).addHello("v1.0.0")
	dir, l := t.TempDir(), new(recorder)
	products := []product{helloProduct("v1.0.0")}
	must(t, offline(dir, l).ensure(t.Context(), products))
	archive := filepath.Join(dir, "mirror", helloArchive)
	sums := filepath.Join(dir, "mirror", "SHA256SUMS")
	good, goodSums := read(t, archive), read(t, sums)

	flip := []byte(good)
	flip[len(flip)/2] ^= 0xff
	for _, tc := range []struct {
		name   string
		damage func() error
		builds int
	}{
		{"deleted", func() error { return os.Remove(archive) }, 1},
		{"truncated", func() error { return os.Truncate(archive, 10) }, 1},
		{"one byte flipped", func() error { return os.WriteFile(archive, flip, 0o755) }, 1},
		{"only touched", func() error { return os.Chtimes(archive, time.Now(), time.Now().Add(time.Hour)) }, 0},
		{"checksums deleted", func() error { return os.Remove(sums) }, 0},
		{"checksums edited", func() error { return os.WriteFile(sums, []byte("x"), 0o644) }, 0},
		{"index deleted", func() error { return os.Remove(filepath.Join(dir, "mirror-index.json")) }, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			must(t, tc.damage())
			l := new(recorder)
			must(t, offline(dir, l).ensure(t.Context(), products))
			if read(t, archive) != good || read(t, sums) != goodSums {
				t.Error("the store is not what it was")
			}
			if got := l.count(": done in"); got != tc.builds {
				t.Errorf("%d builds, want %d: %q", got, tc.builds, l.lines)
			}
		})
	}
}

func TestStoreRebuildsWhenRecipeChanges(t *testing.T) {
	newModuleProxy(t).addHello("v1.0.0")
	dir := t.TempDir()
	p := helloProduct("v1.0.0")
	must(t, offline(dir, new(recorder)).ensure(t.Context(), []product{p}))
	p.inside = "elsewhere"
	must(t, offline(dir, new(recorder)).ensure(t.Context(), []product{p}))
	if got := archiveNames(t, filepath.Join(dir, "mirror", helloArchive)); got != "elsewhere/ elsewhere/hello" {
		t.Errorf("archive holds %q", got)
	}
}

// TestRecipeStays fails if an unchanged product gets another recipe, because then every cache is
// built again.
func TestRecipeStays(t *testing.T) {
	if got, want := helloProduct("v1.0.0").recipe(), "c19b7cff3d6431ea"; got != want {
		t.Errorf("recipe %s, want %s", got, want)
	}
}

func TestStoreAddsReleases(t *testing.T) {
	proxy := newModuleProxy(t)
	proxy.addHello("v1.0.0")
	proxy.addHello("v1.1.0")
	dir := t.TempDir()
	must(t, offline(dir, new(recorder)).ensure(t.Context(), []product{helloProduct("v1.0.0")}))
	l := new(recorder)
	must(t, offline(dir, l).ensure(t.Context(), []product{helloProduct("v1.0.0"), helloProduct("v1.1.0")}))
	if l.count("v1.0.0") != 0 || l.count("v1.1.0 from Go modules: done") != 1 {
		t.Errorf("not only the new release was built: %q", l.lines)
	}
	if got := strings.Count(read(t, dir, "mirror", "SHA256SUMS"), "\n"); got != 2 {
		t.Errorf("SHA256SUMS has %d lines, want 2", got)
	}
}

func TestStoreBuildsOnceForMany(t *testing.T) {
	newModuleProxy(t).addHello("v1.0.0")
	dir, l := t.TempDir(), new(recorder)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := offline(dir, l).ensure(t.Context(), []product{helloProduct("v1.0.0")}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := l.count("from Go modules: done in"); got != 1 {
		t.Errorf("built %d times: %q", got, l.lines)
	}
}

func TestStoreKeepsNothingHalfDone(t *testing.T) {
	newModuleProxy(t).addHello("v1.0.0")
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancelling := &recorder{}
	s := newStore(Options{CacheDir: dir, Progress: progress.To(func(line string) {
		cancelling.print(line)
		if strings.HasPrefix(line, "building") {
			cancel()
		}
	})}, "mirror")
	_ = s.upstream.markDown("example.test", errors.New("test"))
	if err := s.ensure(ctx, []product{helloProduct("v1.0.0")}); err == nil {
		t.Fatal("no error though the context ended")
	}
	if _, err := os.Stat(filepath.Join(dir, "mirror", helloArchive)); !errors.Is(err, os.ErrNotExist) {
		t.Error("a half-done release is in the store")
	}
	must(t, offline(dir, new(recorder)).ensure(t.Context(), []product{helloProduct("v1.0.0")}))
}

func TestLockWaitsAndGivesUp(t *testing.T) {
	dir, l := t.TempDir(), new(recorder)
	unlock, err := lock(t.Context(), dir, progress.To(l.print))
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := lock(ctx, dir, progress.To(l.print)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("second lock: %v", err)
	}
	if l.count("waiting for process") == 0 {
		t.Error("nobody is told what is waited for")
	}
	unlock()
	again, err := lock(t.Context(), dir, nil)
	must(t, err)
	again()
}

func TestOptions(t *testing.T) {
	for _, bad := range []string{"1.36.4", "v1.36", "v1.36.4-rc.0", "v1.36.4/../..", "latest", ""} {
		if _, err := EnsureMirror(t.Context(), Options{CacheDir: t.TempDir(), Versions: Versions{Kubernetes: []string{bad}}}); err == nil {
			t.Errorf("Kubernetes version %q is accepted", bad)
		}
		if _, err := EnsureMirror(t.Context(), Options{CacheDir: t.TempDir(), Versions: Versions{Etcd: []string{bad}}}); err == nil {
			t.Errorf("etcd version %q is accepted", bad)
		}
		if _, err := EnsureMirror(t.Context(), Options{CacheDir: t.TempDir(), Versions: Versions{Containerd: []string{bad}}}); err == nil {
			t.Errorf("containerd version %q is accepted", bad)
		}
	}
	v, err := Versions{Etcd: []string{"v3.7.3", "v3.6.16", "v3.7.3"}}.withDefaults()
	if err != nil || fmt.Sprint(v) != fmt.Sprintf("{[%s] [v3.6.16 v3.7.3] [%s]}", KubernetesVersion, ContainerdVersion) {
		t.Errorf("versions %v, %v", v, err)
	}
}

func archiveNames(t *testing.T, file string) string {
	t.Helper()
	var names []string
	readArchive(t, file, func(h *tar.Header, _ io.Reader) {
		if h.Mode != 0o755 {
			t.Errorf("%s has mode %o", h.Name, h.Mode)
		}
		names = append(names, h.Name)
	})
	return strings.Join(names, " ")
}
