package release

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cache"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
)

// Options say what to provide and where. The zero value means the defaults.
type Options struct {
	// CacheDir is shared by all labs of a host. Default: cache.DefaultDir.
	CacheDir string
	Versions
	// Progress shows the work to a person. Default: nothing is shown.
	Progress *progress.Reporter
	// Client fetches releases from upstream. The default gives up on an unreachable host within
	// seconds.
	Client *http.Client
}

// Versions are the releases that the mirror must hold, as upstream spells its tags. An empty list
// means the default version.
type Versions struct {
	Kubernetes []string // "v1.36.4"
	Etcd       []string // "v3.6.16"
	Containerd []string // "v2.3.7"
}

var releaseTag = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+$`)

func (v Versions) withDefaults() (Versions, error) {
	for _, of := range []struct {
		name   string
		tags   *[]string
		normal string
	}{
		{"Kubernetes", &v.Kubernetes, KubernetesVersion}, {"etcd", &v.Etcd, EtcdVersion}, {"containerd", &v.Containerd, ContainerdVersion},
	} {
		if len(*of.tags) == 0 {
			*of.tags = []string{of.normal}
		}
		*of.tags = slices.Compact(slices.Sorted(slices.Values(*of.tags)))
		major, _, _ := strings.Cut(of.normal, ".")
		for _, tag := range *of.tags {
			if !releaseTag.MatchString(tag) || !strings.HasPrefix(tag, major+".") {
				return v, fmt.Errorf("version %q of %s is not of the form %s", tag, of.name, of.normal)
			}
		}
	}
	return v, nil
}

func (o Options) withDefaults() (Options, error) {
	if o.CacheDir == "" {
		o.CacheDir = cache.DefaultDir()
	}
	abs, err := filepath.Abs(o.CacheDir)
	if err != nil {
		return o, err
	}
	o.CacheDir = abs
	o.Versions, err = o.Versions.withDefaults()
	return o, err
}

// EnsureMirror completes the mirror of releases and returns its directory. A release lies under
// upstream's host and path, such as dl.k8s.io/release/v1.36.4/bin/linux/amd64/kubelet. Its checksum
// lies beside it, as upstream publishes it and as <file>.sha256. SHA256SUMS at the top lists all
// files in the format of sha256sum(1).
//
// It returns at once if everything is there. Otherwise one process per cache works while others
// wait. Finished files are kept when ctx ends or a build fails.
func EnsureMirror(ctx context.Context, opts Options) (string, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return "", err
	}
	return ensureStore(ctx, opts, "mirror", mirrorProducts(opts.Versions))
}

// EnsureTools builds OpenTofu from its module if necessary, for hosts that have neither terraform
// nor tofu, and returns the directory of `tofu`.
func EnsureTools(ctx context.Context, opts Options) (string, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return "", err
	}
	return ensureStore(ctx, opts, "tools", toolProducts())
}

// gatewayProgram is the file name of versitygw, in gatewayDir of the cache.
const (
	gatewayProgram = "versitygw"
	gatewayDir     = "gateway"
)

// EnsureGateway builds versitygw, the program that serves S3, from its module if necessary. It
// returns its file.
func EnsureGateway(ctx context.Context, opts Options) (string, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return "", err
	}
	dir, err := ensureStore(ctx, opts, gatewayDir, []product{gatewayProduct()})
	return filepath.Join(dir, gatewayProgram), err
}

// Gateway returns versitygw's file in the cache, and whether it is there.
func Gateway(cacheDir string) (string, bool) {
	name := filepath.Join(cacheDir, gatewayDir, gatewayProgram)
	info, err := os.Stat(name)
	return name, err == nil && info.Mode().IsRegular()
}

func ensureStore(ctx context.Context, opts Options, name string, products []product) (string, error) {
	s := newStore(opts, name)
	if err := s.ensure(ctx, products); err != nil {
		return "", fmt.Errorf("completing %s: %w", s.dir(), err)
	}
	return s.dir(), nil
}
