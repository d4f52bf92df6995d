package clients_test

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cache"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/sources"
)

// packages are the clients as Debian 12 has them.
var packages = []string{"awscli", "python3-boto3", "ansible", "openssh-client", "ca-certificates"}

//go:embed testdata/debian.sh
var debian string

// root is a Debian root file system with the clients.
type root struct{ dir string }

// ensureRoot returns the root file system in the cache, and makes it if it is not there.
func ensureRoot(ctx context.Context, cacheDir string) (root, error) {
	parent := filepath.Join(cacheDir, "clients")
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return root{}, err
	}
	sum := sha256.Sum256([]byte(debian + strings.Join(packages, " ")))
	r := root{filepath.Join(parent, "debian-12-"+hex.EncodeToString(sum[:4]))}
	unlock, err := cache.Lock(ctx, filepath.Join(parent, ".lock"), func(string) {})
	if err != nil {
		return root{}, err
	}
	defer unlock()
	if _, err := os.Stat(r.dir); !errors.Is(err, fs.ErrNotExist) {
		return r, err
	}
	if _, err := cache.Sweep(parent, nil); err != nil { // older ones, and what was left unfinished
		return root{}, err
	}
	making := r.dir + ".part"
	if out, err := script(ctx, append([]string{"make", making, sources.DebianMirror()}, packages...)...).CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return root{}, fmt.Errorf("making a root file system of Debian 12 with %v: %w\n%s", packages, err, strings.Join(lines[max(0, len(lines)-15):], "\n"))
	}
	if err := os.Mkdir(filepath.Join(making, "work"), 0o755); err != nil {
		return root{}, err
	}
	return r, os.Rename(making, r.dir)
}

// command returns a command in the root file system with nothing but env in its environment. work is
// its directory /work. It has the host's network.
func (r root) command(ctx context.Context, work string, env []string, args ...string) *exec.Cmd {
	cmd := script(ctx, append([]string{"run", r.dir, work}, args...)...)
	cmd.Env = append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"}, env...)
	return cmd
}

func script(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", debian, "debian.sh"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	return cmd
}
