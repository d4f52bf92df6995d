package awstest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// hostShell runs scripts on this computer instead of on a machine, with the disk under test in
// place of the root disk.
type hostShell struct{ root string }

func (hostShell) WaitReady(context.Context, time.Duration) error { return nil }

func (s hostShell) Run(ctx context.Context, cmd remote.Command) (remote.Output, error) {
	sh := exec.CommandContext(ctx, "sh", "-s")
	sh.Stdin = strings.NewReader("root='" + s.root + "'\n" + cmd.Script)
	var out, problems bytes.Buffer
	sh.Stdout, sh.Stderr = &out, &problems
	err := sh.Run()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, problems.String())
	}
	return remote.Output{Stdout: out.Bytes(), Stderr: problems.Bytes()}, err
}

// TestGrowRoot enlarges a real disk (a loop device with a partition table) under a mounted file
// system.
func TestGrowRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for _, label := range []string{"gpt", "dos"} {
		for _, fs := range []string{"xfs", "ext4"} {
			t.Run(label+" "+fs, func(t *testing.T) { testGrowRoot(t, label, fs) })
		}
	}
}

// alone moves this goroutine, and what it starts, to its own mount namespace. Otherwise a process
// that copies the computer's mount namespace at that moment, as every machine does at its start,
// would keep the disk under test busy.
func alone(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
}

func testGrowRoot(t *testing.T, label, fs string) {
	alone(t)
	for _, tool := range []string{"mkfs." + fs, "sfdisk", "losetup", "partx"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s", tool)
		}
	}
	run := func(stdin, name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	dir := t.TempDir()
	image, root := filepath.Join(dir, "disk"), filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	size := func(mib int64) {
		t.Helper()
		f, err := os.OpenFile(image, os.O_CREATE|os.O_RDWR, 0o600)
		if err == nil {
			err = f.Truncate(mib << 20)
			_ = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	size(400)
	run("label: "+label+"\nstart=2048, size=700000\n", "sfdisk", "--quiet", image)
	disk := run("", "losetup", "--find", "--show", image)
	undo := func(name string, args ...string) {
		t.Cleanup(func() {
			if out, err := exec.CommandContext(context.Background(), name, args...).CombinedOutput(); err != nil {
				t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
			}
		})
	}
	undo("losetup", "--detach", disk)
	if _, err := os.Stat(disk + "p1"); err == nil { // left by an interrupted run
		run("", "partx", "--delete", "--nr", "1", disk)
	}
	run("", "partx", "--add", disk)
	undo("partx", "--delete", "--nr", "1", disk)
	run("", "mkfs."+fs, "-q", disk+"p1")
	run("", "mount", disk+"p1", root)
	undo("umount", root)
	if err := os.WriteFile(filepath.Join(root, "kept"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	size(1 << 10)
	run("", "losetup", "--set-capacity", disk)

	grow := func() error {
		return machine.GrowRoot(t.Context(), machine.Machine{Name: "worker-0"}, 1,
			func(machine.Machine, []string) machine.Shell { return hostShell{root} })
	}
	err := grow()
	if partition := run("", "lsblk", "--bytes", "--nodeps", "--noheadings", "--output", "SIZE", disk+"p1"); len(partition) < len("1000000000") {
		t.Errorf("the partition has %s bytes (%v)", partition, err)
	}
	if err != nil && fs == "ext4" && strings.Contains(err.Error(), "Permission denied to resize filesystem") {
		t.Skip("the partition has grown; growing a mounted ext4 needs CAP_SYS_RESOURCE, which this computer does not grant")
	}
	if err != nil {
		t.Fatal(err)
	}
	if total := run("", "findmnt", "--bytes", "--noheadings", "--output", "SIZE", root); len(total) < len("900000000") || total < "900000000" && len(total) == 9 {
		t.Errorf("the file system has %s bytes", total)
	}
	if kept, err := os.ReadFile(filepath.Join(root, "kept")); err != nil || string(kept) != "kept" {
		t.Errorf("its content: %q, %v", kept, err)
	}
	if err := grow(); err != nil {
		t.Errorf("once more: %v", err)
	}
}
