package host

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// testDisk is the disk of a local machine: an ext4 file system in a file. What a machine has written
// and not synced is in the kernel's memory, and not in the file. So a copy of the file is what the machine
// would find after its power was cut. The kernel writes nothing by itself for five minutes.
type testDisk struct {
	t       *testing.T
	m       *localMachine
	file    string
	memory  string // what does not survive: /run, and what the stand-in of systemd knows
	copies  int
	mounted bool
}

// newTestDisk puts a local machine on a disk. The mount is in a namespace of the test's thread, and ends
// with it.
func newTestDisk(t *testing.T, m *localMachine) *testDisk {
	t.Helper()
	runtime.LockOSThread() // never unlocked, so that nothing else runs in the namespace
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	d := &testDisk{t: t, m: m, file: filepath.Join(dir, "disk"), memory: filepath.Join(dir, "memory")}
	d.run("truncate", "-s", "48M", d.file)
	d.run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", d.file)
	d.boot()
	for _, name := range []string{"state", "run"} {
		if err := os.Symlink(filepath.Join(d.memory, name), m.file(name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"units", "bin"} {
		if err := os.Mkdir(m.file(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d.run("sync", "-f", m.root)
	t.Cleanup(d.unmount)
	return d
}

func (d *testDisk) run(command ...string) {
	d.t.Helper()
	if out, err := exec.CommandContext(context.WithoutCancel(d.t.Context()), command[0], command[1:]...).CombinedOutput(); err != nil {
		d.t.Fatalf("%s: %v: %s", strings.Join(command, " "), err, out)
	}
}

func (d *testDisk) boot() {
	d.t.Helper()
	if err := os.RemoveAll(d.memory); err != nil {
		d.t.Fatal(err)
	}
	for _, name := range []string{"state", "run"} {
		if err := os.MkdirAll(filepath.Join(d.memory, name), 0o755); err != nil {
			d.t.Fatal(err)
		}
	}
	d.run("mount", "-o", "loop,commit=300", d.file, d.m.root)
	d.mounted = true
}

// unmount waits for programs that were killed: on a busy computer they take a moment to end.
func (d *testDisk) unmount() {
	d.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); d.mounted; time.Sleep(20 * time.Millisecond) {
		err := unix.Unmount(d.m.root, 0)
		if d.mounted = errors.Is(err, unix.EBUSY); err != nil && (!d.mounted || time.Now().After(deadline)) {
			d.t.Fatalf("umount %s: %v", d.m.root, err)
		}
	}
}

// cut cuts the power of the machine, whose programs have been killed, and boots it again.
func (d *testDisk) cut() {
	d.t.Helper()
	d.run("flock", "-w", "120", filepath.Join(d.memory, "run/lock"), "true") // the last of the programs has ended
	d.idle()
	d.copies++
	after := d.file + "." + strconv.Itoa(d.copies)
	d.run("cp", "--sparse=always", d.file, after)
	d.unmount() // writes the rest, but not to the copy
	if err := os.Remove(d.file); err != nil {
		d.t.Fatal(err)
	}
	d.file = after
	d.boot()
}

// idle waits until the device has written what it was asked to write.
func (d *testDisk) idle() {
	d.t.Helper()
	var found unix.Stat_t
	if err := unix.Stat(d.m.root, &found); err != nil {
		d.t.Fatal(err)
	}
	at := "/sys/dev/block/" + strconv.Itoa(int(unix.Major(found.Dev))) + ":" + strconv.Itoa(int(unix.Minor(found.Dev))) + "/inflight"
	for quiet, deadline := 0, time.Now().Add(2*time.Minute); quiet < 3; time.Sleep(10 * time.Millisecond) {
		now, err := os.ReadFile(at)
		if err != nil || time.Now().After(deadline) {
			d.t.Fatalf("the device is busy: %s, %v", now, err)
		}
		if quiet++; strings.Join(strings.Fields(string(now)), " ") != "0 0" {
			quiet = 0
		}
	}
}

// notUnits returns the changes that are not about units. A power cut stops all units.
func notUnits(changes []Change) []Change {
	return slices.DeleteFunc(changes, func(c Change) bool { return c.Kind == finding.Unit })
}

// whole checks that every file has the content of one of the versions, or does not exist.
func whole(t *testing.T, m *localMachine, states ...desired.State) {
	t.Helper()
	contents := map[string][][]byte{}
	for _, s := range states {
		for _, f := range s.Files {
			contents[f.Path] = append(contents[f.Path], f.Content)
		}
	}
	for path, versions := range contents {
		found, err := os.ReadFile(path)
		if err == nil && !slices.ContainsFunc(versions, func(v []byte) bool { return bytes.Equal(v, found) }) {
			t.Errorf("%s has %q, and that is no version of it", path, found)
		}
	}
}

// TestPowerCut cuts the power of a machine at random moments of applies. Afterwards every file that
// has its final name is whole, the next apply converges, and everything that a finished apply made
// is still there.
func TestPowerCut(t *testing.T) {
	m, web := newLocalMachine(t), newMirror(t)
	d := newTestDisk(t, m)
	start, before := time.Now(), appState(t, m, web, "0")
	rec := m.converge(before, Record{})
	took := time.Since(start)
	d.cut()
	if lost := notUnits(m.diff(before, rec)); len(lost) > 0 {
		t.Errorf("a power cut took what a finished apply had made: %s", Words(lost))
	}
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1)) //nolint:gosec // any moment will do
	rounds := 4
	if n, err := strconv.Atoi(os.Getenv("K8S_POWER_CUTS")); err == nil {
		rounds = n
	}
	ended := 0
	for i := range rounds {
		version := []string{"1", "2"}[i%2]
		want := appState(t, m, web, version)
		changes := m.diff(want, rec)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.Int64N(int64(took)*3/2)))
		partial, err := m.layout().apply(ctx, m, want, changes, rec, Options{})
		cancel()
		if err == nil {
			ended++
		}
		d.cut()
		whole(t, m, before, want)
		if random.IntN(2) == 0 || err == nil {
			rec = partial // the caller may or may not have saved it
		}
		if lost := notUnits(m.diff(want, rec)); err == nil && len(lost) > 0 {
			t.Errorf("round %d: a power cut took what a finished apply had made: %s", i, Words(lost))
		}
		rec = m.converge(want, rec)
		before = want
	}
	t.Logf("figures: %d power cuts, %d of them in the middle of an apply, which takes %s", rounds+1, rounds-ended, took.Round(time.Millisecond))
}
