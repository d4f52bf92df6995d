package release

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
)

// Cilium is the network that TestCilium installs, and the program that renders its chart.
type Cilium struct {
	Images string // directory of an OCI image layout with CiliumImage and CiliumOperatorImage
	Chart  string // directory of the Helm chart
	Helm   string // program
}

// ciliumDir is the cache's directory for files that only Cilium needs.
const ciliumDir = "cilium"

// ciliumModule is the Go module of all of Cilium. It replaces two modules by forks, which `go install` of
// a module refuses, and buildModule repeats.
const ciliumModule = "github.com/cilium/cilium"

// ciliumProduct has the programs of both images.
func ciliumProduct() product {
	of := func(tags []string, programs ...program) module {
		for n := range programs {
			programs[n].pkg = ciliumModule + "/" + programs[n].pkg
		}
		return module{path: ciliumModule, version: CiliumVersion, tags: append(tags, "osusergo"), programs: programs,
			vars: []string{"'" + ciliumModule + "/pkg/version.ciliumVersion=" + CiliumVersion[1:] + " {commit} {time}'"}}
	}
	return product{name: "Cilium", version: CiliumVersion, modules: []module{
		of(nil, program{"cilium-agent", "daemon"}, program{"cilium-dbg", "cilium-dbg"}, program{"cilium-health", "cilium-health"},
			program{"cilium-health-responder", "cilium-health/responder"},
			program{"cilium-cni", "plugins/cilium-cni"}, program{"cilium-mount", "tools/mount"}, program{"cilium-sysctlfix", "tools/sysctlfix"}),
		of([]string{"ipam_provider_operator"}, program{ciliumOperator, "operator"}),
	}}
}

const ciliumOperator = "cilium-operator-generic"

func helmProduct() product {
	const path = "helm.sh/helm/v4"
	return product{name: "Helm", version: HelmVersion, modules: []module{{
		path: path, version: HelmVersion,
		programs: []program{{"helm", path + "/cmd/helm"}},
		vars:     []string{path + "/internal/version.version=" + HelmVersion},
	}}}
}

// EnsureCilium provides Cilium. It builds all of it from Go modules and packages of Debian 12, which takes
// some minutes. Like EnsureMirror it returns at once if everything is there.
func EnsureCilium(ctx context.Context, opts Options) (Cilium, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return Cilium{}, err
	}
	own, err := ensureStore(ctx, opts, ciliumDir, []product{ciliumProduct(), helmProduct()})
	if err != nil {
		return Cilium{}, err
	}
	dir := LocateCilium(opts.CacheDir)
	c := Cilium{Images: filepath.Join(dir, "images"), Chart: filepath.Join(dir, "chart"), Helm: filepath.Join(own, "helm")}
	if _, err := os.Stat(dir); err == nil {
		return c, nil
	}
	unlock, err := lock(ctx, opts.CacheDir, opts.Progress)
	if err != nil {
		return Cilium{}, err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return c, nil // another process wrote it
	}
	if err := writeCilium(ctx, opts, own, dir); err != nil {
		return Cilium{}, fmt.Errorf("writing the images of Cilium to %s: %w", dir, err)
	}
	return c, nil
}

// LocateCilium returns the directory under cacheDir in which EnsureCilium writes the images and the chart.
func LocateCilium(cacheDir string) string {
	recipe := fmt.Sprintf("%d %s %q %q", ciliumFormat, ciliumProduct().recipe(), ciliumPackages, ciliumFiles)
	return filepath.Join(cacheDir, ciliumDir, "images-"+hash(recipe))
}

// writeCilium writes the images and the chart to a directory of own.
func writeCilium(ctx context.Context, opts Options, own, to string) error {
	work, err := os.MkdirTemp(own, ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	b := &builder{work: work, progress: opts.Progress}
	made := filepath.Join(work, "made")
	if err := os.Mkdir(made, 0o755); err != nil {
		return err
	}
	info, err := b.download(ctx, module{path: ciliumModule, version: CiliumVersion}, work)
	if err != nil {
		return err
	}
	if err := os.CopyFS(filepath.Join(made, "chart"), os.DirFS(filepath.Join(info.Dir, "install/kubernetes/cilium"))); err != nil {
		return err
	}
	path, err := layout.Write(filepath.Join(made, "images"), empty.Index)
	if err != nil {
		return err
	}
	root := filepath.Join(work, "root")
	if err := errors.Join(b.ciliumRoot(ctx, root, own, info.Dir), b.addTree(ctx, path, CiliumImage, root, "/usr/bin/cilium-dbg")); err != nil {
		return err
	}
	root = filepath.Join(work, "operator")
	if err := errors.Join(operatorRoot(root, own), b.addTree(ctx, path, CiliumOperatorImage, root, "/usr/bin/"+ciliumOperator)); err != nil {
		return err
	}
	return file.Rename(made, to)
}

// operatorRoot makes the directory tree of the operator's image.
func operatorRoot(root, programs string) error {
	bin := filepath.Join(root, "usr/bin")
	for _, dir := range []string{bin, filepath.Join(root, "etc"), filepath.Join(root, "tmp")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return errors.Join(
		os.WriteFile(filepath.Join(root, "etc/passwd"), []byte(passwd), 0o644),
		os.WriteFile(filepath.Join(root, "etc/group"), []byte(group), 0o644),
		copyFile(filepath.Join(bin, ciliumOperator), filepath.Join(programs, ciliumOperator), 0o755))
}

// addTree adds to a layout the image whose only layer is a directory tree.
func (b *builder) addTree(ctx context.Context, to layout.Path, ref, root string, command ...string) error {
	archive := root + ".tar"
	stop := b.progress.Quiet("writing the image " + ref)
	defer stop()
	if err := run(b.command(ctx, b.work, "tar", "--create", "--file", archive, "--directory", root, "--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner", "."), nil); err != nil {
		return err
	}
	layer, err := tarball.LayerFromFile(archive, tarball.WithCompressionLevel(1), tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return err
	}
	img, err := imageOf(layer, "k8s-lab: "+ref, v1.Config{Cmd: command, WorkingDir: "/", Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}})
	if err != nil {
		return err
	}
	return appendImage(to, ref, img)
}
