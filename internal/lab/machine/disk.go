package machine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// dataDirs are the directories of a machine that lie on the host's file system: an overlay cannot
// be the upper layer of containerd's overlays, and etcd's syncs should be real.
var dataDirs = []string{"containerd", "kubelet", "etcd"}

// A disk is the directory of one machine on the host:
//
//	console.log   output of the machine's console
//	leader        the first process of the machine's boot, see process
//	spec.json     the Spec of the last start
//	volumes.json  what volumes the running machine has, see attachedVolume
//	image         what it was made from, see source
//
// Of a container:
//
//	upper, work   the machine's layer of the overlay over the image
//	root          mount point of the overlay, in the machine's mount namespace only
//	data          bind-mounted over /var/lib/{containerd,kubelet,etcd}
//	kernel        files that stand for some of /proc and /sys, see sight
//	lxcfs         mount point of lxcfs, in the machine's mount namespace only
//
// Of a virtual machine:
//
//	disk.qcow2    its root volume, on top of the image's or of a snapshot's
//	qmp.sock      see package qemu
type disk string

// diskOf returns the disk of a machine, by the state directory of its manager.
func diskOf(stateDir, id string) disk { return disk(filepath.Join(stateDir, "machines", id)) }

func (d disk) path(name string) string { return filepath.Join(string(d), name) }

// prepared says whether the disk has been prepared for a first boot.
func (d disk) prepared() bool { return exists(d.path("upper")) || exists(d.path("disk.qcow2")) }

// prepare makes the disk of a container ready for a boot. The first time it makes all of it, on top
// of from; each time it updates the list of the kernel's modules.
func (containers) prepare(_ context.Context, in *instance, s Spec, from source) error {
	d := in.disk
	first := !d.prepared()
	// The work directory of a volatile overlay whose machine was not shut down cleanly refuses to
	// be mounted again (Documentation/filesystems/overlayfs.rst). Here the host has kept all that
	// was written, so nothing is lost.
	if err := os.RemoveAll(d.path("work")); err != nil {
		return err
	}
	// It is made beside its destination and renamed, so that an interrupted preparation does not
	// count.
	upper := d.path("upper")
	if first {
		upper = d.path("upper.new")
		if err := os.RemoveAll(upper); err != nil {
			return err
		}
	}
	dirs := []string{d.path("work"), d.path("root"), upper}
	for _, name := range dataDirs {
		dirs = append(dirs, d.path("data/"+name))
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if first {
		if data := from.data(); data != "" {
			if err := d.copyData(data); err != nil {
				return err
			}
		}
		if err := d.madeFrom(from); err != nil {
			return err
		}
		if len(from.snapshots) == 0 { // a snapshot has the id of its machine, as on EC2
			sum := sha256.Sum256([]byte("machine-id " + s.ID))
			if err := writeFiles(upper, map[string]string{
				"etc/machine-id": hex.EncodeToString(sum[:16]) + "\n",
			}); err != nil {
				return err
			}
		}
	}
	release, err := kernelRelease()
	if err != nil {
		return err
	}
	if !hostModules(release) {
		if err := writeFiles(upper, map[string]string{
			"usr/lib/modules/" + release + "/modules.builtin": string(builtinList(presentModules(release))),
		}); err != nil {
			return err
		}
	}
	if first {
		for _, files := range []map[string]string{from.image.variantFiles(), s.Files} {
			if err := writeFiles(upper, files); err != nil {
				return err
			}
		}
		if err := keepUsrTime(upper, from); err != nil {
			return err
		}
		return os.Rename(upper, d.path("upper"))
	}
	return nil
}

// copyData gives the machine the content of dataDirs, which is in a directory of its image or snapshot.
func (d disk) copyData(from string) error {
	for _, name := range dataDirs {
		if err := os.RemoveAll(d.path("data/" + name)); err != nil {
			return err
		}
		//nolint:noctx // it takes a second, and half a copy would count as the whole
		cmd := exec.Command("cp", "-a", "--reflink=auto", "--", filepath.Join(from, name), d.path("data/"+name))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("copy /var/lib/%s: %w: %s", name, err, out)
		}
	}
	return nil
}

// keepUsrTime gives the machine's /usr the modification time that it has in what the disk is made from. With a
// newer one systemd would take the system for updated and rebuild caches at boot (ConditionNeedsUpdate,
// systemd.unit(5)).
func keepUsrTime(upper string, from source) error {
	for _, layer := range from.layers() {
		info, err := os.Stat(filepath.Join(layer, "usr"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.Chtimes(filepath.Join(upper, "usr"), info.ModTime(), info.ModTime())
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return nil
}

// hostModules says whether the host has a directory of modules for its kernel.
func hostModules(release string) bool {
	_, err := os.Stat(filepath.Join("/lib/modules", release))
	return err == nil
}

func writeFiles(root string, files map[string]string) error {
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// tail returns the end of the console's log, for error messages.
func (d disk) tail() string {
	const limit = 1500
	content, err := os.ReadFile(d.path("console.log"))
	if err != nil {
		return fmt.Sprintf("(no console: %v)", err)
	}
	return string(content[max(0, len(content)-limit):])
}

// programs is the environment of the programs that run machines.
func programs() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
}

// detach starts a command that outlives this process, with its output in the console's log.
func (d disk) detach(cmd *exec.Cmd) error {
	console, err := os.OpenFile(d.path("console.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer console.Close()
	cmd.Stdout, cmd.Stderr = console, console
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Setsid = true
	return cmd.Start()
}
