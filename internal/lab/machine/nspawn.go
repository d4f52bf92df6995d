package machine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// propagateDir is where nspawn keeps a directory for each machine. When killed, it leaves that
// behind.
const propagateDir = "/run/systemd/nspawn/propagate"

// launch enters the control groups given before the second "--", mounts the overlay and executes
// nspawn. It runs in a new mount namespace, which ends with the machine's last process, so that no
// mount is left on the host.
//
// Before that it starts lxcfs in the groups given before the first "--", which are not the
// machine's: it must answer when the machine has no memory left. When lxcfs ends, what it shows can
// no longer be read, so the machine ends with it. The OOM killer spares lxcfs and nspawn where the
// host allows this.
//
// Timers of the machine's processes may be five milliseconds late, where Linux allows fifty
// microseconds otherwise (PR_SET_TIMERSLACK), so that many end at the same time. Programs in Go sleep
// for microseconds thousands of times a second, and on a host that is a virtual machine itself each
// end of a sleep is dear. docs/design/tests.md has figures.
const launch = `
mount --make-rslave /
lxcfs=$1 shown=$2 leader=$$
shift 2
echo -1000 2> /dev/null > /proc/self/oom_score_adj || :
echo 5000000 2> /dev/null > /proc/self/timerslack_ns || :
{
    while [ "$1" != -- ]; do echo 0 > "$1/cgroup.procs"; shift; done
    "$lxcfs" -f -p "$shown.pid" "$shown" > "$shown.log" 2>&1 || :
    echo "lxcfs ended, and this machine with it:" "$(tail -n 3 "$shown.log")" >&2
    kill -KILL "$leader"
} &
while [ "$1" != -- ]; do shift; done
shift
while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs"; shift; done
options=$2 root=$3
shift 3
mount -t overlay -o "$options" overlay "$root"
until [ -e "$shown/proc/meminfo" ]; do sleep 0.01; done
exec "$@"
`

// spawn starts nspawn for the machine. The returned process is nspawn, not the machine's init.
func (containers) spawn(ctx context.Context, in *instance, s Spec) (*exec.Cmd, error) {
	d := in.disk
	lxcfs, err := exec.LookPath("lxcfs")
	if err != nil {
		return nil, err
	}
	from, err := d.source()
	if err != nil {
		return nil, err
	}
	release, err := kernelRelease()
	if err != nil {
		return nil, err
	}

	args := []string{"-euc", launch, "launch", lxcfs, d.path("lxcfs")}
	args = append(append(args, in.helper().dirs()...), "--")
	args = append(append(args, in.limited().dirs()...), "--",
		// A machine's disk need not survive a crash of the host, so the overlay skips syncs.
		fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,volatile,index=off,redirect_dir=on",
			strings.Join(from.layers(), ":"), d.path("upper"), d.path("work")),
		d.path("root"),
		"systemd-nspawn", "--boot", "--quiet", "--settings=no", "--register=no", "--keep-unit",
		"--directory="+d.path("root"),
		"--machine="+s.ID, "--hostname="+s.Hostname,
		"--network-namespace-path="+s.Netns,
		"--capability=all", "--system-call-filter=@known",
		"--kill-signal=SIGRTMIN+4",
		"--oom-score-adjust=0",
		"--console=read-only", "--link-journal=no", "--resolv-conf=off", "--timezone=off",
		"--bind=/dev/kmsg",
		// nspawn cannot bind over files of /proc; the machine's first unit does.
		"--bind-ro="+d.path("kernel")+":/run/k8s-lab/kernel", "--bind-ro="+d.path("lxcfs")+":/run/k8s-lab/lxcfs")
	for _, name := range dataDirs {
		args = append(args, "--bind="+d.path("data/"+name)+":/var/lib/"+name)
	}
	if hostModules(release) {
		args = append(args, "--bind-ro=/lib/modules")
	}
	if _, err := os.Stat("/dev/fuse"); err == nil {
		args = append(args, "--bind=/dev/fuse")
	}

	cmd := exec.CommandContext(context.WithoutCancel(ctx), "sh", args...)
	cmd.Dir = "/"
	cmd.Env = append(programs(),
		"SYSTEMD_NSPAWN_API_VFS_WRITABLE=1", // sysctls, as on a virtual machine
		"SYSTEMD_NSPAWN_LOCK=0")             // the lock file would be left behind after a power cut
	// AppArmor may restrict what unshare(1) starts, even for root.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	return cmd, d.detach(cmd)
}

// removePropagateDir removes what nspawn leaves on the host when it is killed.
func removePropagateDir(id string) error { return os.RemoveAll(filepath.Join(propagateDir, id)) }
