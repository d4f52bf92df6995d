// Package hosts makes machines that cost little, for measurements: each is a directory tree with a
// real shell and real programs in it, and one process is the SSH server of all of them.
//
// Commands run chrooted in the tree of their machine. /usr is this computer's, read-only, with
// stand-ins laid over the programs that cannot work there: systemctl, apt-get, dpkg-query,
// modprobe, nft, sudo and haproxy, which keep their state in files of the tree. /proc/sys and /sys
// are directories, so that no command changes a kernel. All machines share one kernel, one network
// and one process namespace. The program must run in namespaces of its own (see [Enter]), since
// scripts kill processes that they find in /proc.
//
// What may not enter: what scripts mean, AWS, Kubernetes, Terraform.
package hosts

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed standins
var standins embed.FS

// Spec is what a machine is given at its first boot.
type Spec struct {
	Name      string
	Address   netip.Addr // private
	User      string     // who logs in; all commands run as root
	LoginKeys []string   // public keys that may log in, in authorized_keys form
	// HostKey is the SSH server's private key, in PEM, and HostPublicKey the public one, in
	// authorized_keys form. Commands may replace both, in /etc/ssh.
	HostKey, HostPublicKey string
	// Real are the units whose programs are really run. All other units only count as running.
	Real []string
}

// Host is one machine.
type Host struct {
	Spec
	Root string // its directory tree
}

// Fleet is all machines, and what they share.
type Fleet struct {
	dir string
	Counts
}

// New makes a fleet without machines in an empty directory. It mounts file systems below it, which
// end with the mount namespace.
func New(dir string) (*Fleet, error) {
	f := &Fleet{dir: dir}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
		return nil, fmt.Errorf("mounting a tmpfs at %s: %w", dir, err)
	}
	err := fs.WalkDir(standins, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dir, name)
		if d.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		content, err := standins.ReadFile(name)
		if err != nil {
			return err
		}
		mode := os.FileMode(0o755)
		if strings.HasSuffix(name, ".service") {
			mode = 0o644
		}
		return os.WriteFile(to, content, mode)
	})
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(f.path("usr"), 0o755); err != nil {
		return nil, err
	}
	if err := unix.Mount("overlay", f.path("usr"), "overlay", unix.MS_RDONLY, "lowerdir="+f.path("standins")+":/usr"); err != nil {
		return nil, fmt.Errorf("laying the stand-ins over /usr: %w", err)
	}
	return f, nil
}

func (f *Fleet) path(elem ...string) string {
	return filepath.Join(append([]string{f.dir}, elem...)...)
}

// Close ends the programs of the machines, since another fleet has the same addresses, and removes
// the mounts. It is not needed before the namespaces end.
func (f *Fleet) Close() error {
	notes, err := filepath.Glob(f.path("machines", "*", "root", "run", "units", "pid.*"))
	for _, note := range notes {
		err = errors.Join(err, end(note))
	}
	return errors.Join(err, unix.Unmount(f.dir, unix.MNT_DETACH))
}

// end kills the program whose process id is in a file, and waits until it is gone, for ten seconds at most.
func end(note string) error {
	content, err := os.ReadFile(note)
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return err
	}
	for range 200 {
		if err := unix.Kill(pid, unix.SIGKILL); errors.Is(err, unix.ESRCH) {
			return nil
		} else if err != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("process %d does not end", pid)
}

// directories exist on a new machine.
var directories = []string{
	"dev", "proc", "usr", "etc/alternatives", "etc/ssh", "etc/real", "etc/systemd/system", "etc/haproxy", "home", "root", "mnt", "opt",
	"run/units", "run/systemd/resolve", "sys/module", "tmp", "var/lib/dpkg/installed", "var/log/units", "var/tmp",
}

// kernel are the files in place of /proc/sys.
func kernel(bootID string) map[string]string {
	return map[string]string{
		"kernel/random/boot_id": bootID, "kernel/hostname": "", "net/ipv4/ip_forward": "0\n",
	}
}

// Add makes a machine, mounts what it shares with the others, and returns it.
func (f *Fleet) Add(id string, spec Spec) (*Host, error) {
	h := &Host{Spec: spec, Root: f.path("machines", id, "root")}
	fail := func(err error) (*Host, error) { return nil, fmt.Errorf("machine %s: %w", spec.Name, err) }
	for _, d := range directories {
		if err := os.MkdirAll(filepath.Join(h.Root, d), 0o755); err != nil {
			return fail(err)
		}
	}
	for _, link := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+link, filepath.Join(h.Root, link)); err != nil {
			return fail(err)
		}
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/uuid") // a new id at each read
	if err != nil {
		return fail(err)
	}
	files := map[string]string{
		"etc/hostname": spec.Name + "\n", "etc/hosts": "127.0.0.1 localhost\n", "etc/resolv.conf": "nameserver 169.254.169.253\n",
		"etc/passwd": "root:x:0:0::/root:/bin/sh\nhaproxy:x:101:101::/nonexistent:/usr/sbin/nologin\n", "etc/group": "root:x:0:\nhaproxy:x:101:\n",
		"etc/ssh/ssh_host_ed25519_key": spec.HostKey, "etc/ssh/ssh_host_ed25519_key.pub": spec.HostPublicKey + "\n",
		"run/units/reloaded": "",
	}
	for _, unit := range spec.Real {
		files["etc/real/"+unit] = ""
	}
	for name, content := range files {
		if err := write(filepath.Join(h.Root, name), content); err != nil {
			return fail(err)
		}
	}
	sys, local := f.path("machines", id, "proc-sys"), f.path("machines", id, "usr-local")
	for name, content := range kernel(string(boot)) {
		if err := write(filepath.Join(sys, name), content); err != nil {
			return fail(err)
		}
	}
	// The kernel's file is mounted over this one, since it has a new id at each read.
	if err := write(filepath.Join(sys, "kernel/random/uuid"), ""); err != nil {
		return fail(err)
	}
	if err := os.MkdirAll(filepath.Join(local, "bin"), 0o755); err != nil {
		return fail(err)
	}
	if err := h.devices(); err != nil {
		return fail(err)
	}
	if err := h.alternatives(); err != nil {
		return fail(err)
	}
	// Mount nothing of this computer that is writable: whoever deletes a tree deletes what is
	// mounted there.
	for _, m := range [][2]string{
		{f.path("usr"), "usr"}, {local, "usr/local"}, {"/proc", "proc"}, {sys, "proc/sys"},
		{"/proc/sys/kernel/random/uuid", "proc/sys/kernel/random/uuid"},
	} {
		if err := unix.Mount(m[0], filepath.Join(h.Root, m[1]), "", unix.MS_BIND, ""); err != nil && !errors.Is(err, unix.ENOENT) {
			return fail(fmt.Errorf("mounting %s: %w", m[1], err))
		}
	}
	return h, nil
}

// alternatives copies the links through which /usr finds some programs, such as awk.
func (h *Host) alternatives() error {
	links, err := os.ReadDir("/etc/alternatives")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, l := range links {
		if l.Type()&fs.ModeSymlink == 0 {
			continue // dpkg's README
		}
		to, err := os.Readlink(filepath.Join("/etc/alternatives", l.Name()))
		if err == nil {
			err = os.Symlink(to, filepath.Join(h.Root, "etc/alternatives", l.Name()))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// devices makes the few devices that scripts use.
func (h *Host) devices() error {
	for name, minor := range map[string]uint32{"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9} {
		at := filepath.Join(h.Root, "dev", name)
		if err := unix.Mknod(at, unix.S_IFCHR|0o666, int(unix.Mkdev(1, minor))); err != nil { //nolint:gosec // a small number
			return fmt.Errorf("making %s: %w", at, err)
		}
		if err := os.Chmod(at, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// Read returns the content of a file on the machine, empty if there is none.
func (h *Host) Read(name string) string {
	content, _ := os.ReadFile(filepath.Join(h.Root, name))
	return string(content)
}

func write(name, content string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	mode := os.FileMode(0o644)
	if strings.HasSuffix(name, "_key") {
		mode = 0o600
	}
	return os.WriteFile(name, []byte(content), mode)
}
