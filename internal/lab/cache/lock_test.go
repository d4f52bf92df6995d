package cache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

func TestLock(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	nobody := func(pid string) { t.Errorf("waits for process %s", pid) }
	unlock, err := Lock(t.Context(), name, nobody)
	if err != nil {
		t.Fatal(err)
	}
	if other, err := TryLock(name); other != nil || err != nil {
		t.Errorf("tried while it is held: %v, %v", other != nil, err)
	}
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	var holder string
	_, err = Lock(ctx, name, func(pid string) {
		holder = pid
		cancel(gone)
	})
	if !errors.Is(err, gone) || holder != strconv.Itoa(os.Getpid()) {
		t.Errorf("waited for process %q until %v", holder, err)
	}
	unlock()
	if unlock, err = Lock(t.Context(), name, nobody); err != nil {
		t.Fatal(err)
	}
	unlock()
	if unlock, err = TryLock(name); unlock == nil || err != nil {
		t.Fatalf("tried while it is free: %v", err)
	}
	unlock()
	if _, err := TryLock(filepath.Join(name, "none")); err == nil {
		t.Error("locked a file that cannot be")
	}
}
