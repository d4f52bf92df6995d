package artifact

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

const (
	sumA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	sumB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

func catalog(t *testing.T, mirror, sums string, client HTTPDoer) *Catalog {
	t.Helper()
	c, err := NewCatalog(mirror, strings.NewReader(sums), client)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestURLs(t *testing.T) {
	upstream := catalog(t, "", "", nil)
	mirror := catalog(t, "http://10.0.0.1:8080/artifacts/", "", nil)
	for _, tt := range []struct {
		get  func(*Catalog) (Artifact, error)
		path string
	}{
		{func(c *Catalog) (Artifact, error) { return c.Kubernetes("v1.36.4", Kubelet) }, "dl.k8s.io/release/v1.36.4/bin/linux/amd64/kubelet"},
		{func(c *Catalog) (Artifact, error) { return c.ForArch("arm64").Kubernetes("1.35.8", KubeProxy) }, "dl.k8s.io/release/v1.35.8/bin/linux/arm64/kube-proxy"},
		{func(c *Catalog) (Artifact, error) { return c.Etcd("3.6.16") }, "github.com/etcd-io/etcd/releases/download/v3.6.16/etcd-v3.6.16-linux-amd64.tar.gz"},
		{func(c *Catalog) (Artifact, error) { return c.Containerd("2.3.7") }, "github.com/containerd/containerd/releases/download/v2.3.7/containerd-2.3.7-linux-amd64.tar.gz"},
		{func(c *Catalog) (Artifact, error) { return c.Runc("1.5.2") }, "github.com/opencontainers/runc/releases/download/v1.5.2/runc.amd64"},
		{func(c *Catalog) (Artifact, error) { return c.CNIPlugins("1.9.1") }, "github.com/containernetworking/plugins/releases/download/v1.9.1/cni-plugins-linux-amd64-v1.9.1.tgz"},
	} {
		for _, at := range []struct {
			c      *Catalog
			prefix string
		}{{upstream, "https://"}, {mirror, "http://10.0.0.1:8080/artifacts/"}} {
			a, err := tt.get(at.c)
			if !errors.Is(err, ErrUnknownChecksum) {
				t.Errorf("%s: error is %v", tt.path, err)
			}
			if a.Path != tt.path || a.URL != at.prefix+tt.path {
				t.Errorf("got %s at %s, wanted %s", a.Path, a.URL, tt.path)
			}
		}
	}
}

// TestOffered checks that a program on a machine may have no download.
func TestOffered(t *testing.T) {
	rebuilt := "github.com/opencontainers/runc/releases/download/v1.1.5/runc.amd64"
	for _, tt := range []struct{ sums, name, release, want string }{
		{"", Containerd, "2.2.0", "2.2.0"},
		{"", CNIPlugins, "1.9.1", "1.9.1"},
		{"", Runc, "1.1.5+ds1", ""},
		{sumA + "  " + rebuilt, Runc, "1.1.5+ds1", "1.1.5"},
		{"", Runc, "", ""},
		{"", Containerd, "2.2", ""},
		{"", Etcd, "3.6.16", ""},
	} {
		if got := catalog(t, "", tt.sums, nil).Offered(tt.name, tt.release); got != tt.want {
			t.Errorf("%s %s: got %q, wanted %q", tt.name, tt.release, got, tt.want)
		}
	}
}

func TestGivenChecksums(t *testing.T) {
	c := catalog(t, "", "# the lab's own builds\n"+
		sumA+"  dl.k8s.io/release/v1.36.4/bin/linux/amd64/kubelet\n"+
		strings.ToUpper(sumB)+" *./github.com/opencontainers/runc/releases/download/v1.1.15/runc.amd64\n"+
		sumB+"  github.com/opencontainers/runc/releases/download/v1.3.6/runc.amd64\n"+
		sumB+"  github.com/opencontainers/runc/releases/download/v1.5.2/runc.arm64\n", nil)
	a, err := c.Kubernetes("1.36.4", Kubelet)
	if err != nil || a.SHA256 != sumA {
		t.Errorf("kubelet: %+v, %v", a, err)
	}
	if got := c.RuncVersion(); got != "1.3.6" {
		t.Errorf("runc is %s", got)
	}
	set, err := c.WorkerSet("1.36.4", "", "", "", true)
	if !errors.Is(err, ErrUnknownChecksum) {
		t.Errorf("error is %v", err)
	}
	var got []string
	for _, a := range set {
		got = append(got, fmt.Sprintf("%s %s %t", a.Name, a.Version, a.SHA256 != ""))
	}
	want := []string{"kubelet 1.36.4 true", "kube-proxy 1.36.4 false", "containerd 2.3.7 false", "runc 1.3.6 true", "cni-plugins 1.9.1 false"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if without, _ := c.WorkerSet("1.36.4", "", "", "", false); len(without) != len(set)-1 || slices.ContainsFunc(without, func(a Artifact) bool { return a.Name == KubeProxy }) {
		t.Errorf("without kube-proxy: %v", without)
	}
}

func TestRefusals(t *testing.T) {
	for _, mirror := range []string{"ftp://x", "mirror.example", "/srv/mirror", "http://", "http://x?y=z"} {
		if _, err := NewCatalog(mirror, nil, nil); err == nil {
			t.Errorf("mirror %q was accepted", mirror)
		}
	}
	for _, sums := range []string{"short  file", sumA, sumA + "  f\n" + sumB + "  f"} {
		if _, err := NewCatalog("", strings.NewReader(sums), nil); err == nil {
			t.Errorf("checksums %q were accepted", sums)
		}
	}
	c := catalog(t, "", "", nil)
	if _, err := c.Kubernetes("1.36", Kubelet); err == nil || errors.Is(err, ErrUnknownChecksum) {
		t.Errorf("malformed version: %v", err)
	}
	if _, err := c.Kubernetes("1.36.4", "kubeadm"); err == nil || errors.Is(err, ErrUnknownChecksum) {
		t.Errorf("unknown program: %v", err)
	}
	if set, err := c.WorkerSet("1.36.4", "x", "", "", true); err == nil || set != nil {
		t.Errorf("malformed containerd version: %v, %v", set, err)
	}
}

// published is a mirror that holds checksum files and counts requests for them.
type published struct {
	mu    sync.Mutex
	files map[string]string
	fail  map[string]int // path -> how many times to answer 503 first
	asked map[string]int
}

func (p *published) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[r.URL.Path]++
	body, ok := p.files[r.URL.Path]
	switch {
	case p.fail[r.URL.Path] > 0:
		p.fail[r.URL.Path]--
		http.Error(w, "busy", http.StatusServiceUnavailable)
	case !ok:
		http.NotFound(w, r)
	default:
		_, _ = w.Write([]byte(body))
	}
}

func TestResolve(t *testing.T) {
	kubelet := "/dl.k8s.io/release/v1.36.4/bin/linux/amd64/kubelet.sha256"
	p := &published{asked: map[string]int{}, fail: map[string]int{kubelet: 2}, files: map[string]string{
		kubelet: sumA,
		"/github.com/etcd-io/etcd/releases/download/v3.6.16/SHA256SUMS":                                              sumB + "  etcd-v3.6.16-darwin-amd64.zip\n" + sumA + "  etcd-v3.6.16-linux-amd64.tar.gz\n",
		"/github.com/containerd/containerd/releases/download/v2.3.7/containerd-2.3.7-linux-amd64.tar.gz.sha256sum":   sumA + "  containerd-2.3.7-linux-amd64.tar.gz\n",
		"/github.com/opencontainers/runc/releases/download/v1.5.2/runc.sha256sum":                                    sumB + "  runc.arm64\n" + sumA + " *runc.amd64\n",
		"/github.com/containernetworking/plugins/releases/download/v1.9.1/cni-plugins-linux-amd64-v1.9.1.tgz.sha256": sumA + "  cni-plugins-linux-amd64-v1.9.1.tgz\n",
	}}
	server := httptest.NewTLSServer(p)
	defer server.Close()
	c := catalog(t, server.URL, sumB+"  dl.k8s.io/release/v1.36.4/bin/linux/amd64/kube-proxy", server.Client())

	set, err := c.WorkerSet("1.36.4", "", "", "", true)
	if !errors.Is(err, ErrUnknownChecksum) {
		t.Fatal(err)
	}
	etcd, err := c.EtcdSet(DefaultEtcd)
	if !errors.Is(err, ErrUnknownChecksum) {
		t.Fatal(err)
	}
	set = append(set, etcd[0], etcd[0])
	if err := c.Resolve(context.Background(), set); err != nil {
		t.Fatal(err)
	}
	for _, a := range set {
		want := sumA
		if a.Name == KubeProxy {
			want = sumB // given, so not asked for
		}
		if a.SHA256 != want {
			t.Errorf("%s has %s", a.Name, a.SHA256)
		}
	}
	for path, n := range p.asked {
		if want := map[string]int{kubelet: 3}[path]; n != max(want, 1) {
			t.Errorf("%s was asked for %d times", path, n)
		}
	}
	if n := p.asked["/dl.k8s.io/release/v1.36.4/bin/linux/amd64/kube-proxy.sha256"]; n != 0 {
		t.Errorf("a given checksum was asked for %d times", n)
	}
}

func TestResolveFails(t *testing.T) {
	p := &published{asked: map[string]int{}, files: map[string]string{
		"/dl.k8s.io/release/v1.36.4/bin/linux/amd64/kubelet.sha256":    "<html>sign in</html>",
		"/dl.k8s.io/release/v1.36.4/bin/linux/amd64/kube-proxy.sha256": sumA + "  kube-scheduler",
	}}
	server := httptest.NewTLSServer(p)
	defer server.Close()
	c := catalog(t, server.URL, "", server.Client())
	for program, want := range map[string]string{
		Kubelet: "does not list kubelet", KubeProxy: "does not list kube-proxy", Kubectl: "404",
	} {
		a, _ := c.Kubernetes("1.36.4", program)
		list := []Artifact{a}
		err := c.Resolve(context.Background(), list)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), program+" 1.36.4") {
			t.Errorf("%s: error is %v, wanted %q", program, err, want)
		}
		if list[0].SHA256 != "" {
			t.Errorf("%s has %s", program, list[0].SHA256)
		}
	}
	if n := p.asked["/dl.k8s.io/release/v1.36.4/bin/linux/amd64/kubectl.sha256"]; n != 1 {
		t.Errorf("a missing file was asked for %d times", n)
	}
}

func TestResolveStopsWithItsContext(t *testing.T) {
	p := &published{asked: map[string]int{}, fail: map[string]int{"/dl.k8s.io/release/v1.36.4/bin/linux/amd64/kubelet.sha256": 1000}}
	server := httptest.NewTLSServer(p)
	defer server.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c := catalog(t, server.URL, "", server.Client())
	a, _ := c.Kubernetes("1.36.4", Kubelet)
	if err := c.Resolve(ctx, []Artifact{a}); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
}

func TestResolveOverHTTP(t *testing.T) {
	p := &published{asked: map[string]int{}, files: map[string]string{"/dl.k8s.io/release/v1.36.4/bin/linux/amd64/kubelet.sha256": sumA}}
	server := httptest.NewServer(p)
	defer server.Close()
	c := catalog(t, server.URL, "", server.Client())
	a, _ := c.Kubernetes("1.36.4", Kubelet)
	err := c.Resolve(context.Background(), []Artifact{a})
	if !errors.Is(err, ErrUnknownChecksum) || !strings.Contains(err.Error(), "add dl.k8s.io/release/v1.36.4/bin/linux/amd64/kubelet to the checksums") {
		t.Errorf("error is %v", err)
	}
	if len(p.asked) > 0 {
		t.Errorf("it asked for %v", p.asked)
	}
}

// A pinned checksum is used if none is given for the file.
func TestPinned(t *testing.T) {
	c := catalog(t, "", sumB+"  dl.k8s.io/release/v1.36.4/bin/linux/amd64/kubelet", nil)
	c.pinned = map[string]string{"dl.k8s.io/release/v1.36.4/bin/linux/amd64/kubelet": sumA, "dl.k8s.io/release/v1.36.4/bin/linux/amd64/kube-proxy": sumA}
	for program, want := range map[string]string{Kubelet: sumB, KubeProxy: sumA} {
		if a, err := c.Kubernetes("1.36.4", program); err != nil || a.SHA256 != want {
			t.Errorf("%s: %s, %v", program, a.SHA256, err)
		}
	}
	if c, err := NewUnpinned(nil); err != nil || len(c.pinned) > 0 {
		t.Errorf("%v, %v", c, err)
	}
}

func TestResolveRedirectedToHTTP(t *testing.T) {
	plain := httptest.NewServer(&published{asked: map[string]int{}, files: map[string]string{"/dl.k8s.io/release/v1.36.4/bin/linux/amd64/kubelet.sha256": sumA}})
	defer plain.Close()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, plain.URL+r.URL.Path, http.StatusFound)
	}))
	defer server.Close()
	c := catalog(t, server.URL, "", server.Client())
	a, _ := c.Kubernetes("1.36.4", Kubelet)
	list := []Artifact{a}
	if err := c.Resolve(context.Background(), list); err == nil || !strings.Contains(err.Error(), "which is not encrypted") || list[0].SHA256 != "" {
		t.Errorf("%q, error is %v", list[0].SHA256, err)
	}
}

// TestPinnedReleases checks that if sums are pinned, they include every file of the newest
// releases.
func TestPinnedReleases(t *testing.T) {
	c, err := NewCatalog("", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.pinned) == 0 {
		t.Skip("no sums are pinned: make checksums")
	}
	want := func(_ []Artifact, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%v: make checksums", err)
		}
	}
	want(c.EtcdSet(DefaultEtcd))
	want(c.EtcdSet(NextEtcd))
	for _, r := range version.Releases() {
		want(c.ControlPlaneSet(r.Newest))
		want(c.WorkerSet(r.Newest, "", "", "", true))
	}
}
