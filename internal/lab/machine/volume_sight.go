package machine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Directories and files of a machine that stand for the kernel's lists of block devices. They have
// the devices of the machine instead of the host's, and are mounted over those lists.
const (
	shownPartitions = "/run/k8s-lab/partitions"
	shownBlocks     = "/run/k8s-lab/block"  // devices by name
	shownNumbers    = "/run/k8s-lab/blocks" // links to them by number
)

// ebsModel is the model of an EBS volume's NVMe controller.
const ebsModel = "Amazon Elastic Block Store"

// showDevices writes the files in which a machine sees its block devices. libblkid, lsblk and the
// kubelet read them (cadvisor: utils/sysinfo).
func showDevices(first process, root string, devices []device) error {
	for _, dir := range []string{shownBlocks, shownNumbers} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	var partitions strings.Builder
	partitions.WriteString("major minor  #blocks  name\n\n")
	blocks, numbers := map[string]bool{}, map[string]bool{}
	for _, d := range devices {
		id, err := d.loop.ID()
		if err != nil {
			return err
		}
		size, err := d.loop.Bytes()
		if err != nil {
			return err
		}
		major, minor := unix.Major(uint64(id)), unix.Minor(uint64(id))
		fmt.Fprintf(&partitions, "%4d  %7d %10d %s\n", major, minor, size/1024, d.node())
		number := fmt.Sprintf("%d:%d", major, minor)
		blocks[d.node()], numbers[number] = true, true
		if err := d.describe(filepath.Join(root, shownBlocks, d.node())); err != nil {
			return err
		}
		if err := link("../../block/"+d.node(), filepath.Join(root, shownNumbers, number)); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(root, shownPartitions), []byte(partitions.String()), 0o444); err != nil {
		return err
	}
	for dir, keep := range map[string]map[string]bool{shownBlocks: blocks, shownNumbers: numbers} {
		if err := removeOthers(filepath.Join(root, dir), keep); err != nil {
			return err
		}
	}
	for over, path := range map[string]string{
		"/proc/partitions": shownPartitions, "/sys/block": shownBlocks, "/sys/class/block": shownBlocks, "/sys/dev/block": shownNumbers,
	} {
		if err := bindOnce(first, root, path, over); err != nil {
			return err
		}
	}
	return nil
}

// describe makes the directory that stands for the device's directory in /sys/block. What the
// kernel says about the loop device is also true for the volume, except name and model.
func (d device) describe(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "device"), 0o755); err != nil {
		return err
	}
	known := map[string]string{"model": fmt.Sprintf("%-40s", ebsModel), "serial": strings.ReplaceAll(d.ID, "-", "")}
	if d.Device != "" {
		known = nil // Xen's devices say neither
	}
	for name, content := range known {
		if err := os.WriteFile(filepath.Join(dir, "device", name), []byte(content+"\n"), 0o444); err != nil {
			return err
		}
	}
	kernel := fmt.Sprintf("/sys/devices/virtual/block/loop%d", d.loop.Number)
	for _, name := range []string{
		"alignment_offset", "dev", "discard_alignment", "ext_range", "hidden", "holders", "inflight", "queue", "range",
		"removable", "ro", "size", "slaves", "stat",
	} {
		if err := link(filepath.Join(kernel, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// link makes path a symbolic link to target.
func link(target, path string) error {
	now, err := os.Readlink(path)
	if err == nil && now == target {
		return nil
	}
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return os.Symlink(target, path)
}

// removeOthers removes what is in a directory and is not to be kept.
func removeOthers(dir string, keep map[string]bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if keep[e.Name()] {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// bindOnce mounts one path of a machine over another, unless it is mounted there.
func bindOnce(first process, root, path, over string) error {
	source, err := os.Stat(filepath.Join(root, path))
	if err != nil {
		return err
	}
	target, err := os.Stat(filepath.Join(root, over))
	if err != nil {
		return err
	}
	if os.SameFile(source, target) {
		return nil
	}
	out, err := exec.Command("nsenter", "--target", strconv.Itoa(first.pid), "--mount", "--", "mount", "-o", "bind,ro", path, over).CombinedOutput() //nolint:noctx // it takes milliseconds, and half of it is worse
	if err != nil {
		return fmt.Errorf("mount over %s: %w: %s", over, err, out)
	}
	return nil
}
