// Package loop makes block devices of files. A device is found again by its file, so nothing about
// it need be recorded. Linux only; needs root.
package loop

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrBusy says that a device is in use: mounted somewhere, or opened exclusively.
var ErrBusy = errors.New("the device is in use")

// detachTimeout bounds the wait for the end of a device that is not mounted. It takes milliseconds,
// unless a process has the device open.
var detachTimeout = time.Second

// A Device is a loop device of the host. It has the content and the size of a file.
type Device struct {
	Number int
	File   string // the file's path
	// Orphan says that the file has been removed. The device still has its content.
	Orphan bool
}

func (d Device) path() string { return fmt.Sprintf("/dev/loop%d", d.Number) }

func (d Device) sysfs(name string) string {
	return fmt.Sprintf("/sys/block/loop%d/%s", d.Number, name)
}

// All lists the devices of the host.
func All() ([]Device, error) {
	names, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, fmt.Errorf("loop devices: %w", err)
	}
	var all []Device
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			continue // it has no file any more
		}
		n, err := strconv.Atoi(strings.TrimPrefix(strings.Split(name, "/")[3], "loop"))
		if err != nil {
			continue
		}
		file, orphan := backedBy(content)
		all = append(all, Device{Number: n, File: file, Orphan: orphan})
	}
	return all, nil
}

// Below lists the devices of the files in and below dir, also of removed files.
func Below(dir string) ([]Device, error) {
	all, err := All()
	if err != nil {
		return nil, err
	}
	var found []Device
	for _, d := range all {
		if strings.HasPrefix(d.File, dir+"/") {
			found = append(found, d)
		}
	}
	return found, nil
}

// Find returns the device of a file.
func Find(file string) (Device, bool, error) {
	all, err := All()
	if err != nil {
		return Device{}, false, err
	}
	for _, d := range all {
		if d.File == file && !d.Orphan {
			return d, true, nil
		}
	}
	return Device{}, false, nil
}

// Attach returns the device of a file, and makes one unless there is one.
func Attach(file string) (Device, error) {
	if d, found, err := Find(file); err != nil || found {
		return d, err
	}
	backing, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return Device{}, err
	}
	defer backing.Close() //nolint:errcheck // the kernel keeps its own reference
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return Device{}, fmt.Errorf("loop devices: %w", err)
	}
	defer control.Close() //nolint:errcheck // nothing is written
	// Another program may take the free device first.
	for range 100 {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return Device{}, fmt.Errorf("no free loop device: %w", err)
		}
		d := Device{Number: n, File: file}
		err = d.configure(backing)
		if err == nil {
			return d, nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return Device{}, fmt.Errorf("loop device for %s: %w", file, err)
		}
	}
	return Device{}, fmt.Errorf("loop device for %s: other programs take every free one", file)
}

func (d Device) configure(backing *os.File) error {
	f, err := os.OpenFile(d.path(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing is written
	c := &unix.LoopConfig{Fd: uint32(backing.Fd())}
	copy(c.Info.File_name[:len(c.Info.File_name)-1], d.File)
	return unix.IoctlLoopConfigure(int(f.Fd()), c)
}

// ID returns the device's number for mknod(2).
func (d Device) ID() (int, error) {
	content, err := os.ReadFile(d.sysfs("dev"))
	if err != nil {
		return 0, fmt.Errorf("loop device: %w", err)
	}
	var major, minor uint32
	if _, err := fmt.Sscanf(string(content), "%d:%d", &major, &minor); err != nil {
		return 0, fmt.Errorf("loop device %s: %w", d.path(), err)
	}
	return int(unix.Mkdev(major, minor)), nil
}

// Bytes returns the device's size.
func (d Device) Bytes() (int64, error) {
	content, err := os.ReadFile(d.sysfs("size"))
	if err != nil {
		return 0, fmt.Errorf("loop device: %w", err)
	}
	sectors, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("loop device %s: %w", d.path(), err)
	}
	return sectors * 512, nil
}

// Writes are a device's changes up to now, and its requests.
type Writes struct{ Written, Discarded, UnderWay uint64 }

// Writes counts what was written to the device.
func (d Device) Writes() (w Writes, err error) {
	content, err := os.ReadFile(d.sysfs("stat"))
	if err != nil {
		return w, fmt.Errorf("loop device: %w", err)
	}
	// https://docs.kernel.org/block/stat.html
	fields := strings.Fields(string(content))
	for at, n := range map[int]*uint64{4: &w.Written, 8: &w.UnderWay, 11: &w.Discarded} {
		if at >= len(fields) {
			return w, fmt.Errorf("loop device %s: statistics %q", d.path(), content)
		}
		if *n, err = strconv.ParseUint(fields[at], 10, 64); err != nil {
			return w, fmt.Errorf("loop device %s: %w", d.path(), err)
		}
	}
	return w, nil
}

// Resize gives the device the present size of its file, also while it is in use.
func (d Device) Resize() error {
	f, err := os.OpenFile(d.path(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing is written
	if err := unix.IoctlSetInt(int(f.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		return fmt.Errorf("loop device %s: new size: %w", d.path(), err)
	}
	return nil
}

// Claim opens the device so that nothing can mount it, until the claim is closed. ErrBusy says that
// it is in use.
func (d Device) Claim() (*os.File, error) {
	f, err := os.OpenFile(d.path(), os.O_RDWR|unix.O_EXCL, 0)
	if errors.Is(err, unix.EBUSY) {
		return nil, fmt.Errorf("%s: %w", d.path(), ErrBusy)
	}
	return f, err
}

// Detach ends the device with a claim on it, and closes the claim.
func (d Device) Detach(claim *os.File) error {
	err := d.release(claim)
	if err != nil {
		return err
	}
	for end := time.Now().Add(detachTimeout); ; time.Sleep(5 * time.Millisecond) {
		if gone, err := d.gone(); gone || err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: %w", d.path(), ErrBusy)
		}
	}
}

// Abandon ends the device as soon as nothing uses it.
func (d Device) Abandon() error {
	f, err := os.OpenFile(d.path(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return d.release(f)
}

func (d Device) release(f *os.File) error {
	err := unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
	if errors.Is(err, unix.ENXIO) { // it has ended already
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("ending %s: %w", d.path(), err)
	}
	return errors.Join(err, f.Close())
}

// gone says whether the device has another file now, or none.
func (d Device) gone() (bool, error) {
	content, err := os.ReadFile(d.sysfs("loop/backing_file"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	now, _ := backedBy(content)
	return now != d.File, nil
}

// backedBy reads what the kernel says of a device's file, and whether the file has been removed.
func backedBy(content []byte) (file string, removed bool) {
	return strings.CutSuffix(strings.TrimSuffix(string(content), "\n"), " (deleted)")
}
