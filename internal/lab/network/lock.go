package network

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	lockName = "lock"
	// lockPatience is far more than the milliseconds for which anybody holds the lock.
	lockPatience = 30 * time.Second
	lockRetry    = 2 * time.Millisecond
)

// withLock runs fn while no other process runs one for the same directory, and removes the directory if fn leaves it
// empty.
func withLock(dir string, fn func() error) error {
	lock, err := acquire(dir)
	if err != nil {
		return fmt.Errorf("lock %s: %w", dir, err)
	}
	defer lock.Close()
	defer func() {
		if entries, err := os.ReadDir(dir); err == nil && len(entries) == 1 {
			_ = os.Remove(lock.Name())
			_ = os.Remove(dir)
		}
	}()
	return fn()
}

func acquire(dir string) (*os.File, error) {
	for deadline := time.Now().Add(lockPatience); time.Now().Before(deadline); time.Sleep(lockRetry) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o644)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the directory was removed in between
		}
		if err != nil {
			return nil, err
		}
		held, err := tryLock(lock)
		if held {
			return lock, nil
		}
		_ = lock.Close()
		if err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("another process has held it for %s", lockPatience)
}

// tryLock locks a file, if it is free and still the one to be found under its name.
func tryLock(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	held, err := f.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Stat(f.Name())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(held, named), err
}
