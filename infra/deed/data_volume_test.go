package deed

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// testVolume is a data volume with the UUID that is derived from its id.
var testVolume = DataVolume{ID: "vol-0123", MountPoint: "/var/lib/etcd", Units: []string{"etcd.service"}}

// volumeMachine is a machine with testVolume. Its programs only note that they ran, unless they have
// code of their own.
type volumeMachine struct {
	t    *testing.T
	root string
}

func newVolumeMachine(t *testing.T, programs map[string]string) volumeMachine {
	t.Helper()
	m := volumeMachine{t, t.TempDir()}
	for _, dir := range []string{"bin", "dev/disk/by-id", "run", "etc/systemd/system"} {
		if err := os.MkdirAll(filepath.Join(m.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"blkid", "blockdev", "dumpe2fs", "e2fsck", "findmnt", "journalctl", "mkfs.ext4", "mount", "resize2fs", "rmdir", "systemctl", "umount"} {
		code := "#!/bin/sh\necho \"" + name + " $*\" >>\"$ROOT/ran\"\n" + programs[name] + "\n"
		if err := os.WriteFile(filepath.Join(m.root, "bin", name), []byte(code), 0o755); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	m.write("disk", strings.Repeat("\x00", 4096))
	if err := os.Symlink(filepath.Join(m.root, "disk"), filepath.Join(m.root, "dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol0123")); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m volumeMachine) write(name, text string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.root, name), []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// run runs a script with the machine's directories and programs, and returns what it says.
func (m volumeMachine) run(ctx context.Context, script string, args ...string) (string, error) {
	m.t.Helper()
	for _, dir := range []string{"/dev/disk/", "/run/k8s", "/etc/systemd/system", "/usr/local/sbin", "/var/lib/etcd"} {
		script = strings.ReplaceAll(script, dir, m.root+dir)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], dir, m.root+dir)
		}
	}
	sh := exec.CommandContext(ctx, "sh", append([]string{"-c", script, "sh"}, args...)...)
	sh.Env = []string{"PATH=" + filepath.Join(m.root, "bin") + ":" + os.Getenv("PATH"), "ROOT=" + m.root}
	out, err := sh.CombinedOutput()
	return strings.ReplaceAll(string(out), m.root, ""), err
}

func (m volumeMachine) mount() (string, error) {
	return m.run(m.t.Context(), mountDataVolume, testVolume.ID, testVolume.uuid(), testVolume.MountPoint)
}

func (m volumeMachine) use() (string, error) {
	var said string
	_, err := UseDataVolume(m.t.Context(), runnerFunc(func(ctx context.Context, cmd remote.Command) (remote.Output, error) {
		var err error
		said, err = m.run(ctx, cmd.Script)
		return remote.Output{}, err
	}), testVolume)
	return said, err
}

// ran returns the programs that ran, each in a line.
func (m volumeMachine) ran() string {
	raw, _ := os.ReadFile(filepath.Join(m.root, "ran"))
	return strings.ReplaceAll(string(raw), m.root, "")
}

// Programs of a machine whose volume has its file system, which fills a tenth of the volume.
var healthyVolume = map[string]string{
	"blkid":     "echo " + testVolume.uuid(),
	"dumpe2fs":  "echo 'Block count: 262144'; echo 'Block size: 4096'",
	"blockdev":  "echo 10737418240",
	"e2fsck":    "exit 1", // repaired
	"resize2fs": "exit 0",
}

func programs(more map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range []map[string]string{healthyVolume, more} {
		for name, code := range m {
			out[name] = code
		}
	}
	return out
}

// TestMountDataVolume: a sound file system is grown and mounted, a damaged one is neither, and one
// that is mounted is left alone, even if the volume cannot be read at this moment.
func TestMountDataVolume(t *testing.T) {
	t.Parallel()
	const mount = "mount -t ext4 /disk /var/lib/etcd\n"
	for _, tt := range []struct {
		name     string
		programs map[string]string
		fails    string
		ran, not string
	}{
		{"sound", nil, "", mount, "umount"},
		{"damaged", map[string]string{"e2fsck": "exit 4"}, "is damaged (e2fsck -p: status 4)", "e2fsck -p /disk\n", "mount -t"},
		{"damaged, as only a full check sees", map[string]string{"e2fsck": `[ "$1" = -p ] || exit 12`}, "is damaged (e2fsck -fp: status 12)", "e2fsck -fp /disk\n", "mount -t"},
		{"another file system", map[string]string{"blkid": "echo 1-2-3"}, "has 1-2-3, wanted the file system", "blkid", "e2fsck"},
		{"mounted, and it cannot be read", map[string]string{"findmnt": `echo "$ROOT/disk"`, "blkid": "exit 2"}, "", "findmnt", "e2fsck"},
		{"mounted, a directory of it", map[string]string{"findmnt": `mkdir -p "$ROOT/var/lib/etcd/member"; echo "$ROOT/disk[/dir]"`}, "has data that are not on volume", "findmnt", "e2fsck"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newVolumeMachine(t, programs(tt.programs))
			said, err := m.mount()
			if (err != nil) != (tt.fails != "") || !strings.Contains(said, tt.fails) {
				t.Errorf("ended with %v and said\n%s", err, said)
			}
			if got := m.ran(); !strings.Contains(got, tt.ran) || strings.Contains(got, tt.not) {
				t.Errorf("it ran\n%swanted %q and not %q", got, tt.ran, tt.not)
			}
		})
	}
}

// TestUnreadableVolume: blkid reports a disk that it cannot read as empty. Such a disk is not
// formatted.
func TestUnreadableVolume(t *testing.T) {
	t.Parallel()
	m := newVolumeMachine(t, programs(map[string]string{"blkid": "exit 2"}))
	disk := filepath.Join(m.root, "disk")
	if err := os.Remove(disk); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(disk, 0o755); err != nil { // nobody can read a directory as a file
		t.Fatal(err)
	}
	said, err := m.use()
	if err == nil || !strings.Contains(said, "/disk cannot be read") || strings.Contains(m.ran(), "mkfs") {
		t.Errorf("ended with %v and said\n%s\nit ran\n%s", err, said, m.ran())
	}
}

// TestBindMounts: a directory of the volume that is mounted elsewhere stays mounted, and the volume
// itself does not.
func TestBindMounts(t *testing.T) {
	t.Parallel()
	const elsewhere = `case "$*" in
*--mountpoint*) [ ! -e "$ROOT/started" ] || echo "$ROOT/disk" ;;
*FSROOT,TARGET*) echo "/ /mnt/whole"; echo "/dir /mnt/part" ;;
*) echo /mnt/whole; echo /mnt/part ;;
esac`
	m := newVolumeMachine(t, programs(map[string]string{"findmnt": elsewhere, "systemctl": `[ "$1" != start ] || : >"$ROOT/started"`,
		"blkid": `case "$*" in *export*) echo UUID=` + testVolume.uuid() + `; echo TYPE=ext4 ;; *) echo ` + testVolume.uuid() + ` ;; esac`}))
	said, err := m.use()
	if got := m.ran(); err != nil || !strings.Contains(got, "umount /mnt/whole\n") || strings.Contains(got, "umount /mnt/part") {
		t.Errorf("%v: %s\nit ran\n%s", err, said, got)
	}
	var out string
	use, err := InspectDataVolume(t.Context(), runnerFunc(func(ctx context.Context, cmd remote.Command) (remote.Output, error) {
		var err error
		out, err = m.run(ctx, cmd.Script)
		return remote.Output{Stdout: []byte(out)}, err
	}), testVolume)
	if err != nil || strings.Join(use.Elsewhere, " ") != "/mnt/whole" {
		t.Errorf("%v: mounted elsewhere at %q: %s", err, use.Elsewhere, out)
	}
}

// TestMountUnit: restarts of units that need the volume never reach a start limit of the mount
// unit.
func TestMountUnit(t *testing.T) {
	t.Parallel()
	section, _, _ := strings.Cut(testVolume.unit(), "\n[Service]\n")
	if !strings.Contains(section, "\nStartLimitIntervalSec=0\n") {
		t.Errorf("its starts are limited:\n%s", testVolume.unit())
	}
}

// TestStartDataVolume: the volume is mounted if the unit needs one, and a failure is an error that says why.
func TestStartDataVolume(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, systemctl string
		needed          bool
		says            string
		fails           bool
	}{
		{"without a volume", "", false, "", false},
		{"with a volume", "", true, DataVolumeUnit + "\n", false},
		{"that cannot be mounted", "exit 1", true, "it is not there\n", true},
	} {
		m := newVolumeMachine(t, map[string]string{"systemctl": tt.systemctl, "journalctl": "echo it is not there"})
		if tt.needed {
			if err := os.MkdirAll(filepath.Join(m.root, "etc/systemd/system/etcd.service.requires"), 0o755); err != nil {
				t.Fatal(err)
			}
			m.write("etc/systemd/system/etcd.service.requires/"+DataVolumeUnit, "")
		}
		said, err := m.run(t.Context(), startDataVolume.script(DataVolumeUnit, "etcd.service"))
		if said != tt.says || (err != nil) != tt.fails {
			t.Errorf("%s: %q, %v", tt.name, said, err)
		}
	}
}
