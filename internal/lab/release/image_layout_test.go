package release

import (
	"archive/tar"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/registry"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
)

// testImages are built from embedded source.
func testImages() []image {
	return []image{
		{
			ref: "registry.test/some/where/pause:1", product: pauseProduct(), path: "bin/pause", bindsLowPorts: true,
			config: v1.Config{Entrypoint: []string{"/bin/pause"}, User: "65532:65532"},
		},
		{
			ref: "k8s-lab/links:2", product: product{name: "links", version: "2", source: `package main

import "fmt"

func main() { fmt.Println("sh\nls\nbusybox") }
`},
			path: "bin/busybox", applets: true, config: v1.Config{Cmd: []string{"/bin/sh"}},
		},
	}
}

// serve serves the images of layout dir and returns the registry's host.
func serve(t *testing.T, dir string) string {
	t.Helper()
	handler, err := registry.New(dir)
	must(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func pull(t *testing.T, reference string) v1.Image {
	t.Helper()
	ref, err := name.ParseReference(reference, name.Insecure)
	must(t, err)
	img, err := remote.Image(ref, remote.WithContext(t.Context()))
	must(t, err)
	return img
}

func TestImagesCanBePulled(t *testing.T) {
	cache := t.TempDir()
	dir, err := ensureImages(t.Context(), Options{CacheDir: cache}, testImages())
	must(t, err)
	host := serve(t, dir)

	img := pull(t, host+"/some/where/pause:1")
	must(t, validate.Image(img))
	file, err := img.ConfigFile()
	must(t, err)
	if file.OS != "linux" || file.Architecture != "amd64" || file.Config.User != "65532:65532" || file.Config.Entrypoint[0] != "/bin/pause" {
		t.Errorf("image configuration is %+v", file)
	}
	root, headers := extract(t, img)
	if out, err := exec.CommandContext(t.Context(), filepath.Join(root, "bin/pause"), "-v").Output(); err != nil || string(out) != "pause "+PauseVersion+"\n" {
		t.Errorf("the program of the image prints %q, %v", out, err)
	}
	if h := headers["bin/pause"]; h == nil || h.PAXRecords["SCHILY.xattr.security.capability"] != string(netBindService()) {
		t.Errorf("the program lacks its capability: %+v", h)
	}
	if h := headers["tmp/"]; h == nil || h.Mode != 0o1777 {
		t.Errorf("/tmp is %+v", h)
	}
	if !strings.Contains(read(t, root, "etc/passwd"), "nonroot:x:65532:") {
		t.Error("/etc/passwd knows no user nonroot")
	}

	digest, err := img.Digest()
	must(t, err)
	must(t, validate.Image(pull(t, host+"/some/where/pause@"+digest.String())))

	root, _ = extract(t, pull(t, host+"/k8s-lab/links:2"))
	for _, link := range []string{"sh", "ls"} {
		if to, err := os.Readlink(filepath.Join(root, "bin", link)); err != nil || to != "/bin/busybox" {
			t.Errorf("/bin/%s is a link to %q, %v", link, to, err)
		}
	}
}

func TestImagesAreReproducibleAndRemembered(t *testing.T) {
	var digests [2]string
	var dirs [2]string
	caches := [2]string{t.TempDir(), t.TempDir()}
	for i, cache := range caches {
		dir, err := ensureImages(t.Context(), Options{CacheDir: cache}, testImages())
		must(t, err)
		dirs[i], digests[i] = dir, read(t, dir, "index.json")
	}
	if digests[0] != digests[1] {
		t.Errorf("two builds differ:\n%s\n%s", digests[0], digests[1])
	}
	t.Setenv("PATH", "") // nothing can be built any more
	again, err := ensureImages(t.Context(), Options{CacheDir: caches[0]}, testImages())
	must(t, err)
	if again != dirs[0] {
		t.Errorf("layout moved from %s to %s", dirs[0], again)
	}
	changed := testImages()
	changed[0].config.User = "0"
	if imagesRecipe(changed) == imagesRecipe(testImages()) {
		t.Error("a changed definition is not noticed")
	}
}

func TestImagesArePulledWherePublished(t *testing.T) {
	dir, err := ensureImages(t.Context(), Options{CacheDir: t.TempDir()}, testImages())
	must(t, err)
	handler, err := registry.New(dir)
	must(t, err)
	images := testImages()[:1]
	images[0].published = true
	t.Setenv("PATH", "") // nothing can be built

	client := tlsServer(t, handler)
	again, err := ensureImages(t.Context(), Options{CacheDir: t.TempDir(), Client: client}, images)
	must(t, err)
	want, err := pull(t, serve(t, dir)+"/some/where/pause:1").Digest()
	must(t, err)
	got, err := pull(t, serve(t, again)+"/some/where/pause:1").Digest()
	must(t, err)
	if got != want {
		t.Errorf("pulled %s, want %s", got, want)
	}

	// A registry that refuses its layers counts as unreachable.
	client = tlsServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/blobs/") {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	l := new(recorder)
	_, err = ensureImages(t.Context(), Options{CacheDir: t.TempDir(), Client: client, Progress: progress.To(l.print)}, images)
	if err == nil || !strings.Contains(err.Error(), "building pause") || l.count("registry.test cannot be reached") != 1 {
		t.Errorf("no attempt to build: %v, %q", err, l.lines)
	}
}

// extract unpacks an image's layers and returns the headers by name.
func extract(t *testing.T, img v1.Image) (root string, headers map[string]*tar.Header) {
	t.Helper()
	root, headers = t.TempDir(), make(map[string]*tar.Header)
	layers, err := img.Layers()
	must(t, err)
	for _, layer := range layers {
		r, err := layer.Uncompressed()
		must(t, err)
		readTar(t, r, func(h *tar.Header, content io.Reader) {
			headers[h.Name] = h
			to := filepath.Join(root, h.Name)
			switch h.Typeflag {
			case tar.TypeDir:
				must(t, os.MkdirAll(to, 0o755))
			case tar.TypeSymlink:
				must(t, os.Symlink(h.Linkname, to))
			default:
				data, err := io.ReadAll(content)
				must(t, err)
				must(t, os.WriteFile(to, data, h.FileInfo().Mode().Perm()))
			}
		})
		must(t, r.Close())
	}
	return root, headers
}
