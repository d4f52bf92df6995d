package loop

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestDevice(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "disk")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 16<<20); err != nil {
		t.Fatal(err)
	}
	d, err := Attach(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		left, err := Below(dir)
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
	if again, err := Attach(file); err != nil || again != d {
		t.Errorf("attached again: %v, %v, want %v", again, err, d)
	}
	if found, ok, err := Find(file); err != nil || !ok || found != d {
		t.Errorf("found %v %v %v, want %v", found, ok, err, d)
	}
	if n, err := d.Bytes(); err != nil || n != 16<<20 {
		t.Errorf("size %d, %v", n, err)
	}
	if err := os.WriteFile(d.path(), []byte("written"), 0); err != nil {
		t.Fatal(err)
	}
	if err := exec.CommandContext(t.Context(), "sync", d.path()).Run(); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(file); err != nil || !bytes.HasPrefix(content, []byte("written")) {
		t.Errorf("the file has %q, %v", content[:min(len(content), 16)], err)
	}
	if err := os.Truncate(file, 32<<20); err != nil {
		t.Fatal(err)
	}
	if err := d.Resize(); err != nil {
		t.Error(err)
	}
	if n, err := d.Bytes(); err != nil || n != 32<<20 {
		t.Errorf("size %d, %v after the file has grown", n, err)
	}
	id, err := d.ID()
	var st unix.Stat_t
	if err != nil || unix.Stat(d.path(), &st) != nil || uint64(id) != st.Rdev {
		t.Errorf("device number %x, want %x (%v)", id, st.Rdev, err)
	}

	claim, err := d.Claim()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Claim(); !errors.Is(err, ErrBusy) {
		t.Errorf("a second claim: %v, want %v", err, ErrBusy)
	}
	defer func(before time.Duration) { detachTimeout = before }(detachTimeout)
	detachTimeout = time.Minute // programs of the host look into new devices
	if err := d.Detach(claim); err != nil {
		t.Error(err)
	}
	if _, ok, err := Find(file); ok || err != nil {
		t.Errorf("found after its end: %v, %v", ok, err)
	}
}

// TestAbandon ends a device while a program has it open.
func TestAbandon(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	file := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := Attach(file)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := os.Open(d.path())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if left, err := Below(filepath.Dir(file)); err != nil || len(left) != 1 || !left[0].Orphan {
		t.Errorf("devices: %v, %v, want one of a removed file", left, err)
	}
	if err := d.Abandon(); err != nil {
		t.Error(err)
	}
	if gone, err := d.gone(); gone || err != nil {
		t.Errorf("gone while it is open: %v, %v", gone, err)
	}
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) { // programs of the host look into new devices
		gone, err := d.gone()
		if gone && err == nil {
			return
		}
		if err != nil || time.Now().After(end) {
			t.Fatalf("gone after it was closed: %v, %v", gone, err)
		}
	}
}
