package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/loop"
)

// Leftovers lists what exists of the machines of the lab in stateDir: processes, control groups,
// mounts, disks, snapshots, volumes and their devices. It is empty after [Manager.Down].
func Leftovers(stateDir string) ([]string, error) {
	stateDir, err := filepath.Abs(stateDir)
	if err != nil {
		return nil, fmt.Errorf("leftovers of machines: %w", err)
	}
	lab, err := labGroups(stateDir)
	if err != nil {
		return nil, fmt.Errorf("leftovers of machines: %w", err)
	}
	var left []string
	for _, dir := range lab.remaining() {
		left = append(left, "control group "+dir)
		walkGroups(dir, func(path string, pids []string) {
			for _, pid := range pids {
				left = append(left, "process "+pid+" in "+path)
			}
		})
	}
	mounts, err := mountsBelow(stateDir)
	if err != nil {
		return nil, fmt.Errorf("leftovers of machines: %w", err)
	}
	for _, m := range mounts {
		left = append(left, "mount "+m)
	}
	for _, name := range []string{"machines", "trash", "snapshots"} {
		entries, err := os.ReadDir(filepath.Join(stateDir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("leftovers of machines: %w", err)
		}
		for _, e := range entries {
			left = append(left, "disk "+filepath.Join(stateDir, name, e.Name()))
			if dir := filepath.Join(propagateDir, e.Name()); exists(dir) {
				left = append(left, "directory "+dir)
			}
		}
	}
	volumes := filepath.Join(stateDir, "volumes")
	devices, err := loop.Below(volumes)
	if err != nil {
		return nil, fmt.Errorf("leftovers of machines: %w", err)
	}
	for _, d := range devices {
		left = append(left, fmt.Sprintf("loop device %d of %s", d.Number, d.File))
	}
	entries, err := os.ReadDir(volumes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("leftovers of machines: %w", err)
	}
	for _, e := range entries {
		left = append(left, "volume "+filepath.Join(volumes, e.Name()))
	}
	return left, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// mountsBelow lists the mount points at and below dir in the caller's namespace.
func mountsBelow(dir string) ([]string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 4 &&
			(fields[4] == dir || strings.HasPrefix(fields[4], dir+"/")) {
			found = append(found, fields[4])
		}
	}
	return found, nil
}
