package release

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cache"
)

// layouts is the cache's directory of image layouts, each of which is named by its recipe.
const layouts = "container-images"

// image is a container image of one program.
type image struct {
	ref     string
	product product
	// main is the name of the program, empty for the product's first one, and path is where it lies in the image.
	main, path string
	// bindsLowPorts gives the program the file capability CAP_NET_BIND_SERVICE.
	bindsLowPorts bool
	// libraries are further files of the product, by name, with their paths in the image.
	libraries map[string]string
	// applets says to make a link in /bin for each name that `program --list` prints.
	applets bool
	config  v1.Config
	// published says whether the image can be pulled from its registry.
	published bool
}

// program returns the name of the image's program among the programs of its product.
func (i image) program() string { return cmp.Or(i.main, i.product.programs()[0]) }

func catalogueImages() []image {
	path := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	coreDNS := func(ref string, p product) image {
		return image{
			ref: ref, product: p, path: "coredns", bindsLowPorts: true, published: true,
			config: v1.Config{
				Entrypoint: []string{"/coredns"}, User: "nonroot:nonroot", Env: path, WorkingDir: "/",
				ExposedPorts: map[string]struct{}{"53": {}, "53/udp": {}},
			},
		}
	}
	// The C library of busybox needs these to resolve names; a static program cannot.
	ofBusybox := map[string]string{
		"libc.so.6":            "lib/x86_64-linux-gnu/libc.so.6",
		"libresolv.so.2":       "lib/x86_64-linux-gnu/libresolv.so.2",
		"ld-linux-x86-64.so.2": "lib64/ld-linux-x86-64.so.2",
	}
	withProvisioner := maps.Clone(ofBusybox)
	withProvisioner["local-path-provisioner"] = "bin/local-path-provisioner"
	return []image{
		{
			ref: PauseImage, product: pauseProduct(), path: "pause", published: true,
			config: v1.Config{Entrypoint: []string{"/pause"}, User: "65535:65535", Env: path, WorkingDir: "/"},
		},
		coreDNS(CoreDNSImage, coreDNSProduct(CoreDNSVersion, "")),
		coreDNS(OlderCoreDNSImage, coreDNSProduct(OlderCoreDNSVersion, "coredns-"+OlderCoreDNSVersion)),
		{
			ref: MetricsServerImage, product: metricsServerProduct(), path: "metrics-server", published: true,
			config: v1.Config{Entrypoint: []string{"/metrics-server"}, User: "65534", Env: path, WorkingDir: "/"},
		},
		{
			ref: CloudControllersImage, product: cloudControllersProduct(), path: "bin/aws-cloud-controller-manager", published: true,
			config: v1.Config{Entrypoint: []string{"/bin/aws-cloud-controller-manager"}, Env: path, WorkingDir: "/"},
		},
		{
			ref: AgnhostImage, product: agnhostProduct(), path: "agnhost", published: true,
			config: v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}, Env: path, WorkingDir: "/"},
		},
		{
			ref: LocalPathImage, product: localPathProduct(), main: "busybox", path: "bin/busybox", applets: true, libraries: withProvisioner, published: true,
			config: v1.Config{Cmd: []string{"local-path-provisioner"}, Env: path, WorkingDir: "/"},
		},
		{
			ref: ToolboxImage, product: busyboxProduct(), path: "bin/busybox", applets: true, libraries: ofBusybox,
			config: v1.Config{Cmd: []string{"/bin/sh"}, Env: path, WorkingDir: "/"},
		},
	}
}

func traefikImages() []image {
	return []image{{
		ref: TraefikImage, product: traefikProduct(), path: "usr/local/bin/traefik", published: true,
		config: v1.Config{Entrypoint: []string{"/usr/local/bin/traefik"}, WorkingDir: "/"},
	}}
}

// Extra is a set of images that a lab serves on request, since they take minutes to build.
type Extra struct {
	Registry string // its host
	Locate   func(cacheDir string) string
	Ensure   func(context.Context, Options) (layout string, err error) // below what Locate returns
}

// Extras are these sets by name.
var Extras = map[string]Extra{
	"cilium": {Registry: "quay.io", Locate: LocateCilium, Ensure: func(ctx context.Context, opts Options) (string, error) {
		c, err := EnsureCilium(ctx, opts)
		return c.Images, err
	}},
	"traefik": {
		Registry: "docker.io",
		Locate:   func(cacheDir string) string { return layoutDir(cacheDir, traefikImages()) },
		Ensure: func(ctx context.Context, opts Options) (string, error) {
			opts, err := opts.withDefaults()
			if err != nil {
				return "", err
			}
			return ensureImages(ctx, opts, traefikImages())
		},
	},
}

// EnsureImages returns the directory of an OCI image layout with the images of the catalogue for linux/amd64, and
// makes it if necessary. Each image is pulled if its registry can be reached, and built otherwise. Like EnsureMirror it returns at once
// if everything is there, and lets one process at a time work.
func EnsureImages(ctx context.Context, opts Options) (string, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return "", err
	}
	return ensureImages(ctx, opts, catalogueImages())
}

// LocateImages returns the directory under cacheDir in which EnsureImages makes its layout.
func LocateImages(cacheDir string) string { return layoutDir(cacheDir, catalogueImages()) }

func layoutDir(cacheDir string, images []image) string {
	return filepath.Join(cacheDir, layouts, imagesRecipe(images))
}

// PruneImages removes the layouts in cacheDir, also those of Extras, except the ones in keep, and returns
// the removed ones. It removes nothing while another process adds to the cache.
func PruneImages(cacheDir string, keep []string) ([]string, error) {
	unlock, err := cache.TryLock(lockFile(cacheDir))
	if err != nil || unlock == nil {
		return nil, err
	}
	defer unlock()
	removed, err := cache.Sweep(filepath.Join(cacheDir, layouts), keep)
	if err != nil {
		return removed, err
	}
	// It contains only directories that LocateCilium returns, and unfinished ones.
	cilium, err := cache.Sweep(filepath.Join(cacheDir, ciliumDir), keep)
	return append(removed, cilium...), err
}

func ensureImages(ctx context.Context, opts Options, images []image) (string, error) {
	dir := layoutDir(opts.CacheDir, images)
	if complete(dir) {
		return dir, nil
	}
	s := newStore(opts, "image-programs")
	unlock, err := lock(ctx, opts.CacheDir, s.progress)
	if err != nil {
		return "", err
	}
	defer unlock()
	if complete(dir) {
		return dir, nil
	}
	if err := s.writeLayout(ctx, dir, images); err != nil {
		return "", fmt.Errorf("writing images to %s: %w", dir, err)
	}
	return dir, nil
}

// complete says whether there is a layout at dir. A layout is renamed to dir when it is complete.
func complete(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "index.json"))
	return err == nil
}

// writeLayout writes a layout of all images beside dir and renames it to dir.
func (s *store) writeLayout(ctx context.Context, dir string, images []image) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	path, err := layout.Write(work, empty.Index)
	if err != nil {
		return err
	}
	var build []image
	var products []product
	for _, image := range images {
		err := errUnavailable
		if image.published {
			err = s.pull(ctx, path, image.ref)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			build = append(build, image)
			products = append(products, image.product)
		}
	}
	if err := s.complete(ctx, products); err != nil {
		return err
	}
	for _, image := range build {
		img, err := buildImage(ctx, image, filepath.Join(s.dir(), image.product.base))
		if err != nil {
			return fmt.Errorf("building image %s: %w", image.ref, err)
		}
		if err := appendImage(path, image.ref, img); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Chmod(work, 0o755); err != nil {
		return err
	}
	return file.Rename(work, dir)
}

// pull adds an image to the layout from its registry.
func (s *store) pull(ctx context.Context, path layout.Path, ref string) (err error) {
	host, _, _ := strings.Cut(ref, "/")
	if s.upstream.isDown(host) {
		return errUnavailable
	}
	stop := s.progress.Quiet("pulling " + ref)
	defer func() {
		stop()
		if err != nil && ctx.Err() == nil {
			err = s.upstream.markDown(host, err)
		}
	}()
	tag, err := name.NewTag(ref)
	if err != nil {
		return err
	}
	img, err := remote.Image(tag,
		remote.WithContext(ctx),
		remote.WithTransport(s.upstream.client.Transport),
		remote.WithPlatform(v1.Platform{OS: goos, Architecture: goarch}),
		remote.WithRetryBackoff(remote.Backoff{Steps: 1}))
	if err != nil {
		return err
	}
	return appendImage(path, ref, img)
}

func appendImage(path layout.Path, ref string, img v1.Image) error {
	err := path.AppendImage(img,
		layout.WithAnnotations(map[string]string{imagespec.AnnotationRefName: ref}),
		layout.WithPlatform(v1.Platform{OS: goos, Architecture: goarch}))
	if err != nil {
		return fmt.Errorf("adding image %s: %w", ref, err)
	}
	return nil
}

// buildImage makes an image from the files in the directory programs.
func buildImage(ctx context.Context, image image, programs string) (v1.Image, error) {
	program := filepath.Join(programs, image.program())
	var applets []string
	if image.applets {
		out, err := exec.CommandContext(ctx, program, "--list").Output()
		if err != nil {
			return nil, fmt.Errorf("listing applets: %w", err)
		}
		applets = strings.Fields(string(out))
	}
	layer, err := newLayer(programs, image, applets)
	if err != nil {
		return nil, err
	}
	return imageOf(layer, "k8s-lab: "+image.product.title(), image.config)
}

// imageOf makes an image of one layer.
func imageOf(layer v1.Layer, madeBy string, config v1.Config) (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{CreatedBy: madeBy}})
	if err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = goos, goarch, config
	return mutate.ConfigFile(img, file)
}

// imagesRecipe returns an id of the images' definitions.
func imagesRecipe(images []image) string {
	var b strings.Builder
	for _, img := range images {
		config := img.config
		fmt.Fprintf(&b, "%d %s %s %s %s %v %t %t %q %q %s %q %s %d\n", layerFormat, img.ref, img.product.recipe(), img.program(), img.path, img.libraries, img.bindsLowPorts, img.applets,
			config.Entrypoint, config.Cmd, config.User, config.Env, config.WorkingDir, len(config.ExposedPorts))
	}
	return hash(b.String())
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}
