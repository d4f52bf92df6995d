package machine

import (
	"bufio"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cache"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/sources"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
)

// recipe makes the images out of packages: build.sh, and the files that it copies over the
// packages' files, by kind of machine.
//
//go:embed image
var recipe embed.FS

// The files of a virtual machine's image, and the id of the partition with its root file system.
const (
	imageDisk     = "disk.raw"
	imageKernel   = "vmlinuz"
	imageInitrd   = "initrd.img"
	rootPartition = "6b38732d-6c61-4b38-8000-000000000001"
)

// Image is a base image, shared read-only by all machines that boot from it.
type Image struct {
	ID      string // in the form of an EC2 image id, from the hash of the recipe
	Name    string
	Release string // of Debian, by version; empty if Captured or a Variant
	Dir     string // root file system of a container, or directory with a virtual machine's files
	// Captured says that Capture made the image, which therefore belongs to the account and not to
	// Debian.
	Captured bool `json:",omitempty"`
	// Variant is how it differs from Debian's image, one of Variants; empty if it does not. It belongs to the account.
	Variant string `json:",omitempty"`
	SizeGiB int    `json:",omitempty"` // of the root volume; zero for that of Debian's
}

// LocateImage returns the image of a release for a kind of machines that this version of the package
// boots, with its directory under cacheDir, and whether it is there.
func LocateImage(cacheDir string, r Release, kind Kind) (img Image, present bool, err error) {
	sum, err := recipeHash(r, kind)
	if err != nil {
		return Image{}, false, err
	}
	img = Image{
		ID:      "ami-" + sum[:17],
		Name:    "debian-" + r.Version + "-" + runtime.GOARCH + "-k8s-lab-" + sum[:8],
		Release: r.Version,
	}
	img.Dir = filepath.Join(imagesDir(cacheDir), img.ID)
	_, err = os.Stat(img.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return img, false, nil
	}
	return img, err == nil, err
}

// Republished returns the same image with a new id and a newer name. serial distinguishes repeated
// publications.
func (i Image) Republished(serial int) Image {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", i.ID, serial))
	i.ID, i.Name = "ami-"+hex.EncodeToString(sum[:])[:17], fmt.Sprintf("%s-%d", i.Name, serial)
	return i
}

func imagesDir(cacheDir string) string { return filepath.Join(cacheDir, "images") }

// PruneImages removes the images in cacheDir except the directories in keep, and returns the
// removed ones. It removes nothing while an image is built.
func PruneImages(ctx context.Context, cacheDir string, keep []string) ([]string, error) {
	dir := imagesDir(cacheDir)
	if !exists(dir) {
		return nil, nil
	}
	unlock, err := cache.TryLock(filepath.Join(dir, ".lock"))
	if err != nil {
		return nil, fmt.Errorf("machine images: %w", err)
	}
	if unlock == nil {
		return nil, nil
	}
	defer unlock()
	removed, err := cache.Sweep(dir, keep)
	if err != nil {
		return removed, fmt.Errorf("machine images: %w", err)
	}
	return removed, nil
}

// ImagesInUse returns the directories of the images that the machines and snapshots of the lab in stateDir were
// made from. Stopped machines count.
func ImagesInUse(stateDir string) ([]string, error) {
	sources, err := sourcesIn(stateDir)
	if err != nil {
		return nil, fmt.Errorf("machine images in use: %w", err)
	}
	var dirs []string
	for _, from := range sources {
		dirs = append(dirs, from.image.Dir)
	}
	return dirs, nil
}

// EnsureImage returns the image of a release for a kind of machines, and builds it with debootstrap
// unless cacheDir has it. Only one build runs at a time.
func EnsureImage(ctx context.Context, cacheDir string, r Release, kind Kind, report *progress.Reporter) (Image, error) {
	img, present, err := LocateImage(cacheDir, r, kind)
	if err != nil || present {
		return img, err
	}
	dir := filepath.Dir(img.Dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Image{}, fmt.Errorf("machine image: %w", err)
	}
	unlock, err := cache.Lock(ctx, filepath.Join(dir, ".lock"), func(string) { report.Line("waiting for another build of " + img.Name) })
	if err != nil {
		return Image{}, fmt.Errorf("machine image: waiting for another build: %w", err)
	}
	defer unlock()
	if _, present, err := LocateImage(cacheDir, r, kind); err != nil || present {
		return img, err
	}

	// The lock is ours, so anything half-built is from an interrupted build.
	tmp := filepath.Join(dir, "."+img.ID)
	if err := os.RemoveAll(tmp); err != nil {
		return Image{}, fmt.Errorf("machine image: %w", err)
	}
	defer os.RemoveAll(tmp)
	files := filepath.Join(tmp, "recipe")
	if err := os.CopyFS(files, recipe); err != nil {
		return Image{}, fmt.Errorf("machine image: unpack recipe: %w", err)
	}
	root := filepath.Join(tmp, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		return Image{}, fmt.Errorf("machine image: %w", err)
	}
	mirror := sources.DebianMirror()
	var now atomic.Value // the build's last line of output
	now.Store("")
	end := report.Job(fmt.Sprintf("building the %s image of Debian %s from %s", kind.noun(), r.Version, mirror), func() string { return now.Load().(string) })
	err = r.build(ctx, kind, filepath.Join(files, "image"), root, mirror, func(line string) { now.Store(line) })
	end(err)
	if err != nil {
		return Image{}, fmt.Errorf("build machine image %s from the Debian mirror %s (%s can name another): %w", img.Name, mirror, sources.DebianMirrorEnv, err)
	}
	if err := file.Rename(root, img.Dir); err != nil {
		return Image{}, fmt.Errorf("machine image: %w", err)
	}
	return img, nil
}

// build runs the recipe in its own PID and mount namespaces, so that its end also ends everything
// it started and undoes every mount.
func (r Release) build(ctx context.Context, kind Kind, files, root, mirror string, said func(string)) error {
	cmd := exec.CommandContext(ctx, "sh", filepath.Join(files, "build.sh"), r.Codename, root, files, mirror, string(kind))
	cmd.Env = append(os.Environ(), "packages="+strings.Join(r.packages(kind), " "), "masked="+strings.Join(maskedUnits(kind), " "), "partition="+rootPartition)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in
	var tail []string
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			line := strings.TrimSpace(lines.Text())
			if line == "" {
				continue
			}
			said(line)
			tail = append(tail, line)
			tail = tail[max(0, len(tail)-15):]
		}
		_, _ = io.Copy(io.Discard, out)
	}()
	err := cmd.Run()
	_ = in.Close()
	<-read
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w; its last output:\n%s", err, strings.Join(tail, "\n"))
	}
	return nil
}

func recipeHash(r Release, kind Kind) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, runtime.GOARCH, r, kind, r.packages(kind), maskedUnits(kind))
	err := fs.WalkDir(recipe, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := recipe.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%s %d\n", path, len(content))
		h.Write(content)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("machine image: read recipe: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
