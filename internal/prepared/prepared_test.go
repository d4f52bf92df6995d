package prepared

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cache"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

// built returns the image, and makes it unless the cache has it.
func built(t *testing.T) machine.Image {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	opts := Options{CacheDir: cache.DefaultDir(), Program: filepath.Join(t.TempDir(), "k8s-lab"), Progress: progress.To(func(s string) { t.Log(s) })}
	if img, present, err := opts.locate(t.Context()); err != nil || present {
		if err != nil {
			t.Fatal(err)
		}
		return img
	}
	if err := workspace.Build(t.Context(), "../..", filepath.Dir(opts.Program), "./cmd/k8s-lab"); err != nil {
		t.Fatal(err)
	}
	img, err := Ensure(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// TestImage looks for what roles want, and for what two machines may not share.
func TestImage(t *testing.T) {
	img := built(t)
	state, err := wanted("http://mirror.invalid", filepath.Join(cache.DefaultDir(), "mirror", "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range state.Binaries {
		if _, err := os.Stat(filepath.Join(img.Dir, "var/lib/k8s-from-scratch/receipts", b.SHA256)); err != nil {
			t.Errorf("%s was not installed by Apply: %v", b.Name, err)
		}
		for _, i := range b.Installs {
			if _, err := os.Stat(filepath.Join(img.Dir, i.Path)); err != nil {
				t.Error(err)
			}
		}
	}
	status, err := os.ReadFile(filepath.Join(img.Dir, "var/lib/dpkg/status"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range state.Packages {
		if !bytes.Contains(status, []byte("\nPackage: "+p+"\nStatus: install ok installed\n")) {
			t.Errorf("package %s is not installed", p)
		}
	}
	for _, pattern := range []string{
		"etc/ssh/ssh_host_*", "root/.ssh", "home/*/.ssh", "etc/hostname", "var/lib/systemd/random-seed", "var/lib/cloud/instance*",
		"var/lib/dhcpcd/*", "var/lib/k8s-from-scratch/image-builder", "var/lib/containerd/io.containerd.grpc.v1.introspection", "var/log/journal/*", "etc/systemd/system/*.wants/haproxy.service",
	} {
		if found, err := filepath.Glob(filepath.Join(img.Dir, pattern)); err != nil || len(found) > 0 {
			t.Errorf("the image has %v (%v)", found, err)
		}
	}
	// The names and the address of the machine that was captured, and keys.
	marks := []string{"ip-10-240-0-10", "prepared-builder", "10.240.0.10", "PRIVATE KEY-----"}
	for _, dir := range []string{"etc", "root", "home", "var", "srv", "opt", "usr/local/etc"} {
		err := filepath.WalkDir(filepath.Join(img.Dir, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			// Third-party programs and images contain examples of keys.
			if rel, _ := filepath.Rel(img.Dir, path); d.IsDir() && (strings.HasPrefix(rel, "var/lib/containerd/io.containerd.content") || strings.HasPrefix(rel, "var/lib/containerd/io.containerd.snapshotter")) {
				return filepath.SkipDir
			}
			if !d.Type().IsRegular() {
				return nil
			}
			text, err := os.ReadFile(path)
			for _, mark := range marks {
				if bytes.Contains(text, []byte(mark)) {
					t.Errorf("%s has %q", path, mark)
				}
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	if id, err := os.ReadFile(filepath.Join(img.Dir, "etc/machine-id")); err != nil || len(id) > 0 {
		t.Errorf("/etc/machine-id: %q, %v", id, err)
	}
}
