package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cache"
)

// capturedID matches the ids of captured images: they are names of directories, too.
var capturedID = regexp.MustCompile(`^ami-[0-9a-f]{17}$`)

// CapturedImage returns the image with an id that Capture has made or will make, and whether it is in
// cacheDir.
func CapturedImage(cacheDir, id string) (img Image, present bool) {
	img = Image{ID: id, Name: "prepared-" + strings.TrimPrefix(id, "ami-"), Captured: true, Dir: filepath.Join(capturedDir(cacheDir), id)}
	return img, capturedID.MatchString(id) && exists(img.Dir)
}

func capturedDir(cacheDir string) string { return filepath.Join(cacheDir, "captured-images") }

// Capture makes an image of the disk of a stopped container of the lab in stateDir: the files of
// the container's image, those that the container has written, and those in dataDirs. Volumes are
// not part of it. What no two machines may share must have been removed from the disk. The caller
// prevents concurrent calls for the same id.
func Capture(ctx context.Context, stateDir, instance, cacheDir, id string) (Image, error) {
	img, present := CapturedImage(cacheDir, id)
	if present {
		return img, nil
	}
	d := diskOf(stateDir, instance)
	if leader, err := os.ReadFile(d.path("leader")); err == nil {
		return Image{}, fmt.Errorf("capture the disk of %s: the machine runs (process %s)", instance, leader)
	}
	from, err := d.source()
	if err != nil {
		return Image{}, fmt.Errorf("capture the disk of %s: %w", instance, err)
	}
	made := filepath.Join(filepath.Dir(img.Dir), "."+img.ID)
	if err := errors.Join(os.RemoveAll(made), os.MkdirAll(made, 0o755)); err != nil {
		return Image{}, fmt.Errorf("capture the disk of %s: %w", instance, err)
	}
	defer os.RemoveAll(made) //nolint:errcheck // it has been renamed, or is removed by the next call
	args := append([]string{"-euc", capture, "capture", strings.Join(from.layers(), ":"), d.path("upper"), d.path("root"), made, d.path("data")}, dataDirs...)
	cmd := exec.CommandContext(ctx, "sh", args...)
	cmd.Env = programs()
	// The mount ends with the script.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil {
		return Image{}, fmt.Errorf("capture the disk of %s: %w: %s", instance, err, strings.TrimSpace(string(out)))
	}
	if err := file.Rename(made, img.Dir); err != nil {
		return Image{}, fmt.Errorf("capture the disk of %s: %w", instance, err)
	}
	return img, nil
}

// capture copies the overlay of an image and a machine's layer, as the machine sees it.
const capture = `
base=$1 upper=$2 at=$3 to=$4 data=$5
shift 5
mount --make-rprivate /
mount -t overlay -o "ro,lowerdir=$upper:$base" overlay "$at"
cp -a -- "$at/." "$to/"
for dir; do cp -a -- "$data/$dir/." "$to/var/lib/$dir/"; done
`

// PruneCaptured removes the captured images in cacheDir except the directories in keep, and returns the
// removed ones.
func PruneCaptured(cacheDir string, keep []string) ([]string, error) {
	removed, err := cache.Sweep(capturedDir(cacheDir), keep)
	if err != nil {
		return removed, fmt.Errorf("captured machine images: %w", err)
	}
	return removed, nil
}
