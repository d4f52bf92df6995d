package artifact

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
)

// Options say what to provide and where. The zero value is a lab's default.
type Options struct {
	// CacheDir is shared by all labs of a machine. Default: DefaultCacheDir.
	CacheDir string
	// KubernetesVersions are the releases the mirror must hold, such as
	// "v1.36.1". Default: KubernetesVersion alone.
	KubernetesVersions []string
	// EtcdVersions are the releases of etcd, such as "v3.6.16". Default: EtcdVersion alone.
	EtcdVersions []string
	// Progress tells a person of the work that is done. Default: nobody.
	Progress *progress.Reporter
	// Client fetches releases from upstream. Default: one that gives up on an
	// unreachable host within seconds.
	Client *http.Client
}

var (
	releaseVersion     = regexp.MustCompile(`^v1\.[0-9]+\.[0-9]+$`)
	etcdReleaseVersion = regexp.MustCompile(`^v3\.[0-9]+\.[0-9]+$`)
)

func (o Options) withDefaults() (Options, error) {
	if o.CacheDir == "" {
		o.CacheDir = DefaultCacheDir()
	}
	abs, err := filepath.Abs(o.CacheDir)
	if err != nil {
		return o, err
	}
	o.CacheDir = abs
	if len(o.KubernetesVersions) == 0 {
		o.KubernetesVersions = []string{KubernetesVersion}
	}
	for _, v := range o.KubernetesVersions {
		if !releaseVersion.MatchString(v) {
			return o, fmt.Errorf("version %q of Kubernetes is not of the form %s", v, KubernetesVersion)
		}
	}
	if len(o.EtcdVersions) == 0 {
		o.EtcdVersions = []string{EtcdVersion}
	}
	for _, v := range o.EtcdVersions {
		if !etcdReleaseVersion.MatchString(v) {
			return o, fmt.Errorf("version %q of etcd is not of the form %s", v, EtcdVersion)
		}
	}
	return o, nil
}

// DefaultCacheDir is $K8S_LAB_CACHE, or k8s-lab in the user's cache directory,
// or /var/cache/k8s-lab for a process without a home directory.
func DefaultCacheDir() string {
	if dir := os.Getenv("K8S_LAB_CACHE"); dir != "" {
		return dir
	}
	if dir, err := os.UserCacheDir(); err == nil {
		return filepath.Join(dir, "k8s-lab")
	}
	return "/var/cache/k8s-lab"
}

// EnsureMirror makes the mirror of releases complete and returns its
// directory. A release lies under its host and path upstream, for example
// dl.k8s.io/release/v1.36.1/bin/linux/amd64/kubelet, with its checksum beside
// it as upstream publishes it and as <file>.sha256; SHA256SUMS at the top
// lists all files in the format of sha256sum(1).
//
// It returns at once when everything is there. Otherwise one process per cache
// works while others wait; work done is kept when ctx ends or a build fails.
func EnsureMirror(ctx context.Context, opts Options) (string, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return "", err
	}
	return ensureStore(ctx, opts, "mirror", mirrorProducts(opts.KubernetesVersions, opts.EtcdVersions))
}

// EnsureTools makes sure of an OpenTofu built from its module, for machines
// that have neither terraform nor tofu, and returns the directory of `tofu`.
func EnsureTools(ctx context.Context, opts Options) (string, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return "", err
	}
	return ensureStore(ctx, opts, "tools", toolProducts())
}

func ensureStore(ctx context.Context, opts Options, name string, products []product) (string, error) {
	s := newStore(opts, name)
	if err := s.ensure(ctx, products); err != nil {
		return "", fmt.Errorf("completing %s: %w", s.dir(), err)
	}
	return s.dir(), nil
}
