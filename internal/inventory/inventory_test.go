package inventory

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
)

var sum = strings.Repeat("a", 64)

// mirror serves a checksum for everything but what it lacks.
func mirror(t *testing.T, lacks string) *artifact.Catalog {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if lacks != "" && strings.Contains(r.URL.Path, lacks) {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(sum + "  etcd-v3.6.16-linux-amd64.tar.gz\n" + sum + "  runc.amd64\n" + sum))
	}))
	t.Cleanup(server.Close)
	c, err := artifact.NewCatalog(server.URL, nil, server.Client())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func written(t *testing.T, l List) string {
	t.Helper()
	var b strings.Builder
	if err := l.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestCollect(t *testing.T) {
	images := Images{Sandbox: "example.com/pause:1", CoreDNS: "example.com/coredns:2"}
	v := Versions{Kubernetes: []string{"1.36.4", "1.37.1"}, Containerd: []string{"2.2.0", "2.3.7"}, Runc: "1.5.2", CNIPlugins: "1.9.1"}
	l, err := Collect(t.Context(), mirror(t, ""), v, images, func(_ context.Context, image string) (string, error) { return "sha256:" + image[12:], nil })
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	want.WriteString("# Files: below <mirror>/, each from https://<path>.\n")
	for _, release := range []string{"1.36.4", "1.37.1"} {
		for _, program := range []string{"kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubelet"} {
			want.WriteString(sum + "  dl.k8s.io/release/v" + release + "/bin/linux/amd64/" + program + "\n")
		}
	}
	for _, path := range []string{
		"containerd/containerd/releases/download/v2.2.0/containerd-2.2.0-linux-amd64.tar.gz",
		"containerd/containerd/releases/download/v2.3.7/containerd-2.3.7-linux-amd64.tar.gz",
		"containernetworking/plugins/releases/download/v1.9.1/cni-plugins-linux-amd64-v1.9.1.tgz",
		"etcd-io/etcd/releases/download/v3.6.16/etcd-v3.6.16-linux-amd64.tar.gz",
		"opencontainers/runc/releases/download/v1.5.2/runc.amd64",
	} {
		want.WriteString(sum + "  github.com/" + path + "\n")
	}
	want.WriteString("# Images: in a registry that registries names, or loaded on every worker.\n" +
		"# image example.com/pause:1 sha256:pause:1\n# image example.com/coredns:2 sha256:coredns:2\n")
	if diff := cmp.Diff(want.String(), written(t, l)); diff != "" {
		t.Error(diff)
	}
	if _, err := artifact.NewCatalog("https://mirror.example.com", strings.NewReader(written(t, l)), nil); err != nil {
		t.Errorf("the provider cannot read it: %v", err)
	}
}

// Each architecture has files of its own.
func TestCollectArchitectures(t *testing.T) {
	v := Versions{Kubernetes: []string{"1.36.4"}, Architectures: []string{artifact.AMD64, artifact.ARM64}}
	l, _ := Collect(t.Context(), mirror(t, ""), v, Images{}, nil)
	count := map[string]int{}
	for _, f := range l.Files {
		count[f.Arch]++
		if !strings.Contains(f.Path, f.Arch) {
			t.Errorf("%s is of %s", f.Path, f.Arch)
		}
	}
	if count[artifact.AMD64] != 9 || count[artifact.ARM64] != 9 {
		t.Errorf("files: %v", count)
	}
}

// A checksum that is not found is named, and the rest is still listed.
func TestCollectWithGaps(t *testing.T) {
	v := Versions{Kubernetes: []string{"1.36.4"}, Containerd: []string{"2.3.7"}}
	l, err := Collect(t.Context(), mirror(t, "containerd-2.3.7"), v, Images{Sandbox: "example.com/pause:1"}, func(context.Context, string) (string, error) {
		return "", errors.New("no such host")
	})
	if err == nil || !strings.Contains(err.Error(), "checksum of containerd 2.3.7") || !strings.Contains(err.Error(), "image example.com/pause:1: no such host") {
		t.Errorf("error is %v", err)
	}
	text := written(t, l)
	for _, want := range []string{
		"# sum not known: github.com/containerd/containerd/releases/download/v2.3.7/containerd-2.3.7-linux-amd64.tar.gz\n",
		sum + "  dl.k8s.io/release/v1.36.4/bin/linux/amd64/kubelet\n", "# image example.com/pause:1 digest not known\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if _, err := Collect(t.Context(), mirror(t, ""), Versions{Kubernetes: []string{"latest"}}, Images{}, nil); err == nil || errors.Is(err, artifact.ErrUnknownChecksum) {
		t.Errorf("a version that is none: %v", err)
	}
}

func TestDigest(t *testing.T) {
	server := httptest.NewServer(registry.New())
	defer server.Close()
	image, err := random.Image(64, 1)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.TrimPrefix(server.URL, "http://") + "/pause:1"
	ref, err := name.ParseReference(at)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, image); err != nil {
		t.Fatal(err)
	}
	want, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Digest(t.Context(), at); err != nil || got != want.String() {
		t.Errorf("got %s, %v, wanted %s", got, err, want)
	}
	if _, err := Digest(t.Context(), at+"23"); err == nil {
		t.Error("an image that is not there has a digest")
	}
}

func TestCommand(t *testing.T) {
	known := filepath.Join(t.TempDir(), "SHA256SUMS")
	var lines strings.Builder
	for _, path := range []string{
		"dl.k8s.io/release/v1.36.4/bin/linux/amd64/kube-apiserver", "dl.k8s.io/release/v1.36.4/bin/linux/amd64/kube-controller-manager",
		"dl.k8s.io/release/v1.36.4/bin/linux/amd64/kube-scheduler", "dl.k8s.io/release/v1.36.4/bin/linux/amd64/kubelet", "dl.k8s.io/release/v1.36.4/bin/linux/amd64/kube-proxy",
		"github.com/etcd-io/etcd/releases/download/v3.6.16/etcd-v3.6.16-linux-amd64.tar.gz", "github.com/opencontainers/runc/releases/download/v1.5.2/runc.amd64",
		"github.com/containerd/containerd/releases/download/v2.3.7/containerd-2.3.7-linux-amd64.tar.gz",
	} {
		lines.WriteString(sum + "  " + path + "\n")
	}
	if err := os.WriteFile(known, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name      string
		args      []string
		out, fail string
	}{
		{"help", []string{"-help"}, "", ""},
		{"no release", nil, "", "needs -kubernetes"},
		{"not a release", []string{"-kubernetes", "latest"}, "", `"latest" is not a release version`},
		{"not a supported release", []string{"-kubernetes", "1.38.0"}, "", "version 1.38.0 is not supported"},
		{"no such file", []string{"-kubernetes", "1.36.4", "-checksums", "/nowhere"}, "", "/nowhere"},
		{"a sum that nobody can vouch for", []string{"-kubernetes", "v1.36.4", "-checksums", known, "-mirror", "http://127.0.0.1:1", "-containerd", "2.3.7", "-runc", "1.5.2",
			"-sandbox-image", "", "-coredns-image", "", "-metrics-server-image", ""}, lines.String(), "cni-plugins 1.9.1: checksum is not known"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out, help strings.Builder
			err := Command(t.Context(), tt.args, &out, &help)
			if (err == nil) != (tt.fail == "") || err != nil && !strings.Contains(err.Error(), tt.fail) {
				t.Errorf("error is %v, wanted %q", err, tt.fail)
			}
			for line := range strings.Lines(tt.out) {
				if !strings.Contains(out.String(), line) {
					t.Errorf("it does not print %sbut\n%s", line, out.String())
				}
			}
		})
	}
}
