package machine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/loop"
)

const (
	firstVolume  = "vol-0123456789abcdef0"
	secondVolume = "vol-0123456789abcdef1"
	firstLink    = "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol0123456789abcdef0"
)

// mayResize says whether this process may grow a mounted ext4, and so whether machines may.
func mayResize(t *testing.T) bool {
	t.Helper()
	header, data := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	if err := unix.Capget(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// TestVolumes takes volumes to machines and away from them, mounted and not, through every way in
// which a machine or its manager can end.
func TestVolumes(t *testing.T) {
	l := newTestLab(t, Releases[0])
	a, b := l.add(""), l.add("")
	second := Volume{ID: secondVolume, SizeGiB: 2}
	b.Volumes = []Volume{second}
	l.start(a)
	l.start(b)
	ca, cb := l.await(a), l.await(b)
	first := Volume{ID: firstVolume, SizeGiB: 1}
	attach := func(t *testing.T, h *testHost, v Volume) {
		t.Helper()
		if err := l.AttachVolume(t.Context(), h.ID, v); err != nil {
			t.Fatal(err)
		}
	}
	detach := func(t *testing.T, h *testHost, v Volume) {
		t.Helper()
		if err := l.DetachVolume(t.Context(), h.ID, v.ID, false); err != nil {
			t.Fatal(err)
		}
	}
	same := func(t *testing.T, c *ssh.Client, script, want string) {
		t.Helper()
		if got := must(t, c, script); got != want {
			t.Errorf("%s prints %q, want %q", script, got, want)
		}
	}

	t.Run("at boot", func(t *testing.T) {
		same(t, cb, "ls /dev/nvme*; readlink -f /dev/disk/by-id/*; blockdev --getsize64 /dev/nvme1n1", "/dev/nvme1n1\n/dev/nvme1n1\n2147483648")
		same(t, cb, "awk 'NR > 2 { print $3, $4 }' /proc/partitions", "2097152 nvme1n1")
		same(t, ca, "ls /dev/nvme* /dev/loop* /dev/disk/by-id 2> /dev/null || true; awk 'NR > 2' /proc/partitions", "/dev/disk/by-id:")
	})

	t.Run("with Xen", func(t *testing.T) {
		old := Volume{ID: "vol-0cccccccccccccccc", SizeGiB: 1, Device: "xvdf"}
		attach(t, a, old)
		same(t, ca, "ls -d /dev/xvd* /dev/nvme* /dev/disk/by-id/* 2> /dev/null || true; lsblk -dno NAME,MODEL | xargs", "/dev/xvdf\nxvdf")
		detach(t, a, old)
		same(t, ca, "ls -d /dev/xvd* 2> /dev/null || true", "")
		if err := l.RemoveVolume(old.ID); err != nil {
			t.Error(err)
		}
	})

	t.Run("attached to a running machine", func(t *testing.T) {
		attach(t, a, first)
		attach(t, a, first) // again changes nothing
		same(t, ca, "readlink -f "+firstLink, "/dev/nvme1n1")
		same(t, ca, "blkid -p /dev/nvme1n1 || echo $?", "2") // no signature
		must(t, ca, "mkfs.ext4 -q -L data "+firstLink+"; mkdir -p /mnt/data")
		must(t, ca, "mount UUID=$(blkid -s UUID -o value /dev/nvme1n1) /mnt/data; echo kept > /mnt/data/file")
		same(t, ca, "findmnt -no SOURCE,FSTYPE /mnt/data", "/dev/nvme1n1 ext4")
		same(t, ca, "blkid -L data; lsblk -dno NAME,SIZE,FSTYPE,MOUNTPOINT /dev/nvme1n1 | xargs", "/dev/nvme1n1\nnvme1n1 1G ext4 /mnt/data")
		same(t, ca, "lsblk -dno NAME", "nvme1n1")
		same(t, cb, "awk 'NR > 2 { print $4 }' /proc/partitions; lsblk -dno NAME; grep -c nvme /proc/mounts || true", "nvme1n1\nnvme1n1\n0")
	})

	t.Run("mounted volume stays", func(t *testing.T) {
		if err := l.DetachVolume(t.Context(), a.ID, firstVolume, false); !errors.Is(err, ErrVolumeInUse) {
			t.Errorf("detached a mounted volume: %v", err)
		}
		same(t, ca, "cat /mnt/data/file; readlink -f "+firstLink, "kept\n/dev/nvme1n1")
	})

	t.Run("to another machine", func(t *testing.T) {
		must(t, ca, `umount /mnt/data; systemd-run --quiet --unit=holder sh -c 'exec sleep 1000 < /dev/nvme1n1'
			for _ in $(seq 600); do test "$(readlink /proc/$(systemctl show -p MainPID --value holder)/fd/0)" != /dev/nvme1n1 || exit 0; sleep 0.1; done; exit 1`)
		for range 2 {
			if err := l.DetachVolume(t.Context(), a.ID, firstVolume, false); !errors.Is(err, ErrVolumeInUse) {
				t.Errorf("detached a volume that a process has open: %v", err)
			}
		}
		must(t, ca, "systemctl stop holder")
		detach(t, a, first)
		detach(t, a, first) // again is no error
		same(t, ca, "ls /dev/nvme* /dev/disk/by-id/* 2> /dev/null || true; awk 'NR > 2' /proc/partitions; lsblk -dno NAME", "")
		attach(t, b, first)
		same(t, cb, "readlink -f "+firstLink, "/dev/nvme2n1")
		same(t, cb, "mount "+firstLink+" /mnt; cat /mnt/file; umount /mnt", "kept")
		detach(t, b, second) // the numbers of the others stay, the lowest free one is taken
		same(t, cb, "ls /dev/nvme*", "/dev/nvme2n1")
		attach(t, b, second)
		same(t, cb, "ls /dev/nvme* | xargs", "/dev/nvme1n1 /dev/nvme2n1")
		detach(t, b, first)
		attach(t, a, first)
	})

	t.Run("the manager was killed", func(t *testing.T) {
		must(t, ca, "mount "+firstLink+" /mnt/data")
		l.Close()
		stray := filepath.Join(l.stateDir, "volumes", "vol-stray")
		if err := makeVolume(stray, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := loop.Attach(stray); err != nil { // as if it had been killed in an attachment
			t.Fatal(err)
		}
		m, err := NewManager(l.stateDir, Container, []Image{l.img})
		if err != nil {
			t.Fatal(err)
		}
		l.Manager = m
		if _, found, err := loop.Find(stray); found || err != nil {
			t.Errorf("the device of an unused volume is there: %v, %v", found, err)
		}
		if err := l.RemoveVolume("vol-stray"); err != nil {
			t.Error(err)
		}
		if got, err := l.Volumes(); err != nil || strings.Join(got, " ") != firstVolume+" "+secondVolume {
			t.Errorf("volumes: %v, %v", got, err)
		}
		same(t, ca, "cat /mnt/data/file; readlink -f "+firstLink, "kept\n/dev/nvme1n1")
		if err := l.DetachVolume(t.Context(), a.ID, firstVolume, false); !errors.Is(err, ErrVolumeInUse) {
			t.Errorf("detached a mounted volume: %v", err)
		}
	})

	t.Run("bigger", func(t *testing.T) {
		first.SizeGiB = 3
		attach(t, a, first)
		same(t, ca, "blockdev --getsize64 /dev/nvme1n1; awk 'NR > 2 { print $3, $4 }' /proc/partitions; lsblk -dno SIZE /dev/nvme1n1 | xargs", "3221225472\n3145728 nvme1n1\n3G")
		// The kernel wants CAP_SYS_RESOURCE for this, which some hosts do not give.
		if got := must(t, ca, "resize2fs /dev/nvme1n1 2>&1 || true"); mayResize(t) != strings.Contains(got, "is now 786432 (4k) blocks long") {
			t.Errorf("growing the mounted file system: %s", got)
		}
		must(t, ca, "umount /mnt/data; e2fsck -fp /dev/nvme1n1; resize2fs /dev/nvme1n1; mount -o commit=600 /dev/nvme1n1 /mnt/data")
		same(t, ca, "df --output=size -BG /mnt/data | tail -n 1 | xargs; cat /mnt/data/file", "3G\nkept")
	})

	t.Run("power cut", func(t *testing.T) {
		must(t, ca, "echo synced > /mnt/data/synced; sync /mnt/data/synced; sync -f /mnt/data; echo lost > /mnt/data/lost")
		if err := l.Kill(t.Context(), a.ID); err != nil {
			t.Fatal(err)
		}
		if d, found, err := loop.Find(l.volumeFile(firstVolume)); found || err != nil {
			t.Errorf("a machine that is down has %v, %v", d, err)
		}
		a.Volumes = []Volume{first}
		l.start(a)
		ca = l.await(a)
		same(t, ca, "mount -o commit=600 "+firstLink+" /mnt/data; cat /mnt/data/file /mnt/data/synced; ls /mnt/data/lost 2> /dev/null || true", "kept\nsynced")
	})

	t.Run("pulled out", func(t *testing.T) {
		must(t, ca, "echo lost > /mnt/data/lost")
		if err := l.DetachVolume(t.Context(), a.ID, firstVolume, true); err != nil {
			t.Fatal(err)
		}
		if out, err := run(ca, "echo more > /mnt/data/more; sync -f /mnt/data"); err == nil {
			t.Errorf("a pulled volume can be written to: %s", out)
		}
		same(t, ca, "ls /dev/nvme* 2> /dev/null || true", "")
		attach(t, b, first)
		same(t, cb, "mount "+firstLink+" /mnt; cat /mnt/file /mnt/synced; ls /mnt/lost 2> /dev/null || true; umount /mnt", "kept\nsynced")
		must(t, ca, "umount /mnt/data")
		if left, err := loop.Below(l.volumesDir()); err != nil || len(left) != 2 {
			t.Errorf("devices %v, %v, want those of the two volumes", left, err)
		}
	})

	t.Run("terminate", func(t *testing.T) {
		must(t, cb, "mount "+firstLink+" /mnt; echo last > /mnt/last")
		if err := l.Terminate(t.Context(), b.ID); err != nil {
			t.Fatal(err)
		}
		if left, err := loop.Below(l.volumesDir()); err != nil || len(left) > 0 {
			t.Errorf("devices %v, %v", left, err)
		}
		attach(t, a, first)
		same(t, ca, "mount "+firstLink+" /mnt; cat /mnt/last; umount /mnt", "last")
		if err := l.RemoveVolume(secondVolume); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(l.volumeFile(secondVolume)); !os.IsNotExist(err) {
			t.Errorf("the removed volume: %v", err)
		}
	})
}
