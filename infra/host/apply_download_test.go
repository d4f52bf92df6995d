package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

func TestRefusedDownloads(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(web *mirror)
		check func(t *testing.T, web *mirror, err error)
	}{
		{"wrong checksum", func(web *mirror) { web.add("/app-2", []byte("malware")) }, func(t *testing.T, web *mirror, err error) {
			var sum *ChecksumError
			if !errors.As(err, &sum) || sum.Got != desired.Sum([]byte("malware")) || sum.Name != "app 2" || !strings.HasSuffix(sum.URL, "/app-2") {
				t.Errorf("error is %v, want a ChecksumError", err)
			}
		}},
		{"truncated", func(web *mirror) { web.truncate["/app-2"] = true }, func(t *testing.T, web *mirror, err error) {
			var apply *ApplyError
			if !errors.As(err, &apply) || apply.Step != (Step{StepDownload, "app 2", web.URL + "/app-2"}) {
				t.Errorf("error is %v, want an ApplyError at the download", err)
			}
		}},
		{"missing", func(web *mirror) { web.remove("/app-2") }, func(t *testing.T, web *mirror, err error) {
			if !strings.Contains(err.Error(), "404") {
				t.Errorf("error %v does not say why", err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, web := newLocalMachine(t), newMirror(t)
			rec := m.converge(appState(t, m, web, "1"), Record{})
			want := appState(t, m, web, "2")
			good := web.files["/app-2"]
			tt.spoil(web)
			rec, err := m.layout().apply(t.Context(), m, want, m.diff(want, rec), rec, Options{})
			if err == nil {
				t.Fatal("apply succeeded")
			}
			tt.check(t, web, err)
			if got := m.read("bin/app"); got != "#!/bin/sh\necho app 1\n" {
				t.Errorf("the old program was touched: %q", got)
			}
			if m.read("etc/app.conf") != "version=1\n" || m.starts("app.service") != 1 {
				t.Error("something was installed or restarted although a download was refused")
			}
			if left, _ := filepath.Glob(m.file("cache/*.part")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			if tt.name == "missing" && web.count("/app-2") != 1 {
				t.Errorf("asked %d times for a missing file", web.count("/app-2"))
			}
			web.add("/app-2", good)
			web.truncate["/app-2"] = false
			m.converge(want, rec)
			if got := m.read("state/config.app.service"); got != "version=2\n" {
				t.Errorf("app runs with %q", got)
			}
		})
	}
}

func TestTruncatedUploadChangesNothing(t *testing.T) {
	m, web := newLocalMachine(t), newMirror(t)
	rec := m.converge(appState(t, m, web, "1"), Record{})
	want := appState(t, m, web, "2")
	changes := m.diff(want, rec)
	for _, cut := range []int64{1, 511, 512, 1024, 1536, 2048} { // some fall between two files
		m.cut = cut
		_, err := m.layout().apply(t.Context(), m, want, changes, rec, Options{})
		var apply *ApplyError
		if !errors.As(err, &apply) || apply.Step.Kind != StepReceive {
			t.Errorf("upload cut at %d: error %v", cut, err)
		}
	}
	m.cut = 0
	if got := m.diff(want, rec); Words(got) != Words(changes) {
		t.Errorf("a truncated upload changed something:\n%s", Words(got))
	}
}

func TestPrefetch(t *testing.T) {
	m, web := newLocalMachine(t), newMirror(t)
	rec := m.converge(appState(t, m, web, "1"), Record{})
	want := appState(t, m, web, "2")
	if err := m.layout().prefetch(t.Context(), m, want, rec); err != nil {
		t.Fatal(err)
	}
	if got := m.read("bin/app"); !strings.Contains(got, "app 1") {
		t.Fatalf("prefetch installed something: %q", got)
	}
	web.Close()
	rec = m.converge(want, rec)
	trips := m.trips.Load()
	if err := m.layout().prefetch(t.Context(), m, want, rec); err != nil || m.trips.Load() != trips {
		t.Errorf("prefetch of what is installed: %v, %d round trips", err, m.trips.Load()-trips)
	}
}

func TestSpoiltPrefetchIsFetchedAgain(t *testing.T) {
	m, web := newLocalMachine(t), newMirror(t)
	want := appState(t, m, web, "1")
	if err := m.layout().prefetch(t.Context(), m, want, Record{}); err != nil {
		t.Fatal(err)
	}
	m.write("cache/"+want.Binaries[0].SHA256, "spoilt")
	m.converge(want, Record{})
	if web.count("/app-1") != 2 || web.count("/tools-1.tar.gz") != 1 {
		t.Errorf("downloads: app %d, tools %d; want 2 and 1", web.count("/app-1"), web.count("/tools-1.tar.gz"))
	}
}

// TestLock checks that two applies on one machine exclude each other, that the error after waiting
// in vain says what was waited for, and that no observation sees a half-done apply.
func TestLock(t *testing.T) {
	m, web := newLocalMachine(t), newMirror(t)
	want := appState(t, m, web, "1")
	changes := m.diff(want, Record{})
	if err := os.MkdirAll(m.file("run"), 0o700); err != nil {
		t.Fatal(err)
	}
	hold := func() *os.File {
		lock, err := os.Create(m.file("run/lock"))
		if err == nil {
			err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
		}
		if err != nil {
			t.Fatal(err)
		}
		return lock
	}
	lock := hold()
	_, err := m.layout().apply(announced{t.Context(), reportTime + 1500*time.Millisecond}, m, want, changes, Record{}, Options{})
	var apply *ApplyError
	if !errors.As(err, &apply) || apply.Step.Kind != StepLock {
		t.Errorf("error is %v", err)
	}
	lock.Close()
	lock = hold()
	var released atomic.Bool
	time.AfterFunc(time.Second, func() { released.Store(true); lock.Close() })
	start := time.Now()
	m.observe(want, Record{})
	if d := time.Since(start); !released.Load() && d < 5*time.Second { // no observation waits for longer
		t.Errorf("the machine was observed after %s while an apply was at work", d)
	}
	m.converge(want, Record{})
}
