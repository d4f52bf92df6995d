package machine

import (
	"os"
	"slices"
	"testing"
	"time"
)

// TestSnapshot boots machines from what others had on their disks, one of them from a snapshot of a snapshot. A removed
// snapshot stays as long as a disk lies on it.
func TestSnapshot(t *testing.T) {
	l := newTestLab(t, Releases[0])
	first := l.add("")
	l.start(first)
	c := l.await(first)
	const change = `
echo kept > /etc/mark
rm /etc/issue
rm -r /usr/share/doc/bash && mkdir /usr/share/doc/bash && echo new > /usr/share/doc/bash/new
mv /usr/share/doc/apt /usr/share/doc/moved
mkdir -p /var/lib/containerd/store && echo blob > /var/lib/containerd/store/blob && chown 7:8 /var/lib/containerd/store/blob && chmod 0640 /var/lib/containerd/store/blob
`
	must(t, c, change)
	ofFirst, machineID := must(t, c, `stat -c %Y /usr; ls /usr/share/doc/moved`), must(t, c, "cat /etc/machine-id")
	const snap, next = "snap-00000000000000001", "snap-00000000000000002"
	for range 2 {
		if err := l.Snapshot(t.Context(), first.ID, snap); err != nil {
			t.Fatal(err)
		}
	}
	must(t, c, "echo late > /etc/mark") // the machine goes on, and the snapshot does not follow it

	second := l.add("")
	second.Snapshot = snap
	l.start(second)
	c2 := l.await(second)
	const look = `cat /etc/mark; test ! -e /etc/issue; ls /usr/share/doc/bash; stat -c '%u %g %a' /var/lib/containerd/store/blob; cat /var/lib/containerd/store/blob; hostname`
	if out, want := must(t, c2, look), "kept\nnew\n7 8 640\nblob\n"+second.Hostname; out != want {
		t.Errorf("%q; wanted %q", out, want)
	}
	if out := must(t, c2, `stat -c %Y /usr; ls /usr/share/doc/moved`); out != ofFirst {
		t.Errorf("%q; the first machine has %q", out, ofFirst)
	}
	if out := must(t, c2, "cat /etc/machine-id"); out != machineID {
		t.Errorf("the machine id is %s; nobody has removed that of the snapshot, %s", out, machineID)
	}

	if err := l.RemoveSnapshot(snap); err != nil {
		t.Fatal(err)
	}
	if ids, err := l.Snapshots(); err != nil || len(ids) != 0 {
		t.Errorf("after the removal: %v, %v", ids, err)
	}
	third := l.add("")
	third.Snapshot = snap
	if err := l.Start(t.Context(), third.Spec); err == nil {
		t.Error("a machine was made from a removed snapshot")
	}
	must(t, c2, "echo more > /etc/more; : > /etc/machine-id")
	if err := l.Stop(t.Context(), second.ID); err != nil {
		t.Fatal(err)
	}
	if err := l.Snapshot(t.Context(), second.ID, next); err != nil {
		t.Fatal(err)
	}
	third.Snapshot = next
	l.start(third)
	c3 := l.await(third)
	if out, want := must(t, c3, "cat /etc/more;"+look), "more\nkept\nnew\n7 8 640\nblob\n"+third.Hostname; out != want {
		t.Errorf("%q; wanted %q", out, want)
	}
	if out := must(t, c3, "cat /etc/machine-id"); len(out) != 32 || out == machineID {
		t.Errorf("sealed, the machine id is %q", out)
	}
	l.start(second) // from its own disk
	if out := must(t, l.await(second), "cat /etc/mark /etc/more"); out != "kept\nmore" {
		t.Errorf("started again: %q", out)
	}

	for _, m := range []*testHost{second, third} {
		if err := l.Terminate(t.Context(), m.ID); err != nil {
			t.Fatal(err)
		}
	}
	if ids, err := l.Snapshots(); err != nil || !slices.Equal(ids, []string{next}) {
		t.Errorf("the snapshots are %v, %v", ids, err)
	}
	if err := l.RemoveSnapshot(next); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		left, err := os.ReadDir(l.snapshotsDir())
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("nobody needs them, and there are %v", left)
		}
	}
}
