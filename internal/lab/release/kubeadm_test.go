package release

import (
	"archive/tar"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func TestKubernetesProgram(t *testing.T) {
	p, all := kubernetesProgram(KubernetesVersion, "kubeadm"), kubernetesProduct(KubernetesVersion)
	if want := "dl.k8s.io/release/" + KubernetesVersion + "/bin/linux/amd64/kubeadm"; !slices.Equal(p.files(), []string{want}) {
		t.Errorf("files %v, want %s", p.files(), want)
	}
	if got := p.modules[0].programs; len(got) != 1 || got[0].pkg != "k8s.io/kubernetes/cmd/kubeadm" {
		t.Errorf("programs %v", got)
	}
	if slices.Contains(all.programs(), "kubeadm") || len(all.programs()) != 6 {
		t.Errorf("the mirror's programs changed: %v", all.programs())
	}
}

// TestKubeadmImages builds the archive from files that stand in for the programs.
func TestKubeadmImages(t *testing.T) {
	mirror, own, catalogue := t.TempDir(), t.TempDir(), t.TempDir()
	put := func(dir string, names ...string) {
		t.Helper()
		for _, name := range names {
			must(t, writeFile(filepath.Join(dir, name), []byte("program "+name)))
		}
	}
	put(filepath.Join(mirror, kubernetesProduct(KubernetesVersion).base), kubernetesProduct(KubernetesVersion).programs()...)
	put(filepath.Join(own, nftProduct().base), nftProduct().programs()...)
	etcd, programs := etcdProduct(EtcdVersion), t.TempDir()
	put(programs, etcd.programs()...)
	archive := filepath.Join(mirror, etcd.files()[0])
	must(t, os.MkdirAll(filepath.Dir(archive), 0o755))
	must(t, writeArchive(archive, programs, etcd.inside, etcd.programs(), time.Now()))
	index, err := layout.Write(catalogue, empty.Index)
	must(t, err)
	for _, ref := range []string{PauseImage, CoreDNSImage, MetricsServerImage} {
		must(t, appendImage(index, ref, empty.Image))
	}
	old := filepath.Join(own, "images-of-another-recipe.tar")
	must(t, writeFile(old, nil))

	to := filepath.Join(own, "images-new.tar")
	must(t, writeKubeadmImages(context.Background(), to, mirror, own, catalogue))
	for _, want := range []string{
		"registry.k8s.io/kube-apiserver:" + KubernetesVersion, "registry.k8s.io/kube-controller-manager:" + KubernetesVersion,
		"registry.k8s.io/kube-scheduler:" + KubernetesVersion, "registry.k8s.io/kube-proxy:" + KubernetesVersion,
		"registry.k8s.io/etcd:3.6.16-0", PauseImage, CoreDNSImage,
	} {
		tag, err := name.NewTag(want)
		must(t, err)
		if _, err := tarball.ImageFromPath(to, &tag); err != nil {
			t.Errorf("%s: %v", want, err)
		}
	}
	left, err := os.ReadDir(own)
	must(t, err)
	for _, e := range left {
		if e.Name() != filepath.Base(to) && e.Name() != "nft" {
			t.Errorf("left: %s", e.Name())
		}
	}

	proxy, err := name.NewTag("registry.k8s.io/kube-proxy:" + KubernetesVersion)
	must(t, err)
	img, err := tarball.ImageFromPath(to, &proxy)
	must(t, err)
	layers, err := img.Layers()
	must(t, err)
	files := layerFiles(t, layers[0])
	for _, want := range []string{"usr/local/bin/kube-proxy", "usr/sbin/nft", "lib/x86_64-linux-gnu/libnftables.so.1", "lib64/ld-linux-x86-64.so.2"} {
		if files[want] != "program "+filepath.Base(want) {
			t.Errorf("%s is %q", want, files[want])
		}
	}
}

func TestFindMember(t *testing.T) {
	root := t.TempDir()
	for _, file := range []string{"lib/old.so", "usr/lib/new.so"} {
		must(t, writeFile(filepath.Join(root, file), nil))
	}
	for _, member := range []string{"lib/old.so", "lib/new.so", "usr/lib/new.so"} {
		if _, err := findMember(root, member); err != nil {
			t.Errorf("%s: %v", member, err)
		}
	}
	if _, err := findMember(root, "lib/other.so"); err == nil {
		t.Error("lib/other.so is found")
	}
}

// layerFiles returns the files of a layer and their content.
func layerFiles(t *testing.T, layer v1.Layer) map[string]string {
	t.Helper()
	r, err := layer.Uncompressed()
	must(t, err)
	defer r.Close()
	files := map[string]string{}
	readTar(t, r, func(h *tar.Header, r io.Reader) {
		content, err := io.ReadAll(r)
		must(t, err)
		files[h.Name] = string(content)
	})
	return files
}
