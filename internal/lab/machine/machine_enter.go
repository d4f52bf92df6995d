package machine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
)

// reaper runs a program as its child, in the machine's process namespace, and ends with its status. It stays
// outside of that namespace itself. A nsenter that forks stops when its child is stopped, as systemd does with
// every process before a shutdown. Nobody would reap the child then, and the machine would never go down.
const reaper = `trap : INT QUIT; "$@"; exit $?`

// Enter returns a command that runs as root inside a running machine. It needs no network, sshd or
// key. stateDir is the state directory of the machine's manager, which need not be open.
func Enter(ctx context.Context, stateDir, id string, args ...string) (*exec.Cmd, error) {
	content, err := os.ReadFile(diskOf(stateDir, id).path("leader"))
	if err != nil {
		return nil, fmt.Errorf("machine %s does not run: %w", id, err)
	}
	leader, err := parseProcess(string(content))
	if err != nil || !leader.alive() {
		return nil, fmt.Errorf("machine %s does not run", id)
	}
	if IsVirtual(stateDir, id) {
		return nil, fmt.Errorf("machine %s is a virtual machine, which can be entered over SSH only", id)
	}
	first, err := leader.init()
	if err != nil {
		return nil, fmt.Errorf("machine %s has not booted yet: %w", id, err)
	}
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--target", strconv.Itoa(first.pid), "--all", "--wd", "--no-fork", "--", "sh", "-c", reaper, "sh"}, args...)...)
	cmd.Env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "LANG=C.UTF-8", "TERM=" + os.Getenv("TERM"),
	}
	return cmd, nil
}

// IsVirtual says whether a running machine is a virtual one. stateDir is the state directory of its
// manager.
func IsVirtual(stateDir, id string) bool { return exists(diskOf(stateDir, id).path("qmp.sock")) }
