package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/loop"
)

// byID begins the links that udev makes of an EBS volume's model and serial number.
const byID = "nvme-Amazon_Elastic_Block_Store_"

// A device is a volume as its machine sees it.
type device struct {
	attachedVolume
	loop loop.Device
}

// node is the name of the device. A Nitro instance numbers its devices in the order in which they
// appear, and has the root volume at 0.
func (v attachedVolume) node() string { return cmp.Or(v.Device, fmt.Sprintf("nvme%dn1", v.Number)) }

// link is the name of the device by the volume's id.
func (v attachedVolume) link() string { return byID + strings.ReplaceAll(v.ID, "-", "") }

// place makes the devices of a running machine agree with the volumes that it has: the nodes below
// /dev and what the kernel's files say of them. It may be called again at any time.
func (containers) place(_ context.Context, in *instance, b *boot) error {
	first, err := b.leader.init()
	if err != nil {
		return err
	}
	volumes, err := in.loadVolumes()
	if err != nil {
		return err
	}
	devices := make([]device, len(volumes))
	for i, v := range volumes {
		d, err := plug(in.volumeFile(v.ID))
		if err != nil {
			return err
		}
		devices[i] = device{v, d}
	}
	root := fmt.Sprintf("/proc/%d/root", first.pid)
	if err := placeNodes(root, devices); err != nil {
		return err
	}
	return showDevices(first, root, devices)
}

// detach takes a volume away from a container, which keeps the rest.
func (c containers) detach(ctx context.Context, in *instance, b *boot, volume string, rest []attachedVolume, force bool) error {
	remove := func() error { return errors.Join(in.saveVolumes(rest), c.place(ctx, in, b)) }
	d, found, err := loop.Find(in.volumeFile(volume))
	if err != nil {
		return err
	}
	if !found {
		return remove()
	}
	claim, err := d.Claim()
	switch {
	case errors.Is(err, loop.ErrBusy) && force:
		return errors.Join(in.pull(b, d), remove())
	case errors.Is(err, loop.ErrBusy):
		return fmt.Errorf("%w: it is mounted", ErrVolumeInUse)
	case err != nil:
		return err
	}
	// Nothing can mount it from here on.
	if err := remove(); err != nil {
		return errors.Join(err, claim.Close())
	}
	err = d.Detach(claim)
	if errors.Is(err, loop.ErrBusy) {
		return fmt.Errorf("%w: a process has its device open", ErrVolumeInUse)
	}
	return err
}

// plug returns the device of a volume's file, with the file's size.
func plug(file string) (loop.Device, error) {
	d, err := loop.Attach(file)
	if err != nil {
		return d, err
	}
	info, err := os.Stat(file)
	if err != nil {
		return d, err
	}
	size, err := d.Bytes()
	if err == nil && size != info.Size() {
		err = d.Resize()
	}
	return d, err
}

// placeNodes makes the nodes and links of the devices in a machine's /dev, and removes the nodes
// and links of other devices.
func placeNodes(root string, devices []device) error {
	dev, links := filepath.Join(root, "dev"), filepath.Join(root, "dev/disk/by-id")
	if err := os.MkdirAll(links, 0o755); err != nil {
		return err
	}
	keep := map[string]bool{}
	for _, d := range devices {
		keep[d.node()], keep[d.link()] = true, d.Device == ""
	}
	for _, pattern := range []string{filepath.Join(dev, "nvme*n1"), filepath.Join(dev, "xvd*"), filepath.Join(links, byID+"*")} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, path := range found {
			if !keep[filepath.Base(path)] {
				if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
		}
	}
	for _, d := range devices {
		if err := placeNode(filepath.Join(dev, d.node()), d.loop); err != nil {
			return err
		}
		if d.Device != "" {
			continue
		}
		if err := link("../../"+d.node(), filepath.Join(links, d.link())); err != nil {
			return err
		}
	}
	return nil
}

func placeNode(path string, d loop.Device) error {
	id, err := d.ID()
	if err != nil {
		return err
	}
	var now unix.Stat_t
	if unix.Lstat(path, &now) == nil && now.Mode&unix.S_IFMT == unix.S_IFBLK && now.Rdev == uint64(id) {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := unix.Mknod(path, unix.S_IFBLK|0o660, id); err != nil {
		return fmt.Errorf("mknod %s: %w", path, err)
	}
	const groupDisk = 6
	return errors.Join(os.Chmod(path, 0o660), os.Chown(path, 0, groupDisk))
}

// releaseVolume ends the device of a volume whose machine is down.
func releaseVolume(file string) error {
	// The kernel unmounts a machine's file systems shortly after the end of its last process.
	for end := time.Now().Add(killTimeout); ; time.Sleep(10 * time.Millisecond) {
		d, found, err := loop.Find(file)
		if err != nil || !found {
			return err
		}
		claim, err := d.Claim()
		if err == nil {
			err = d.Detach(claim)
		}
		if !errors.Is(err, loop.ErrBusy) || time.Now().After(end) {
			return err
		}
	}
}
