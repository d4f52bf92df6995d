package cache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// lockRetry is the time between two attempts to take a lock that another process holds.
const lockRetry = 200 * time.Millisecond

// newLock returns a lock on a file that every user of the cache may open.
func newLock(name string) *flock.Flock {
	return flock.New(name, flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o644))
}

// Lock takes the lock of a part of the cache: a file that a process holds while it adds to that
// part, and whose lock the kernel frees when the process ends. If another process has the lock,
// Lock calls waiting once with that process's id, and waits until the lock is free. If ctx ends
// first, the error is its cause. The directory of the file must exist.
func Lock(ctx context.Context, name string, waiting func(pid string)) (unlock func(), err error) {
	l := newLock(name)
	held, err := l.TryLock()
	if err == nil && !held {
		holder, _ := os.ReadFile(name)
		waiting(strings.TrimSpace(string(holder)))
		if held, err = l.TryLockContext(ctx, lockRetry); errors.Is(err, ctx.Err()) {
			err = context.Cause(ctx)
		}
	}
	if !held {
		return nil, err
	}
	_ = os.WriteFile(name, []byte(fmt.Sprintln(os.Getpid())), 0o644) // shown to those who wait
	return func() { _ = l.Unlock() }, nil
}

// TryLock is like Lock, but does not wait: unlock is nil when another process has the lock.
func TryLock(name string) (unlock func(), err error) {
	l := newLock(name)
	if held, err := l.TryLock(); !held {
		return nil, err
	}
	return func() { _ = l.Unlock() }, nil
}
