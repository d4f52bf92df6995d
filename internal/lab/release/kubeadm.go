package release

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
)

// Kubeadm holds the files for machines of a cluster that kubeadm makes, of the default versions.
type Kubeadm struct {
	Kubeadm, Kubelet, Kubectl, Runc string // programs
	Containerd                      string // gzipped tar with the programs in bin/
	CNI                             string // gzipped tar of the plugins
	// Images is a tar for `ctr images import`, with the images that `kubeadm config images list`
	// names if etcd's tag is EtcdTag and CoreDNS' tag is CoreDNSVersion.
	Images string
}

// EtcdTag is the tag of etcd's image in Kubeadm.Images. Upstream appends the image's own revision.
var EtcdTag = strings.TrimPrefix(EtcdVersion, "v") + "-0"

// kubeadmDir is the cache's directory for files that only kubeadm needs.
const kubeadmDir = "kubeadm"

// EnsureKubeadm provides Kubeadm: what the mirror has, kubeadm itself, and images of the same
// programs. Like EnsureMirror it returns at once if everything is there.
func EnsureKubeadm(ctx context.Context, opts Options) (Kubeadm, error) {
	opts.Versions = Versions{}
	opts, err := opts.withDefaults()
	if err != nil {
		return Kubeadm{}, err
	}
	mirror, err := EnsureMirror(ctx, opts)
	if err != nil {
		return Kubeadm{}, err
	}
	catalogue, err := EnsureImages(ctx, opts)
	if err != nil {
		return Kubeadm{}, err
	}
	kubeadm, nft := kubernetesProgram(KubernetesVersion, "kubeadm"), nftProduct()
	own, err := ensureStore(ctx, opts, kubeadmDir, []product{kubeadm, nft})
	if err != nil {
		return Kubeadm{}, err
	}
	kubernetes := filepath.Join(mirror, kubernetesProduct(KubernetesVersion).base)
	k := Kubeadm{
		Kubeadm:    filepath.Join(own, kubeadm.files()[0]),
		Kubelet:    filepath.Join(kubernetes, "kubelet"),
		Kubectl:    filepath.Join(kubernetes, "kubectl"),
		Runc:       filepath.Join(mirror, runcProduct().files()[0]),
		Containerd: filepath.Join(mirror, containerdProduct(ContainerdVersion).files()[0]),
		CNI:        filepath.Join(mirror, cniProduct().files()[0]),
	}
	k.Images = filepath.Join(own, "images-"+imagesRecipe(slices.Concat(kubeadmImages(), catalogueImages()))+".tar")
	if _, err := os.Stat(k.Images); err == nil {
		return k, nil
	}
	unlock, err := lock(ctx, opts.CacheDir, opts.Progress)
	if err != nil {
		return Kubeadm{}, err
	}
	defer unlock()
	stop := opts.Progress.Quiet("writing the images for kubeadm")
	defer stop()
	if err := writeKubeadmImages(ctx, k.Images, mirror, own, catalogue); err != nil {
		return Kubeadm{}, fmt.Errorf("writing %s: %w", k.Images, err)
	}
	return k, nil
}

// kubernetesProgram returns the product of one program of Kubernetes.
func kubernetesProgram(version, name string) product {
	p := kubernetesProduct(version)
	m := p.modules[0]
	m.programs = []program{{name, m.path + "/cmd/" + name}}
	p.name, p.modules = name, []module{m}
	return p
}

const debianLibs = "lib/x86_64-linux-gnu/"

// nftLibraries are the libraries of nft and of the C library, by Debian package.
var nftLibraries = map[string][]string{
	"libbsd0": {"libbsd.so.0"}, "libc6": {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}, "libedit2": {"libedit.so.2"},
	"libgmp10": {"libgmp.so.10"}, "libjansson4": {"libjansson.so.4"}, "libmd0": {"libmd.so.0"}, "libmnl0": {"libmnl.so.0"},
	"libnftables1": {"libnftables.so.1"}, "libnftnl11": {"libnftnl.so.11"}, "libtinfo6": {"libtinfo.so.6"}, "libxtables12": {"libxtables.so.12"},
}

// nftProduct is nft(8) with its libraries. kube-proxy calls it.
func nftProduct() product {
	p := product{name: "nft", version: "from Debian", base: "nft", debian: []debianFile{{name: "nft", pkg: "nftables", member: "usr/sbin/nft"}}}
	for _, pkg := range slices.Sorted(maps.Keys(nftLibraries)) {
		for _, lib := range nftLibraries[pkg] {
			p.debian = append(p.debian, debianFile{name: lib, pkg: pkg, member: debianLibs + lib})
		}
	}
	return p
}

// kubeadmImages are the images for kubeadm that the catalogue lacks. Their programs have the same
// paths as in upstream's images.
func kubeadmImages() []image {
	const bin = "usr/local/bin/"
	config := v1.Config{Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, WorkingDir: "/"}
	of := func(p product, name, tag string) image {
		return image{ref: "registry.k8s.io/" + name + ":" + tag, product: p, path: bin + name, config: config}
	}
	var images []image
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"} {
		images = append(images, of(kubernetesProgram(KubernetesVersion, name), name, KubernetesVersion))
	}
	proxy, nft := &images[len(images)-1], nftProduct()
	proxy.product.debian = nft.debian
	proxy.libraries = map[string]string{}
	for _, f := range nft.debian {
		proxy.libraries[f.name] = debianLibs + f.name
	}
	proxy.libraries["nft"] = "usr/sbin/nft"
	proxy.libraries["ld-linux-x86-64.so.2"] = "lib64/ld-linux-x86-64.so.2" // where programs look for it
	return append(images, of(etcdProduct(EtcdVersion), "etcd", EtcdTag))
}

// writeKubeadmImages writes the archive of images to a file, and removes the archives of other
// recipes. mirror and own are the stores with the programs, catalogue is the layout of
// catalogueImages.
func writeKubeadmImages(ctx context.Context, to, mirror, own, catalogue string) error {
	programs, err := os.MkdirTemp(own, ".programs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(programs)
	if err := gatherPrograms(programs, mirror, own); err != nil {
		return err
	}
	images, err := imagesOf(catalogue)
	if err != nil {
		return err
	}
	for _, image := range kubeadmImages() {
		if images[image.ref], err = buildImage(ctx, image, programs); err != nil {
			return fmt.Errorf("building image %s: %w", image.ref, err)
		}
	}
	tagged := map[name.Reference]v1.Image{}
	for ref, img := range images {
		tag, err := name.NewTag(ref)
		if err != nil {
			return err
		}
		tagged[tag] = img
	}
	old, err := filepath.Glob(filepath.Join(own, "images-*.tar*"))
	if err != nil {
		return err
	}
	for _, f := range old {
		if err := os.Remove(f); err != nil {
			return err
		}
	}
	if err := tarball.MultiRefWriteToFile(to+".new", tagged); err != nil {
		return err
	}
	return file.Rename(to+".new", to)
}

// gatherPrograms puts the programs of kubeadmImages into one directory, under their names.
func gatherPrograms(dir, mirror, own string) error {
	for _, from := range []string{filepath.Join(mirror, kubernetesProduct(KubernetesVersion).base), filepath.Join(own, nftProduct().base)} {
		entries, err := os.ReadDir(from)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := os.Symlink(filepath.Join(from, e.Name()), filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	etcd := etcdProduct(EtcdVersion)
	return UnpackProgram(filepath.Join(mirror, etcd.files()[0]), path.Join(etcd.inside, "etcd"), filepath.Join(dir, "etcd"))
}

// UnpackProgram writes a member of a gzipped tar to a file that everybody may run.
func UnpackProgram(archive, member, to string) error {
	in, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer in.Close()
	zr, err := gzip.NewReader(in)
	if err != nil {
		return fmt.Errorf("reading %s: %w", archive, err)
	}
	for tr := tar.NewReader(zr); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%s has no %s", archive, member)
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", archive, err)
		}
		if h.Name != member {
			continue
		}
		out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, tr) //nolint:gosec // a file of this cache
		return errors.Join(err, out.Close())
	}
}

// imagesOf returns the images of pods that kubeadm starts from a layout, by reference.
func imagesOf(dir string) (map[string]v1.Image, error) {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	images := map[string]v1.Image{}
	for _, d := range manifest.Manifests {
		ref := d.Annotations[imagespec.AnnotationRefName]
		if ref != PauseImage && ref != CoreDNSImage {
			continue
		}
		if images[ref], err = index.Image(d.Digest); err != nil {
			return nil, err
		}
	}
	if len(images) != 2 {
		return nil, fmt.Errorf("%s lacks %s or %s", dir, PauseImage, CoreDNSImage)
	}
	return images, nil
}
