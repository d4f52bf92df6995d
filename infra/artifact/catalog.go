package artifact

import (
	"bufio"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// Catalog returns artifacts by names and versions. It is immutable.
type Catalog struct {
	mirror string // base URL without trailing slash, empty for upstream
	arch   string
	sums   map[string]string // layout path -> hex SHA-256, as given
	pinned map[string]string // the same, as in checksums.txt
	client HTTPDoer
}

var (
	digest   = regexp.MustCompile(`^[0-9a-f]{64}$`)
	runcPath = regexp.MustCompile(`^github\.com/opencontainers/runc/releases/download/v([0-9.]+)/runc\.([a-z0-9]+)$`)
)

//go:embed checksums.txt
var checksums string

// kubernetesPrograms are the programs of a release that this project installs.
var kubernetesPrograms = []string{KubeAPIServer, KubeControllerManager, KubeScheduler, Kubelet, KubeProxy, Kubectl}

// NewCatalog returns a catalog for AMD64. mirror is the base URL that replaces every upstream
// host, as <mirror>/<upstream host>/<path>; empty means upstream. given, which may be nil, holds
// checksums in the format of sha256sum(1) with paths in the mirror's layout; they override those in
// checksums.txt. Only Resolve uses the client.
func NewCatalog(mirror string, given io.Reader, client HTTPDoer) (*Catalog, error) {
	c := &Catalog{mirror: strings.TrimRight(mirror, "/"), arch: AMD64, client: client}
	err := CheckMirror(mirror)
	if err != nil {
		return nil, err
	}
	if c.pinned, err = parseChecksums(strings.NewReader(checksums)); err != nil {
		return nil, fmt.Errorf("checksums.txt: %w", err)
	}
	if given != nil {
		if c.sums, err = parseChecksums(given); err != nil {
			return nil, fmt.Errorf("artifact checksums: %w", err)
		}
		if len(c.sums) > 0 && !slices.ContainsFunc(slices.Collect(maps.Keys(c.sums)), inLayout) {
			return nil, fmt.Errorf("artifact checksums: none of the %d names begins with %s: want names such as dl.k8s.io/release/v1.36.4/bin/linux/amd64/kubelet", len(c.sums), strings.Join(hosts, " or "))
		}
	}
	return c, nil
}

// CheckMirror returns an error if mirror is not the base URL of a mirror. Empty means upstream.
func CheckMirror(mirror string) error {
	if mirror == "" {
		return nil
	}
	u, err := url.Parse(mirror)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("artifact mirror %q is not an http or https base URL", mirror)
	}
	return nil
}

// hosts are upstream's hosts.
var hosts = []string{"dl.k8s.io/", "github.com/"}

func inLayout(name string) bool {
	return slices.ContainsFunc(hosts, func(host string) bool { return strings.HasPrefix(name, host) })
}

// NewUnpinned returns a catalog of upstream without checksums, used to pin them.
func NewUnpinned(client HTTPDoer) (*Catalog, error) {
	c, err := NewCatalog("", nil, client)
	if err == nil {
		c.pinned = nil
	}
	return c, err
}

// ForArch returns the catalog for another architecture; empty means AMD64.
func (c *Catalog) ForArch(arch string) *Catalog {
	other := *c
	other.arch = cmp.Or(arch, AMD64)
	return &other
}

// ForArchs returns the downloads of a set for several architectures. The list of each is complete even if the
// error is ErrUnknownChecksum.
func (c *Catalog) ForArchs(archs []string, set func(*Catalog) ([]Artifact, error)) ([]Artifact, error) {
	var out []Artifact
	var errs []error
	for _, arch := range archs {
		some, err := set(c.ForArch(arch))
		if err != nil && !errors.Is(err, ErrUnknownChecksum) {
			return nil, err
		}
		out, errs = append(out, some...), append(errs, err)
	}
	return out, errors.Join(errs...)
}

// Kubernetes returns one program of a Kubernetes release.
func (c *Catalog) Kubernetes(v, program string) (Artifact, error) {
	if !slices.Contains(kubernetesPrograms, program) {
		return Artifact{}, fmt.Errorf("%q is not a program of a Kubernetes release", program)
	}
	file := func(v string) string {
		return fmt.Sprintf("dl.k8s.io/release/v%s/bin/linux/%s/%s", v, c.arch, program)
	}
	return c.artifact(program, v, file, func(file string) string { return file + ".sha256" })
}

// Etcd returns the etcd release archive.
func (c *Catalog) Etcd(v string) (Artifact, error) {
	file := func(v string) string {
		return fmt.Sprintf("github.com/etcd-io/etcd/releases/download/v%s/etcd-v%s-linux-%s.tar.gz", v, v, c.arch)
	}
	return c.artifact(Etcd, v, file, func(file string) string { return path.Join(path.Dir(file), "SHA256SUMS") })
}

// Containerd returns the containerd release archive.
func (c *Catalog) Containerd(v string) (Artifact, error) {
	file := func(v string) string {
		return fmt.Sprintf("github.com/containerd/containerd/releases/download/v%s/containerd-%s-linux-%s.tar.gz", v, v, c.arch)
	}
	return c.artifact(Containerd, v, file, func(file string) string { return file + ".sha256sum" })
}

// Runc returns the runc program.
func (c *Catalog) Runc(v string) (Artifact, error) {
	file := func(v string) string {
		return fmt.Sprintf("github.com/opencontainers/runc/releases/download/v%s/runc.%s", v, c.arch)
	}
	return c.artifact(Runc, v, file, func(file string) string { return path.Join(path.Dir(file), "runc.sha256sum") })
}

// CNIPlugins returns the release archive of the CNI reference plugins.
func (c *Catalog) CNIPlugins(v string) (Artifact, error) {
	file := func(v string) string {
		return fmt.Sprintf("github.com/containernetworking/plugins/releases/download/v%s/cni-plugins-linux-%s-v%s.tgz", v, c.arch, v)
	}
	return c.artifact(CNIPlugins, v, file, func(file string) string { return file + ".sha256" })
}

func (c *Catalog) artifact(name, v string, file, checksums func(string) string) (Artifact, error) {
	parsed, err := version.Parse(v)
	if err != nil {
		return Artifact{}, fmt.Errorf("%s: %w", name, err)
	}
	p := file(parsed.String())
	a := Artifact{
		Name: name, Arch: c.arch, Version: parsed.String(), Path: p, URL: c.url(p),
		SHA256: cmp.Or(c.sums[p], c.pinned[p]), Checksums: c.url(checksums(p)),
	}
	if a.SHA256 == "" {
		return a, fmt.Errorf("%s %s: %w", a.Name, a.Version, ErrUnknownChecksum)
	}
	return a, nil
}

func (c *Catalog) url(p string) string {
	if c.mirror == "" {
		return "https://" + p
	}
	return c.mirror + "/" + p
}

// RuncVersion returns the newest runc release in the given checksums, since a mirror may have only
// its distribution's release; DefaultRunc if they name none.
func (c *Catalog) RuncVersion() string {
	var newest version.Version
	for p := range c.sums {
		m := runcPath.FindStringSubmatch(p)
		if m == nil || m[2] != c.arch {
			continue
		}
		if v, err := version.Parse(m[1]); err == nil && v.Compare(newest) > 0 {
			newest = v
		}
	}
	return cmp.Or(newest.String(), DefaultRunc)
}

// Offered returns the release of containerd, runc or the CNI plugins that an installed program
// reports, if a download of it may exist, else "". The name of a download never contains a
// builder's suffix ("+ds1"); such a build is known only from checksums.
func (c *Catalog) Offered(name, release string) string {
	download, ok := map[string]func(string) (Artifact, error){Containerd: c.Containerd, Runc: c.Runc, CNIPlugins: c.CNIPlugins}[name]
	if !ok {
		return ""
	}
	release, _, rebuilt := strings.Cut(release, "+")
	_, err := download(release)
	if err == nil || !rebuilt && errors.Is(err, ErrUnknownChecksum) {
		return release
	}
	return ""
}

// EtcdSet returns the downloads of an etcd member. The list of every set is complete even if the
// error is ErrUnknownChecksum.
func (c *Catalog) EtcdSet(v string) ([]Artifact, error) {
	a, err := c.Etcd(v)
	return collect(call{a, err})
}

// ControlPlaneSet returns the downloads of a controller.
func (c *Catalog) ControlPlaneSet(kubernetes string) ([]Artifact, error) {
	var calls []call
	for _, program := range []string{KubeAPIServer, KubeControllerManager, KubeScheduler} {
		a, err := c.Kubernetes(kubernetes, program)
		calls = append(calls, call{a, err})
	}
	return collect(calls...)
}

// WorkerSet returns the downloads of a worker. Empty versions mean the defaults; for runc that is
// the newest release in the given checksums, if there is one. kubeProxy says whether kube-proxy is one
// of them.
func (c *Catalog) WorkerSet(kubernetes, containerd, runc, cniPlugins string, kubeProxy bool) ([]Artifact, error) {
	var calls []call
	add := func(a Artifact, err error) { calls = append(calls, call{a, err}) }
	add(c.Kubernetes(kubernetes, Kubelet))
	if kubeProxy {
		add(c.Kubernetes(kubernetes, KubeProxy))
	}
	add(c.Containerd(cmp.Or(containerd, DefaultContainerd)))
	add(c.Runc(cmp.Or(runc, c.RuncVersion())))
	add(c.CNIPlugins(cmp.Or(cniPlugins, DefaultCNIPlugins)))
	return collect(calls...)
}

type call struct {
	artifact Artifact
	err      error
}

// collect returns all artifacts, or none with any error but ErrUnknownChecksum.
func collect(calls ...call) ([]Artifact, error) {
	var out []Artifact
	var errs []error
	for _, c := range calls {
		if c.err != nil && !errors.Is(c.err, ErrUnknownChecksum) {
			return nil, c.err
		}
		out = append(out, c.artifact)
		if c.err != nil {
			errs = append(errs, c.err)
		}
	}
	return out, errors.Join(errs...)
}

// parseChecksums reads the format of sha256sum(1): digest, blank, blank or asterisk, path.
func parseChecksums(r io.Reader) (map[string]string, error) {
	sums := map[string]string{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		sum, name, ok := cutChecksum(line)
		if !ok || name == "" {
			return nil, fmt.Errorf("line %d is not a SHA-256 digest and a path", n)
		}
		if old, ok := sums[name]; ok && old != sum {
			return nil, fmt.Errorf("line %d gives %s a second digest", n, name)
		}
		sums[name] = sum
	}
	return sums, lines.Err()
}

func cutChecksum(line string) (sum, name string, ok bool) {
	sum, name, _ = strings.Cut(line, " ")
	sum = strings.ToLower(sum)
	name = strings.TrimPrefix(strings.TrimLeft(name, " "), "*")
	name = strings.TrimPrefix(name, "./")
	return sum, name, digest.MatchString(sum)
}
