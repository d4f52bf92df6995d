package machine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// Enter returns a command that runs as root inside a running machine. It needs no network, sshd or
// key. stateDir is that of the machine's manager, which need not be open.
func Enter(ctx context.Context, stateDir, id string, args ...string) (*exec.Cmd, error) {
	content, err := os.ReadFile(diskOf(stateDir, id).path("leader"))
	if err != nil {
		return nil, fmt.Errorf("machine %s does not run: %w", id, err)
	}
	leader, err := parseProcess(string(content))
	if err != nil || !leader.alive() {
		return nil, fmt.Errorf("machine %s does not run", id)
	}
	if isVirtual(stateDir, id) {
		return nil, fmt.Errorf("machine %s is a virtual machine, which can be entered over SSH only", id)
	}
	first, err := leader.init()
	if err != nil {
		return nil, fmt.Errorf("machine %s has not booted yet: %w", id, err)
	}
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--target", strconv.Itoa(first.pid), "--all", "--wd", "--"}, args...)...)
	cmd.Env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "LANG=C.UTF-8", "TERM=" + os.Getenv("TERM"),
	}
	return cmd, nil
}

// isVirtual says whether a running machine is a virtual one.
func isVirtual(stateDir, id string) bool { return exists(diskOf(stateDir, id).path("qmp.sock")) }

// HostKeys returns the public keys of a running machine's SSH server, each in the form of the file
// authorized_keys. A virtual machine has printed them at its console when it booted for the first
// time.
func HostKeys(ctx context.Context, stateDir, id string) ([]string, error) {
	if isVirtual(stateDir, id) {
		console, err := os.ReadFile(ConsoleLog(stateDir, id))
		if err != nil {
			return nil, fmt.Errorf("console of machine %s: %w", id, err)
		}
		keys := printedKeys(string(console))
		if len(keys) == 0 {
			return nil, fmt.Errorf("machine %s has not printed its host keys at the console yet", id)
		}
		return keys, nil
	}
	read, err := Enter(ctx, stateDir, id, "sh", "-c", "cat /etc/ssh/ssh_host_*_key.pub")
	if err != nil {
		return nil, err
	}
	keys, err := read.Output()
	if err != nil {
		return nil, fmt.Errorf("host keys of machine %s: %w", id, err)
	}
	return hostKey.FindAllString(string(keys), -1), nil
}

var hostKey = regexp.MustCompile(`(?:ssh-[a-z0-9]+|ecdsa-sha2-nistp[0-9]+) AAAA[A-Za-z0-9+/=]+`)

// printedKeys returns the keys that cloud-init printed last.
func printedKeys(console string) []string {
	at := strings.LastIndex(console, "BEGIN SSH HOST KEY KEYS")
	if at < 0 {
		return nil
	}
	block, _, _ := strings.Cut(console[at:], "END SSH HOST KEY KEYS")
	return hostKey.FindAllString(block, -1)
}
