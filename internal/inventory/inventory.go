// Package inventory lists what the machines of a cluster download: every file with its SHA-256 and
// every image with its digest. A site without access to the internet copies these to its mirror and
// its registry.
//
// It asks upstream, or a mirror, for checksums and digests. It downloads none of the files, and
// knows nothing about machines and Terraform.
package inventory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/sync/errgroup"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/builtin"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
)

// Versions are the releases in a configuration. Programs that are upgraded on running machines may
// have several. An empty field means the provider's default.
type Versions struct {
	Kubernetes, Etcd, Containerd []string
	Runc, CNIPlugins             string
	Architectures                []string // artifact.AMD64, artifact.ARM64
}

// Images are the container images in a configuration.
type Images struct {
	Sandbox, CoreDNS string
	MetricsServer    string   // empty: not installed
	More             []string // of other addons
}

// DefaultImages returns the images that the provider uses by default.
func DefaultImages() Images {
	return Images{Sandbox: component.DefaultSandboxImage, CoreDNS: builtin.DefaultImage("coredns"), MetricsServer: builtin.DefaultImage("metrics-server")}
}

// List is everything that has to be copied.
type List struct {
	Files  []artifact.Artifact // by path, without duplicates
	Images []Image
}

// Image is a container image and the digest of its index or manifest.
type Image struct {
	Name, Digest string // "registry.k8s.io/pause:3.10.2", "sha256:..."
}

// parallelRequests limits how many requests are under way at the same time.
const parallelRequests = 4

// Digest gets an image's digest from its registry.
func Digest(ctx context.Context, image string) (string, error) {
	ref, err := name.ParseReference(image)
	if err != nil {
		return "", err
	}
	d, err := remote.Head(ref, remote.WithContext(ctx))
	if err != nil {
		return "", err
	}
	return d.Digest.String(), nil
}

// Collect lists the files and images of the versions, with checksums and digests. The error names
// every file or image for which none was found; the list is complete otherwise.
func Collect(ctx context.Context, catalog *artifact.Catalog, v Versions, images Images, digest func(context.Context, string) (string, error)) (List, error) {
	files, err := files(catalog, v)
	if err != nil {
		return List{}, err
	}
	out := List{Files: files}
	for _, image := range append([]string{images.Sandbox, images.CoreDNS, images.MetricsServer}, images.More...) {
		if image != "" {
			out.Images = append(out.Images, Image{Name: image})
		}
	}
	errs := make([]error, len(out.Files)+len(out.Images))
	var g errgroup.Group
	g.SetLimit(parallelRequests)
	for i := range out.Files {
		g.Go(func() error {
			errs[i] = catalog.Resolve(ctx, out.Files[i:i+1])
			return nil
		})
	}
	for i := range out.Images {
		g.Go(func() error {
			image := &out.Images[i]
			var err error
			if image.Digest, err = digest(ctx, image.Name); err != nil {
				errs[len(out.Files)+i] = fmt.Errorf("image %s: %w", image.Name, err)
			}
			return nil
		})
	}
	_ = g.Wait() // every error is in errs
	return out, errors.Join(errs...)
}

// files returns the downloads of all versions, without duplicates.
func files(catalog *artifact.Catalog, v Versions) ([]artifact.Artifact, error) {
	var out []artifact.Artifact
	add := func(set []artifact.Artifact, err error) error {
		if err != nil && !errors.Is(err, artifact.ErrUnknownChecksum) {
			return err
		}
		out = append(out, set...)
		return nil
	}
	var errs []error
	for _, arch := range orDefault(v.Architectures, artifact.AMD64) {
		catalog := catalog.ForArch(arch)
		for _, etcd := range orDefault(v.Etcd, artifact.DefaultEtcd) {
			errs = append(errs, add(catalog.EtcdSet(etcd)))
		}
		for _, kubernetes := range v.Kubernetes {
			errs = append(errs, add(catalog.ControlPlaneSet(kubernetes)))
			for _, containerd := range orDefault(v.Containerd, artifact.DefaultContainerd) {
				errs = append(errs, add(catalog.WorkerSet(kubernetes, containerd, v.Runc, v.CNIPlugins, true)))
			}
		}
	}
	slices.SortFunc(out, func(a, b artifact.Artifact) int { return strings.Compare(a.Path, b.Path) })
	return slices.CompactFunc(out, func(a, b artifact.Artifact) bool { return a.Path == b.Path }), errors.Join(errs...)
}

func orDefault(list []string, otherwise string) []string {
	if len(list) == 0 {
		return []string{otherwise}
	}
	return list
}

// Write writes the list in the format of sha256sum(1), with paths as on a mirror, so that it can be
// the provider's artifact_checksums. Images, and files without a checksum, are comments.
func (l List) Write(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# Files: below <mirror>/, each from https://<path>.\n")
	for _, f := range l.Files {
		if f.SHA256 == "" {
			fmt.Fprintf(&b, "# sum not known: %s\n", f.Path)
			continue
		}
		fmt.Fprintf(&b, "%s  %s\n", f.SHA256, f.Path)
	}
	if len(l.Images) > 0 {
		b.WriteString("# Images: in a registry that registries names, or loaded on every worker.\n")
	}
	for _, i := range l.Images {
		digest := i.Digest
		if digest == "" {
			digest = "digest not known"
		}
		fmt.Fprintf(&b, "# image %s %s\n", i.Name, digest)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
