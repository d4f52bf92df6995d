// Package prepared makes the machine image that end-to-end tests start from: Debian, with the packages,
// programs and container images of the releases under test. Roles find there what they want, and
// install nothing.
//
// The image is made by the means of a user: a machine of the local EC2, on which the library installs
// what its roles would install. What may not enter: what only a test knows, and another list of what
// roles need.
package prepared

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/bake"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cache"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/release"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
)

// format changes when machine.Capture makes another image of the same machine.
const format = 1

// content is what roles install on a controller, a worker and a load balancer: all of it is on one image. The releases are
// those that every lab has; those of the other programs are the provider's defaults.
var content = bake.Content{
	Roles:    []aws.MachineRole{aws.RoleController, aws.RoleEtcd, aws.RoleWorker, aws.RoleLoadBalancer},
	Releases: component.Releases{Kubernetes: strings.TrimPrefix(release.KubernetesVersion, "v"), Etcd: strings.TrimPrefix(release.EtcdVersion, "v")},
	Images:   []string{"docker.io/" + release.ToolboxImage},
}

//go:embed *.go
var sources embed.FS // what makes the image

// quiet are units of Debian that are off: upgrades are those of the image, and what else these timers do has nothing to do.
var quiet = []string{"apt-daily.timer", "apt-daily-upgrade.timer", "unattended-upgrades.service", "man-db.timer", "dpkg-db-backup.timer"}

// Options say where the image is made.
type Options struct {
	CacheDir string // default: cache.DefaultDir
	// Program is k8s-lab, which runs the lab in which the image is made.
	Program  string
	Progress *progress.Reporter
	// For is the state directory of a lab that will offer the image: until then nobody removes it. It may
	// be empty.
	For string
}

// Ensure returns the image, and makes it unless the cache has it, which takes about a minute. It removes
// images of other content that no lab uses. Only one process of a computer makes an image at a time.
func Ensure(ctx context.Context, opts Options) (machine.Image, error) {
	if opts.CacheDir == "" {
		opts.CacheDir = cache.DefaultDir()
	}
	img, present, err := opts.locate(ctx)
	if err != nil || present {
		return img, err
	}
	unlock, err := cache.Lock(ctx, filepath.Join(opts.CacheDir, "prepared.lock"), func(string) { opts.Progress.Line("waiting for another process that prepares the image of machines") })
	if err != nil {
		return machine.Image{}, fmt.Errorf("prepared image: %w", err)
	}
	defer unlock()
	if img, present, err = opts.locate(ctx); err != nil || present {
		return img, err
	}
	end := opts.Progress.Job("preparing the image from which tests start machines", nil)
	err = opts.make(ctx, img.ID)
	end(err)
	if err != nil {
		return machine.Image{}, fmt.Errorf("prepared image: %w", err)
	}
	return img, opts.prune(img)
}

// locate returns the image, which is named by its content, and whether the cache has it. First it
// completes the rest of the cache, from which the image is made.
func (o Options) locate(ctx context.Context) (machine.Image, bool, error) {
	mirror, err := release.EnsureMirror(ctx, release.Options{CacheDir: o.CacheDir, Progress: o.Progress})
	if err != nil {
		return machine.Image{}, false, fmt.Errorf("artifact mirror: %w", err)
	}
	base, _, err := machine.LocateImage(o.CacheDir, machine.Releases[0], machine.Container)
	if err != nil {
		return machine.Image{}, false, err
	}
	// Where the programs come from is not part of what they are.
	state, err := wanted("http://mirror.invalid", filepath.Join(mirror, "SHA256SUMS"))
	if err != nil {
		return machine.Image{}, false, err
	}
	by, err := made()
	if err != nil {
		return machine.Image{}, false, err
	}
	text, err := json.Marshal([]any{format, base.ID, state, content.PodImages(), filepath.Base(release.LocateImages(o.CacheDir)), by})
	if err != nil {
		return machine.Image{}, false, err
	}
	id := "ami-" + desired.Sum(text)[:17]
	img, present := machine.CapturedImage(o.CacheDir, id)
	if o.For == "" {
		return img, present, nil
	}
	// A lab whose directory does not exist uses nothing.
	if err := os.MkdirAll(o.For, 0o755); err != nil {
		return machine.Image{}, false, err
	}
	if err := cache.Use(o.CacheDir, o.For, img.Dir); err != nil {
		return machine.Image{}, false, fmt.Errorf("using the cache: %w", err)
	}
	img, present = machine.CapturedImage(o.CacheDir, id)
	return img, present, nil
}

// made returns all that makes the image.
func made() (all []string, err error) {
	all = []string{host.ScriptDigest(), deed.ImageScripts(), bake.Code()}
	err = fs.WalkDir(sources, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := sources.ReadFile(path)
		all = append(all, path, string(text))
		return err
	})
	return all, err
}

// wanted returns the state of the machine that becomes the image.
func wanted(mirror, checksums string) (desired.State, error) {
	sums, err := os.Open(checksums)
	if err != nil {
		return desired.State{}, err
	}
	defer sums.Close() //nolint:errcheck // read only
	catalog, err := artifact.NewCatalog(mirror, sums, nil)
	if err != nil {
		return desired.State{}, err
	}
	downloads, err := content.Artifacts(catalog)
	if err != nil {
		return desired.State{}, err
	}
	state := content.State(downloads)
	for _, unit := range quiet {
		state.Units = append(state.Units, desired.Unit{Name: unit})
	}
	return state, nil
}

// prune removes prepared images of other content.
func (o Options) prune(img machine.Image) error {
	return cache.Prune(o.CacheDir, func(used []string) error {
		removed, err := machine.PruneCaptured(o.CacheDir, append(used, img.Dir))
		for _, dir := range removed {
			o.Progress.Line("removed " + dir + ", which no lab uses")
		}
		return err
	})
}

// make makes the image in a lab of its own.
func (o Options) make(ctx context.Context, id string) (err error) {
	dir, err := os.MkdirTemp("/var/tmp", "k8s-prepare-")
	if err != nil {
		return err
	}
	state := filepath.Join(dir, "lab")
	l, err := lab.New(state, o.CacheDir, o.Progress)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	defer func() {
		down := l.Down(context.WithoutCancel(ctx))
		if down == nil {
			down = os.RemoveAll(dir)
		} else {
			down = fmt.Errorf("%w; a lab is left: %s --state-dir %s down", down, o.Program, state)
		}
		err = errors.Join(err, down)
	}()
	if err := l.Up(ctx, lab.UpOptions{Daemon: []string{o.Program, "--state-dir", state, "daemon"}}); err != nil {
		return err
	}
	b, err := newBuilder(ctx, l)
	if err != nil {
		return err
	}
	defer b.pool.Close() //nolint:errcheck // the machine is gone
	instance, err := b.build(ctx, id)
	if err != nil {
		return err
	}
	_, err = machine.Capture(ctx, state, instance, o.CacheDir, id)
	return err
}
