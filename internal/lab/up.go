package lab

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cache"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/qemu"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/release"
)

// readyTimeout bounds the daemon's start: building the network, adopting machines, opening
// listeners.
const readyTimeout = 60 * time.Second

// UpOptions say how a lab starts.
type UpOptions struct {
	Versions release.Versions // that the mirror must hold
	Region   string           // of a new lab; empty means DefaultRegion
	Quotas   map[string]int   // by name, see ec2.NamedQuotas; they are only raised. Other quotas stay as they are: in a new lab, the quotas of a new AWS account
	Bare     bool             // a new lab has no artifacts and container images
	With     []string         // names of release.Extras, which the lab also serves from now on
	Machines machine.Kind     // of a new lab; empty means containers
	Images   []string         // ids of captured images that the lab also offers, see machine.Capture
	Daemon   []string         // the command line that runs Keep for this lab
}

// Up checks the host, completes the machine images, artifacts and container images, and starts the
// daemon unless it runs. It returns when the daemon answers. A running daemon keeps its quotas. A bare
// lab that is brought up without Bare gets artifacts and images; its machines go on meanwhile.
func (l *Lab) Up(ctx context.Context, opts UpOptions) error {
	if os.Geteuid() != 0 {
		return errors.New("machines need root: run this as root, or with sudo")
	}
	if _, err := ec2.QuotasOf(opts.Quotas); err != nil {
		return err
	}
	turn, err := l.turn(ctx)
	if err != nil {
		return err
	}
	defer turn()
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	s, err := l.readSettings()
	if err != nil {
		return err
	}
	if err := errors.Join(s.inRegion(opts.Region), s.ofMachines(opts.Machines)); err != nil {
		return fmt.Errorf("the lab in %s: %w", l.dir, err)
	}
	modules, err := machine.Preflight(ctx, l.cache, s.Machines)
	if err != nil {
		return err
	}
	if err := host.This().Use(ctx, l.dir, modules); err != nil {
		return err
	}
	if err := l.useCache(); err != nil {
		return err
	}
	offered, err := l.offer(&s, opts.Images)
	if err != nil {
		return err
	}
	more, err := s.include(opts.With)
	if err != nil {
		return err
	}
	raised := s.raise(opts.Quotas)
	completed := offered || more || raised || s.Bare && !opts.Bare
	s.Bare = opts.Bare && (s.Bare || s.AccessKeyID == "")
	if err := l.provide(ctx, opts.Versions, &s); err != nil {
		return err
	}
	if completed {
		if err := l.stopDaemon(ctx); err != nil {
			return err
		}
	}
	if pid, err := l.running(); err != nil {
		return err
	} else if pid != 0 {
		return l.waitReady(ctx, pid, nil)
	}
	if s.Machines == machine.VirtualMachine {
		l.progress.Line("processors of virtual machines: " + processors[qemu.Accelerator(ctx)])
	}
	s.AccessKeyID = cmp.Or(s.AccessKeyID, "AKIA"+base32.StdEncoding.EncodeToString(random(10)))
	s.SecretAccessKey = cmp.Or(s.SecretAccessKey, base64.RawURLEncoding.EncodeToString(random(30)))
	s.Token = cmp.Or(s.Token, base64.RawURLEncoding.EncodeToString(random(30)))
	if err := l.writeSettings(s); err != nil {
		return err
	}
	return l.start(ctx, opts.Daemon)
}

// processors says what runs the processors of virtual machines, by accelerator.
var processors = map[string]string{"kvm": "KVM", "tcg": "emulated by QEMU, since guests do not run under KVM here; they are ten to twenty times slower"}

// regionName is the form of the names of AWS' regions.
var regionName = regexp.MustCompile(`^[a-z]{2,}(-[a-z]+)+-[1-9]$`)

// raise raises quotas, and reports whether any is higher than before.
func (s *settings) raise(quotas map[string]int) (raised bool) {
	for name, n := range quotas {
		if n <= s.Quotas[name] {
			continue
		}
		if s.Quotas == nil {
			s.Quotas = map[string]int{}
		}
		s.Quotas[name], raised = n, true
	}
	return raised
}

// include adds images that are served on request, and reports whether any of them was new to the lab.
func (s *settings) include(extras []string) (added bool, err error) {
	for _, name := range extras {
		if _, there := release.Extras[name]; !there {
			return false, fmt.Errorf("there are no images %q to serve; there are %s", name, strings.Join(slices.Sorted(maps.Keys(release.Extras)), " and "))
		}
		if !slices.Contains(s.With, name) {
			s.With, added = append(s.With, name), true
		}
	}
	return added, nil
}

// inRegion sets the region of a new lab. An existing lab keeps its region.
func (s *settings) inRegion(name string) error {
	switch {
	case name != "" && !regionName.MatchString(name):
		return fmt.Errorf("%q is not the name of a region, such as eu-central-1", name)
	case name != "" && s.Region != "" && s.Region != name:
		return fmt.Errorf("its region is %s and cannot become %s; end it first, or take another state directory", s.Region, name)
	}
	s.Region = cmp.Or(s.Region, name, DefaultRegion)
	return nil
}

// ofMachines sets the kind of machines of a new lab. An existing lab keeps its kind.
func (s *settings) ofMachines(kind machine.Kind) error {
	if s.AccessKeyID != "" { // the lab may be older than the setting
		s.Machines = cmp.Or(s.Machines, machine.Container)
	}
	if kind != "" && s.Machines != "" && s.Machines != kind {
		return fmt.Errorf("its machines are of the kind %q and cannot become %q; end it first, or take another state directory", s.Machines, kind)
	}
	s.Machines = cmp.Or(s.Machines, kind, machine.Container)
	return nil
}

// offer adds captured images to the lab's images, and says whether one of them was new to the lab.
func (l *Lab) offer(s *settings, ids []string) (added bool, err error) {
	for _, id := range ids {
		img, present := machine.CapturedImage(l.cache, id)
		if present && s.Machines != machine.Container {
			return false, fmt.Errorf("image %s is of a container, and the lab's machines are of the kind %q", id, s.Machines)
		}
		if present {
			if err := cache.Use(l.cache, l.dir, img.Dir); err != nil { // from now on nobody removes it
				return false, fmt.Errorf("using the cache: %w", err)
			}
			_, present = machine.CapturedImage(l.cache, id)
		}
		if !present {
			return false, fmt.Errorf("there is no captured image %q in %s; make artifacts makes the one that tests use", id, l.cache)
		}
		if !slices.Contains(s.MachineImages, img) {
			s.MachineImages, added = append(s.MachineImages, img), true
		}
	}
	return added, nil
}

// stillOffered returns the earlier images that the lab still offers: captured images, and images
// that Publish made from the ones in now.
func stillOffered(before, now []machine.Image) []machine.Image {
	return slices.DeleteFunc(slices.Clone(before), func(b machine.Image) bool {
		made := slices.ContainsFunc(now, func(n machine.Image) bool { return n.Dir == b.Dir && n.ID != b.ID })
		return !made && !b.Captured
	})
}

// provide completes the machine images and, unless the lab is bare, the mirror and the container
// images. It removes superseded ones.
func (l *Lab) provide(ctx context.Context, versions release.Versions, s *settings) error {
	opts := release.Options{CacheDir: l.cache, Versions: versions, Progress: l.progress}
	s.CacheDir = l.cache
	g, building := errgroup.WithContext(ctx)
	before := s.MachineImages
	s.MachineImages = make([]machine.Image, len(machine.Releases))
	g.Go(func() (err error) {
		for n, r := range machine.Releases {
			if s.MachineImages[n], err = machine.EnsureImage(building, l.cache, r, s.Machines, l.progress); err != nil {
				return err
			}
		}
		return nil
	})
	g.Go(func() (err error) {
		if s.Bare {
			return nil
		}
		if s.MirrorDir, err = release.EnsureMirror(building, opts); err != nil {
			return fmt.Errorf("artifact mirror: %w", err)
		}
		if s.ImagesDir, err = release.EnsureImages(building, opts); err != nil {
			return fmt.Errorf("container images: %w", err)
		}
		s.MoreImages = nil
		for _, name := range s.With {
			layout, err := release.Extras[name].Ensure(building, opts)
			if err != nil {
				return fmt.Errorf("images of %s: %w", name, err)
			}
			s.MoreImages = append(s.MoreImages, layout)
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return err
	}
	s.MachineImages = append(stillOffered(before, s.MachineImages), s.MachineImages...)
	if err := ctx.Err(); err != nil {
		return err
	}
	l.prune(ctx)
	return nil
}

// Provide builds or downloads everything that Up and CreateBucket need, and starts nothing.
func (l *Lab) Provide(ctx context.Context, versions release.Versions) error {
	s := settings{Machines: machine.Container}
	if err := l.provide(ctx, versions, &s); err != nil {
		return err
	}
	return l.provideGateway(ctx)
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

// start runs the keeper in its own session, so that it outlives the terminal, and waits until the
// daemon answers.
func (l *Lab) start(ctx context.Context, daemon []string) error {
	var began int64
	if log, err := os.Stat(l.file(logFile)); err == nil {
		began = log.Size()
	}
	cmd := exec.Command(daemon[0], daemon[1:]...) //nolint:noctx // it is to outlive this process
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the daemon: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the log says why
		close(ended)
	}()
	l.progress.Line("starting the daemon")
	if err := l.waitReady(ctx, cmd.Process.Pid, ended); err != nil {
		raw, _ := os.ReadFile(l.file(logFile))
		tail := strings.TrimSpace(string(raw[min(int(began), len(raw)):]))
		return fmt.Errorf("%w\nits log, %s, says:\n%s", err, l.file(logFile), lastLines(tail, 15))
	}
	return nil
}

func lastLines(s string, n int) string {
	lines := strings.Split(s, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// waitReady waits until the daemon of the keeper with the process id answers. ended is closed if the
// keeper ends; it may be nil.
func (l *Lab) waitReady(ctx context.Context, pid int, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the daemon (pid %d) did not become ready within %s", pid, readyTimeout)
		case <-ended:
			return errors.New("the daemon ended while it was starting")
		case <-tick.C:
			asking, asked := context.WithTimeout(ctx, time.Second)
			d, err := l.daemon(asking)
			asked()
			if err == nil && d.Keeper == pid {
				return nil
			}
		}
	}
}
