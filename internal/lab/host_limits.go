package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The kernel counts inotify instances per user, not per machine: root on every machine of every lab
// shares one limit, 128 by default. A worker's containerd, kubelet and pods take a dozen, and
// without one containerd starts without its CRI service. It is the only setting of the host that a
// lab raises, and the last lab to end restores it.
const (
	inotifyLimit  = "/proc/sys/fs/inotify/max_user_instances"
	inotifyWanted = 8192
	// claimsDir holds one file per lab that is up; see network.Claim.
	claimsDir      = "/run/k8s-lab"
	inotifyRestore = claimsDir + "/max_user_instances"
)

// raiseLimits raises the host's inotify limit to what the machines need.
func raiseLimits() error { return raise(inotifyLimit, inotifyRestore, inotifyWanted) }

func raise(limit, restore string, wanted int) error {
	now, err := readLimit(limit)
	if err != nil || now >= wanted {
		return err
	}
	if _, err := os.Stat(restore); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(restore), 0o755); err != nil {
			return fmt.Errorf("raising %s: %w", limit, err)
		}
		if err := os.WriteFile(restore, []byte(strconv.Itoa(now)), 0o644); err != nil {
			return fmt.Errorf("raising %s: %w", limit, err)
		}
	}
	if err := os.WriteFile(limit, []byte(strconv.Itoa(wanted)), 0o644); err != nil {
		return fmt.Errorf("raising %s to %d, which the machines need: %w", limit, wanted, err)
	}
	return nil
}

// restoreLimits restores the host's setting when no lab is left.
func restoreLimits() error { return restoreLimit(inotifyLimit, inotifyRestore) }

func restoreLimit(limit, restore string) error {
	others, err := filepath.Glob(filepath.Join(filepath.Dir(restore), "slice-*"))
	if err != nil || len(others) > 0 {
		return err
	}
	before, err := readLimit(restore)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.WriteFile(limit, []byte(strconv.Itoa(before)), 0o644); err != nil {
		return fmt.Errorf("restoring %s: %w", limit, err)
	}
	return os.Remove(restore)
}

func readLimit(name string) (int, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, fmt.Errorf("reading a limit of the host: %w", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, fmt.Errorf("reading a limit of the host, %s: %w", name, err)
	}
	return n, nil
}
