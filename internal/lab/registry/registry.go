// Package registry serves the container images of an OCI image layout over HTTP.
//
// It does not know what the images are, how they got there, or on which address they are served.
package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
)

// New returns a handler for the root of a server that serves the images of the layouts in dirs. The
// reference annotation of the OCI image specification names each image, such as
// registry.k8s.io/pause:3.10.1. The registry host in the name is ignored, so that containerd can
// use the server as a mirror of any host. Nothing can be pushed.
func New(dirs ...string) (http.Handler, error) {
	var blobs layoutBlobs
	for _, dir := range dirs {
		blobs = append(blobs, filepath.Join(dir, "blobs"))
	}
	handler := registry.New(registry.WithBlobHandler(blobs), registry.Logger(log.New(io.Discard, "", 0)))
	for _, dir := range dirs {
		index, err := layout.ImageIndexFromPath(dir)
		if err != nil {
			return nil, fmt.Errorf("opening image layout %s: %w", dir, err)
		}
		manifest, err := index.IndexManifest()
		if err != nil {
			return nil, fmt.Errorf("reading image layout %s: %w", dir, err)
		}
		for _, desc := range manifest.Manifests {
			if err := preload(handler, index, desc); err != nil {
				return nil, fmt.Errorf("image %s of layout %s: %w", desc.Annotations[imagespec.AnnotationRefName], dir, err)
			}
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "this registry is read-only", http.StatusMethodNotAllowed)
			return
		}
		handler.ServeHTTP(w, r)
	}), nil
}

// preload pushes one manifest to the registry, which keeps manifests in memory.
func preload(handler http.Handler, index v1.ImageIndex, desc v1.Descriptor) error {
	ref, err := name.NewTag(desc.Annotations[imagespec.AnnotationRefName])
	if err != nil {
		return err
	}
	img, err := index.Image(desc.Digest)
	if err != nil {
		return err
	}
	raw, err := img.RawManifest()
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPut,
		"/v2/"+ref.RepositoryStr()+"/manifests/"+ref.TagStr(), bytes.NewReader(raw))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", string(desc.MediaType))
	answer := &statusWriter{header: make(http.Header)}
	if handler.ServeHTTP(answer, req); answer.status != http.StatusCreated {
		return fmt.Errorf("registry refuses manifest: %d %s", answer.status, strings.TrimSpace(answer.body.String()))
	}
	return nil
}

// statusWriter records the answer of a handler that is called directly.
type statusWriter struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *statusWriter) Header() http.Header         { return w.header }
func (w *statusWriter) WriteHeader(status int)      { w.status = status }
func (w *statusWriter) Write(b []byte) (int, error) { return w.body.Write(b) }

// layoutBlobs serves the blobs of layouts, given by their directories, without checking digests,
// since clients check them. The registry's own disk handler reads a blob twice more on every
// request to check it.
type layoutBlobs []string

// open opens a blob of the first layout that has it.
func (dirs layoutBlobs) open(h v1.Hash) (*os.File, error) {
	for _, dir := range dirs {
		f, err := os.Open(filepath.Join(dir, h.Algorithm, h.Hex))
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
	}
	return nil, registry.ErrNotFound
}

// Stat implements registry.BlobStatHandler.
func (dirs layoutBlobs) Stat(_ context.Context, _ string, h v1.Hash) (int64, error) {
	f, err := dirs.open(h)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Get implements registry.BlobHandler.
func (dirs layoutBlobs) Get(_ context.Context, _ string, h v1.Hash) (io.ReadCloser, error) {
	return dirs.open(h)
}
