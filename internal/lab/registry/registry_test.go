package registry

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/types"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newLayout writes a layout with one image of one layer and returns its directory and the layer.
func newLayout(t *testing.T, ref string) (dir string, layer v1.Layer) {
	t.Helper()
	dir = t.TempDir()
	path, err := layout.Write(dir, empty.Index)
	must(t, err)
	img, err := random.Image(1000, 1)
	must(t, err)
	img = mutate.MediaType(img, types.OCIManifestSchema1)
	must(t, path.AppendImage(img, layout.WithAnnotations(map[string]string{imagespec.AnnotationRefName: ref})))
	layers, err := img.Layers()
	must(t, err)
	return dir, layers[0]
}

type answer struct {
	status int
	header http.Header
	body   string
}

func get(t *testing.T, method, url string, header ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	must(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	return answer{resp.StatusCode, resp.Header, string(body)}
}

func sha(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// The registry answers what containerd asks of a mirror (its hosts.toml resolver puts the image's
// registry into ns).
func TestAnswersAsMirror(t *testing.T) {
	dir, layer := newLayout(t, "registry.test/some/where/pause:1")
	handler, err := New(dir)
	must(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	accept := []string{"Accept", "application/vnd.oci.image.manifest.v1+json, */*"}
	head := get(t, "HEAD", server.URL+"/v2/some/where/pause/manifests/1?ns=registry.test", accept...)
	digest := head.header.Get("Docker-Content-Digest")
	if head.status != 200 || !strings.HasPrefix(digest, "sha256:") || head.header.Get("Content-Type") != "application/vnd.oci.image.manifest.v1+json" {
		t.Fatalf("HEAD: %d, %v", head.status, head.header)
	}
	manifest := get(t, "GET", server.URL+"/v2/some/where/pause/manifests/"+digest+"?ns=registry.test", accept...)
	if manifest.status != 200 || "sha256:"+sha(manifest.body) != digest {
		t.Errorf("GET by digest: %d", manifest.status)
	}
	m, err := v1.ParseManifest(strings.NewReader(manifest.body))
	must(t, err)
	stored, err := layer.Compressed()
	must(t, err)
	first := make([]byte, 4)
	_, err = io.ReadFull(stored, first)
	must(t, err)
	blob := server.URL + "/v2/some/where/pause/blobs/" + m.Layers[0].Digest.String() + "?ns=registry.test"
	if part := get(t, "GET", blob, "Range", "bytes=0-3"); part.body != string(first) {
		t.Errorf("range of a layer: %q, want %q", part.body, first)
	}
	for path, want := range map[string]int{
		"/v2/":                                200,
		"/v2/some/where/pause/manifests/2":    404,
		"/v2/no/where/manifests/1":            404,
		"/v2/a/blobs/sha256:" + sha("absent"): 404,
	} {
		if got := get(t, "GET", server.URL+path); got.status != want {
			t.Errorf("GET %s: %d, want %d", path, got.status, want)
		}
	}
	if got := get(t, "PUT", server.URL+"/v2/some/where/pause/manifests/1"); got.status != 405 {
		t.Errorf("push: %d, want 405", got.status)
	}
}

// TestLayouts serves the images of two layouts.
func TestLayouts(t *testing.T) {
	one, first := newLayout(t, "registry.k8s.io/one:1")
	other, second := newLayout(t, "quay.io/a/other:2")
	handler, err := New(one, other)
	must(t, err)
	server := httptest.NewServer(handler)
	defer server.Close()
	for name, layer := range map[string]v1.Layer{"one": first, "a/other": second} {
		digest, err := layer.Digest()
		must(t, err)
		for _, path := range []string{"/manifests/" + map[string]string{"one": "1", "a/other": "2"}[name], "/blobs/" + digest.String()} {
			if a := get(t, http.MethodGet, server.URL+"/v2/"+name+path); a.status != http.StatusOK {
				t.Errorf("%s%s: %d %s", name, path, a.status, a.body)
			}
		}
		if a := get(t, http.MethodGet, server.URL+"/v2/"+name+"/blobs/sha256:"+strings.Repeat("0", 64)); a.status != http.StatusNotFound {
			t.Errorf("a blob that nobody has: %d", a.status)
		}
	}
	if _, err := New(one, t.TempDir()); err == nil {
		t.Error("a directory without a layout was accepted")
	}
}

func TestNeedsLayout(t *testing.T) {
	if _, err := New(t.TempDir()); err == nil {
		t.Error("no error for a directory without a layout")
	}
}
