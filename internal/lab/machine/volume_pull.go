package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/loop"
)

// FS_IOC_SHUTDOWN of ext4 and XFS, and its argument that drops what was not written
// (EXT4_GOING_FLAGS_NOLOGFLUSH, XFS_FSOP_GOING_FLAGS_NOLOGFLUSH).
const (
	fsShutdown = 0x8004587d
	noLogFlush = 2
)

// pull takes a device away from a machine that has it mounted, like a disk that is pulled out. The
// file system ends without writing what was not synced, and answers with errors from then on. The
// volume becomes a copy of what was written to the device. The device itself stays with the
// machine, without a file, until its last user ends.
func (in *instance) pull(b *boot, d loop.Device) error {
	if err := in.shutFilesystems(b, d); err != nil {
		return err
	}
	copied := d.File + ".new"
	out, err := exec.Command("cp", "--sparse=always", "--reflink=auto", "--", d.File, copied).CombinedOutput() //nolint:noctx // half of it is worse
	if err != nil {
		return errors.Join(fmt.Errorf("copying %s: %w: %s", d.File, err, out), os.Remove(copied))
	}
	if err := os.Rename(copied, d.File); err != nil {
		return err
	}
	return d.Abandon()
}

// shutFilesystems ends the file systems on a device that the machine has mounted, without writing
// what was not synced. A file system that cannot do this stays.
func (in *instance) shutFilesystems(b *boot, d loop.Device) error {
	first, err := b.leader.init()
	if err != nil {
		return nil //nolint:nilerr // the machine has just ended
	}
	id, err := d.ID()
	if err != nil {
		return err
	}
	points, err := mountPoints(first.pid, uint64(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, point := range points {
		dir, err := os.Open(filepath.Join(fmt.Sprintf("/proc/%d/root", first.pid), point))
		if err != nil {
			continue // unmounted in the meantime
		}
		err = unix.IoctlSetPointerInt(int(dir.Fd()), fsShutdown, noLogFlush)
		_ = dir.Close()
		if err == nil {
			return nil // all mount points have the same file system
		}
		if !errors.Is(err, unix.ENOTTY) && !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("ending the file system on %s: %w", point, err)
		}
	}
	return nil
}

// mountPoints lists where the process with the pid sees the device mounted (proc_pid_mountinfo(5)).
func mountPoints(pid int, id uint64) ([]string, error) {
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return nil, err
	}
	number := fmt.Sprintf("%d:%d", unix.Major(id), unix.Minor(id))
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var points []string
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 4 && fields[2] == number {
			points = append(points, unescape.Replace(fields[4]))
		}
	}
	return points, nil
}
