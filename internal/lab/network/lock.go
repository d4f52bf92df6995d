package network

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

const (
	lockName = "lock"
	// lockPatience bounds the wait for the lock, which is held for milliseconds.
	lockPatience = 30 * time.Second
	lockRetry    = 2 * time.Millisecond
)

// withLock runs fn while it holds the directory's lock, and removes the directory if fn leaves it
// empty.
func withLock(dir string, fn func() error) error {
	lock, err := acquire(dir)
	if err != nil {
		return fmt.Errorf("lock %s: %w", dir, err)
	}
	defer lock.Unlock() //nolint:errcheck // the end of the process unlocks, too
	defer func() {
		if entries, err := os.ReadDir(dir); err == nil && len(entries) == 1 {
			_ = os.Remove(lock.Path())
			_ = os.Remove(dir)
		}
	}()
	return fn()
}

func acquire(dir string) (*flock.Flock, error) {
	lock := flock.New(filepath.Join(dir, lockName), flock.SetPermissions(0o644))
	for deadline := time.Now().Add(lockPatience); time.Now().Before(deadline); time.Sleep(lockRetry) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		held, err := lock.TryLock()
		if errors.Is(err, fs.ErrNotExist) {
			continue // the directory was removed in between
		}
		if err != nil {
			return nil, err
		}
		if !held {
			continue
		}
		found, err := isNamed(lock)
		if found {
			return lock, nil
		}
		if err := errors.Join(err, lock.Unlock()); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("another process has held it for %s", lockPatience)
}

// isNamed says whether the file of a held lock still has its name. The previous holder may have
// removed it.
func isNamed(lock *flock.Flock) (bool, error) {
	held, err := lock.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Stat(lock.Path())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(held, named), err
}
