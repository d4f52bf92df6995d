package machine

import (
	"os"
	"testing"
)

// TestVolumeSnapshot: a volume made of a snapshot has what was written to the other one before, mounted or not, and
// nothing that was written later.
func TestVolumeSnapshot(t *testing.T) {
	l := newTestLab(t, Releases[0])
	a := l.add("")
	l.start(a)
	c := l.await(a)
	first, second := Volume{ID: firstVolume, SizeGiB: 1}, Volume{ID: secondVolume, SizeGiB: 2}
	attach := func(v Volume) {
		t.Helper()
		if err := l.AttachVolume(t.Context(), a.ID, v); err != nil {
			t.Fatal(err)
		}
	}
	const snap, empty = "snap-00000000000000001", "snap-00000000000000002"
	attach(first)
	must(t, c, "mkfs.ext4 -q "+firstLink+" && mkdir -p /mnt/data && mount -o commit=600 "+firstLink+" /mnt/data && echo kept > /mnt/data/kept && sync -f /mnt/data && echo cached > /mnt/data/cached")
	must(t, c, `systemd-run --quiet --unit=writer sh -c 'while :; do date > /mnt/data/busy; sleep 0.1; done'`)
	for range 2 { // the second time changes nothing
		if err := l.SnapshotVolume(t.Context(), a.ID, first, snap); err != nil {
			t.Fatal(err)
		}
		must(t, c, "echo late > /mnt/data/late; sync -f /mnt/data")
	}
	must(t, c, "systemctl is-active writer && systemctl stop writer")
	if err := l.FillVolume(t.Context(), second, snap); err != nil {
		t.Fatal(err)
	}
	attach(second)
	const other = "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol0123456789abcdef1"
	must(t, c, "mkdir -p /mnt/other && mount "+other+" /mnt/other")
	if out := must(t, c, "cat /mnt/other/kept; ls /mnt/other/late 2> /dev/null || true; blockdev --getsize64 "+other); out != "kept\n2147483648" {
		t.Errorf("the volume of the snapshot has %q", out)
	}
	must(t, c, "echo mine > /mnt/other/kept; umount /mnt/other; fsck.ext4 -fn "+other)
	if out := must(t, c, "cat /mnt/data/kept /mnt/data/late"); out != "kept\nlate" {
		t.Errorf("the first volume has %q", out)
	}

	// A volume that no machine has had yet is empty, and so is its snapshot.
	third := Volume{ID: "vol-0123456789abcdef2", SizeGiB: 1}
	if err := l.SnapshotVolume(t.Context(), "", third, empty); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{snap, empty, "snap-00000000000000003"} {
		err := l.FillVolume(t.Context(), Volume{ID: "vol-0123456789abcde" + id[len(id)-2:], SizeGiB: 1}, id)
		if (err == nil) != (id != "snap-00000000000000003") {
			t.Errorf("a volume of %s: %v", id, err)
		}
	}
	for _, id := range []string{snap, empty} {
		if err := l.RemoveSnapshot(id); err != nil {
			t.Error(err)
		}
	}
	left, err := os.ReadDir(l.snapshotsDir())
	if err != nil || len(left) > 0 {
		t.Errorf("there are %v, %v", left, err)
	}
}
