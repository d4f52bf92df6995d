package release

import (
	"archive/tar"
	"debug/elf"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cache"
)

func defaultVersions(t *testing.T) Versions {
	t.Helper()
	v, err := Versions{}.withDefaults()
	must(t, err)
	return v
}

// builtMirror returns the mirror in the user's cache. It skips the test if the mirror is not built,
// since that takes minutes.
func builtMirror(t *testing.T) string {
	t.Helper()
	s := newStore(Options{CacheDir: cache.DefaultDir()}, "mirror")
	must(t, s.load())
	if len(s.missing(mirrorProducts(defaultVersions(t)))) > 0 {
		t.Skip("the mirror is not built yet: run `k8s-lab artifacts`")
	}
	dir, err := EnsureMirror(t.Context(), Options{})
	must(t, err)
	return dir
}

func TestMirrorHoldsWhatItSays(t *testing.T) {
	dir := builtMirror(t)
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS")
	check.Dir = dir
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v\n%s", err, out)
	}
	sums := read(t, dir, "SHA256SUMS")
	for _, p := range mirrorProducts(defaultVersions(t)) {
		for _, file := range p.files() {
			if !strings.Contains(sums, "  "+file+"\n") {
				t.Errorf("SHA256SUMS lacks %s", file)
			}
			for _, published := range []string{p.sumsFile(file), file + ".sha256"} {
				sum, err := findChecksum(strings.NewReader(read(t, dir, published)), filepath.Base(file))
				if err != nil || !strings.Contains(sums, sum+"  "+file+"\n") {
					t.Errorf("%s says %q, %v", published, sum, err)
				}
			}
		}
	}
}

func TestMirrorProgramsAreTheirVersion(t *testing.T) {
	dir := builtMirror(t)
	releases := filepath.Join(dir, "github.com")
	kubernetes := filepath.Join(dir, "dl.k8s.io/release", KubernetesVersion, "bin/linux/amd64")
	etcd := unpack(t, filepath.Join(releases, "etcd-io/etcd/releases/download", EtcdVersion, "etcd-"+EtcdVersion+"-linux-amd64.tar.gz"),
		"etcd-"+EtcdVersion+"-linux-amd64")
	containerd := unpack(t, filepath.Join(releases, "containerd/containerd/releases/download", ContainerdVersion,
		"containerd-"+ContainerdVersion[1:]+"-linux-amd64.tar.gz"), "bin")
	runc := filepath.Join(releases, "opencontainers/runc/releases/download", RuncVersion)

	for _, tc := range []struct{ dir, program, args, want string }{
		{kubernetes, "kube-apiserver", "--version", "Kubernetes " + KubernetesVersion + "\n"},
		{kubernetes, "kube-controller-manager", "--version", "Kubernetes " + KubernetesVersion + "\n"},
		{kubernetes, "kube-scheduler", "--version", "Kubernetes " + KubernetesVersion + "\n"},
		{kubernetes, "kubelet", "--version", "Kubernetes " + KubernetesVersion + "\n"},
		{kubernetes, "kube-proxy", "--version", "Kubernetes " + KubernetesVersion + "\n"},
		{kubernetes, "kubectl", "version --client", "Client Version: " + KubernetesVersion + "\n"},
		{etcd, "etcd", "--version", "etcd Version: " + EtcdVersion[1:] + "\n"},
		{etcd, "etcdctl", "version", "etcdctl version: " + EtcdVersion[1:] + "\n"},
		{etcd, "etcdutl", "version", "etcdutl version: " + EtcdVersion[1:] + "\n"},
		{containerd, "containerd", "--version", " " + ContainerdVersion + " "},
		{containerd, "containerd-shim-runc-v2", "-v", "Version:  " + ContainerdVersion + "\n"},
		{containerd, "ctr", "--version", " " + ContainerdVersion + "\n"},
		{runc, "runc.amd64", "--version", "runc version " + RuncVersion[1:] + "\n"},
		{runc, "runc.amd64", "--version", "libseccomp: "},
	} {
		program := filepath.Join(tc.dir, tc.program)
		out, err := exec.CommandContext(t.Context(), program, strings.Fields(tc.args)...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), tc.want) {
			t.Errorf("%s %s prints %q, %v; want %q", tc.program, tc.args, out, err, tc.want)
		}
		if !static(t, program) {
			t.Errorf("%s is not statically linked", tc.program)
		}
	}
}

func TestMirrorHasCNIPlugins(t *testing.T) {
	dir := builtMirror(t)
	plugins := unpack(t, filepath.Join(dir, cniProduct().files()[0]), ".")
	for _, name := range cniProduct().programs() {
		cmd := exec.CommandContext(t.Context(), filepath.Join(plugins, name))
		cmd.Env = []string{"CNI_COMMAND=VERSION"}
		cmd.Stdin = strings.NewReader(`{"cniVersion":"1.0.0"}`)
		if out, err := cmd.Output(); err != nil || !strings.Contains(string(out), `"supportedVersions":`) {
			t.Errorf("plugin %s answers VERSION with %q, %v", name, out, err)
		}
		if out, _ := exec.CommandContext(t.Context(), filepath.Join(plugins, name)).CombinedOutput(); !strings.Contains(string(out), CNIVersion) {
			t.Errorf("plugin %s calls itself %q", name, out)
		}
	}
}

func TestImagesRunTheirVersion(t *testing.T) {
	dir := filepath.Join(cache.DefaultDir(), "container-images", imagesRecipe(catalogueImages()))
	if !complete(dir) {
		t.Skip("the images are not built yet: run `k8s-lab artifacts`")
	}
	host := serve(t, dir)
	for _, tc := range []struct {
		image, program string
		args           []string
		want           string
	}{
		{PauseImage, "pause", []string{"-v"}, PauseVersion},
		{CoreDNSImage, "coredns", []string{"-version"}, "CoreDNS-" + CoreDNSVersion[1:] + "\n"},
		{OlderCoreDNSImage, "coredns", []string{"-version"}, "CoreDNS-" + OlderCoreDNSVersion[1:] + "\n"},
		{MetricsServerImage, "metrics-server", []string{"--version"}, MetricsServerVersion},
		{CloudControllersImage, "bin/aws-cloud-controller-manager", []string{"--version"}, CloudControllersVersion},
		{LocalPathImage, "bin/local-path-provisioner", []string{"--version"}, LocalPathVersion},
		{AgnhostImage, "agnhost", []string{"--version"}, AgnhostVersion},
	} {
		img := pull(t, host+"/"+strings.TrimPrefix(strings.TrimPrefix(tc.image, "registry.k8s.io/"), "docker.io/"))
		root, _ := extract(t, img)
		program := filepath.Join(root, tc.program)
		out, _ := exec.CommandContext(t.Context(), program, tc.args...).CombinedOutput()
		if !strings.Contains(string(out), tc.want) {
			t.Errorf("%s prints %q, want %q", tc.image, out, tc.want)
		}
		if !static(t, program) {
			t.Errorf("%s is not statically linked", tc.image)
		}
	}
}

func TestToolboxWorks(t *testing.T) {
	dir := filepath.Join(cache.DefaultDir(), "container-images", imagesRecipe(catalogueImages()))
	if !complete(dir) {
		t.Skip("the images are not built yet: run `k8s-lab artifacts`")
	}
	if os.Getuid() != 0 {
		t.Skip("chroot needs root")
	}
	root, headers := extract(t, pull(t, serve(t, dir)+"/"+ToolboxImage))
	for _, applet := range []string{"sh", "nslookup", "wget", "nc", "httpd", "sleep", "ping", "hostname"} {
		if headers["bin/"+applet] == nil {
			t.Errorf("%s lacks %s", ToolboxImage, applet)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	defer server.Close()
	// wget must resolve a name: a program linked statically with glibc crashes there.
	must(t, os.WriteFile(filepath.Join(root, "etc/hosts"), []byte("127.0.0.1 here\n"), 0o644))
	_, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "http://"), ":")
	cmd := exec.CommandContext(t.Context(), "/bin/wget", "-q", "-O", "-", "http://here:"+port+"/")
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	cmd.Dir = "/"
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "hello" {
		t.Errorf("wget in the toolbox prints %q, %v", out, err)
	}
}

func TestToolsAreTheirVersion(t *testing.T) {
	s := newStore(Options{CacheDir: cache.DefaultDir()}, "tools")
	must(t, s.load())
	if len(s.missing(toolProducts())) > 0 {
		t.Skip("the tools are not built yet: run `k8s-lab artifacts --tool tofu`")
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(s.dir(), "tofu"), "version")
	cmd.Env = []string{"HOME=" + t.TempDir(), "CHECKPOINT_DISABLE=1"} // not the user's configuration
	out, err := cmd.Output()
	if err != nil || !strings.HasPrefix(string(out), "OpenTofu "+OpenTofuVersion+"\n") {
		t.Errorf("tofu prints %q, %v", out, err)
	}
}

// static says whether a program is linked statically, without an interpreter.
func static(t *testing.T, program string) bool {
	t.Helper()
	f, err := elf.Open(program)
	must(t, err)
	defer f.Close()
	return !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// unpack extracts an archive and returns its directory inside.
func unpack(t *testing.T, file, inside string) string {
	t.Helper()
	root := t.TempDir()
	readArchive(t, file, func(h *tar.Header, content io.Reader) {
		to := filepath.Join(root, h.Name)
		if h.Typeflag == tar.TypeDir {
			must(t, os.MkdirAll(to, 0o755))
			return
		}
		out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
		must(t, err)
		_, err = io.Copy(out, content)
		must(t, err)
		must(t, out.Close())
	})
	return filepath.Join(root, inside)
}

func TestTraefikIsItsVersion(t *testing.T) {
	dir := Extras["traefik"].Locate(cache.DefaultDir())
	if !complete(dir) {
		t.Skip("its image is not built yet: run `k8s-lab up --with traefik`")
	}
	root, _ := extract(t, pull(t, serve(t, dir)+strings.TrimPrefix(TraefikImage, "docker.io")))
	out, err := exec.CommandContext(t.Context(), filepath.Join(root, "usr/local/bin/traefik"), "version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), " "+TraefikVersion[1:]+"\n") {
		t.Errorf("traefik prints %q, %v", out, err)
	}
}
