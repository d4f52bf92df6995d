package artifact

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
)

// lock takes the cache's lock, which a process holds while it adds to the
// cache and the kernel frees when the process ends.
func lock(ctx context.Context, cacheDir string, p *progress.Reporter) (unlock func(), err error) {
	if err := os.MkdirAll(cacheDir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(cacheDir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	stop := func() {}
	waiting := false
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			break
		}
		if !waiting {
			waiting = true
			holder, _ := os.ReadFile(f.Name())
			title := "waiting for process " + strings.TrimSpace(string(holder)) + ", which is filling " + cacheDir
			p.Line(title)
			stop = p.Quiet(title)
		}
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(200 * time.Millisecond):
			continue
		}
		break
	}
	stop()
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("locking %s: %w", f.Name(), err)
	}
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(fmt.Sprintln(os.Getpid())), 0)
	}
	return func() { _ = f.Close() }, nil
}

// tryLock is lock that does not wait: unlock is nil when another process has it.
func tryLock(cacheDir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(cacheDir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, f.Close()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", f.Name(), err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}
