package outside

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	packageFile = "/debian/pool/main/h/hello/hello_2.10+b1~1_amd64.deb"
	releaseFile = "/debian/dists/trixie/InRelease"
)

// mirror is an upstream that counts requests.
type mirror struct {
	*httptest.Server
	mu      sync.Mutex
	asked   map[string]int // by path and status
	content map[string]string
	changed time.Time
	down    bool
	hold    chan struct{} // closed when answers may go out
}

func newMirror(t *testing.T) *mirror {
	m := &mirror{asked: map[string]int{}, content: map[string]string{}, changed: time.Now().Add(-time.Hour), hold: make(chan struct{})}
	close(m.hold)
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

func (m *mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	content, ok := m.content[r.URL.Path]
	m.asked[r.URL.Path]++
	hold, down, changed := m.hold, m.down, m.changed
	m.mu.Unlock()
	<-hold
	switch {
	case down:
		http.Error(w, "down", http.StatusInternalServerError)
	case !ok:
		http.NotFound(w, r)
	default:
		http.ServeContent(w, r, "", changed, strings.NewReader(content))
	}
}

func (m *mirror) set(path, content string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.content[path] = content
	m.changed = m.changed.Add(time.Minute)
}

func (m *mirror) count(path string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked[path]
}

// archive returns an Archive with the clock now.
func (m *mirror) archive(dir string, now *time.Time) *Archive {
	a := NewArchive(dir, m.URL+"/debian", &Log{}, slog.New(slog.DiscardHandler))
	a.now = func() time.Time { return *now }
	return a
}

func get(a http.Handler, path string, headers ...string) (int, string) {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, path, nil)
	r.RemoteAddr = "203.0.113.9:4711"
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	body, _ := io.ReadAll(w.Result().Body)
	return w.Code, string(body)
}

func want(t *testing.T, a http.Handler, path string, status int, content string, headers ...string) {
	t.Helper()
	if code, got := get(a, path, headers...); code != status || status < 300 && got != content {
		t.Errorf("%s: %d %q, want %d %q", path, code, got, status, content)
	}
}

func TestArchiveKeepsWhatItFetched(t *testing.T) {
	m, now, dir := newMirror(t), time.Now(), t.TempDir()
	const security = "/debian-security/dists/trixie-security/by-hash/SHA256/aa"
	for path, content := range map[string]string{packageFile: "hello", releaseFile: "release", security: "index"} {
		m.set(path, content)
	}
	for n, a := range []*Archive{m.archive(dir, &now), m.archive(dir, &now)} { // the second is like another lab's
		for range 2 {
			want(t, a, packageFile, 200, "hello")
			want(t, a, packageFile, 206, "el", "Range", "bytes=1-2")
			want(t, a, releaseFile, 200, "release")
			want(t, a, security, 200, "index")
		}
		for _, path := range []string{packageFile, releaseFile, security} {
			if got := m.count(path); got != 1 {
				t.Errorf("archive %d: the upstream was asked %d times for %s", n, got, path)
			}
		}
	}
	a := m.archive(dir, &now)
	for _, path := range []string{"/debian/pool/nothing.deb", "/", "/etc/passwd", "/debian/../x", "/debian/dists/trixie/.InRelease.checked", "/debian/"} {
		want(t, a, path, 404, "")
	}
	if got := a.requests.Requests()[0]; got.Source != netip.MustParseAddr("203.0.113.9") {
		t.Errorf("logged: %+v", got)
	}
}

func TestArchiveAsksAgainForWhatMayChange(t *testing.T) {
	m, now := newMirror(t), time.Now()
	a := m.archive(t.TempDir(), &now)
	m.set(releaseFile, "old")
	want(t, a, releaseFile, 200, "old")
	m.set(releaseFile, "new")
	now = now.Add(freshness - time.Minute)
	want(t, a, releaseFile, 200, "old")
	now = now.Add(2 * time.Minute)
	want(t, a, releaseFile, 200, "new")
	now = now.Add(freshness + time.Minute)
	want(t, a, releaseFile, 200, "new") // not modified
	want(t, a, releaseFile, 200, "new")
	if got := m.count(releaseFile); got != 3 {
		t.Errorf("the upstream was asked %d times, want 3", got)
	}
	m.mu.Lock()
	m.down = true
	m.mu.Unlock()
	now = now.Add(freshness + time.Minute)
	want(t, a, releaseFile, 200, "new")
	want(t, a, packageFile, 502, "")
}

func TestOneDownloadForAll(t *testing.T) {
	m, now := newMirror(t), time.Now()
	m.set(packageFile, "hello")
	m.hold = make(chan struct{})
	a := m.archive(t.TempDir(), &now)
	// The first to ask gives up; the download goes on for the others.
	impatient, cancel := context.WithCancel(t.Context())
	first := make(chan error)
	go func() {
		_, err := a.open(impatient, strings.TrimPrefix(packageFile, "/"))
		first <- err
	}()
	for m.count(packageFile) == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-first; err == nil {
		t.Error("a client that gave up was served")
	}
	var group sync.WaitGroup
	for range 6 {
		group.Go(func() { want(t, a, packageFile, 200, "hello") })
	}
	close(m.hold)
	group.Wait()
	if got := m.count(packageFile); got != 1 {
		t.Errorf("the upstream was asked %d times", got)
	}
}

func TestCacheStaysSmall(t *testing.T) {
	m, now, dir := newMirror(t), time.Now(), t.TempDir()
	a := m.archive(dir, &now)
	a.capacity = 3000
	file := func(n int) string { return fmt.Sprintf("/debian/pool/%d.deb", n) }
	for n := range 5 {
		m.set(file(n), strings.Repeat("x", 1000))
	}
	abandonedFile := filepath.Join(dir, ".old.deb1")
	if err := os.WriteFile(abandonedFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(abandonedFile, now.Add(-2*abandoned), now); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1, 2, 0, 3, 4} { // 0 is used again, 1 and 2 are not
		now = now.Add(time.Minute)
		if code, body := get(a, file(n)); code != 200 || len(body) != 1000 {
			t.Fatalf("%s: %d", file(n), code)
		}
	}
	for n, kept := range []bool{true, false, false, true, true} {
		if _, err := os.Stat(a.file(strings.TrimPrefix(file(n), "/"))); (err == nil) != kept {
			t.Errorf("%s: %v, want kept: %v", file(n), err, kept)
		}
	}
	if _, err := os.Stat(abandonedFile); err == nil {
		t.Error("a download that ended long ago is still there")
	}
}

func TestHalfADownloadIsNotKept(t *testing.T) {
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write(bytes.Repeat([]byte("x"), 500))
	}))
	defer cut.Close()
	dir := t.TempDir()
	want(t, NewArchive(dir, cut.URL+"/debian", &Log{}, slog.New(slog.DiscardHandler)), packageFile, 502, "")
	left, err := filepath.Glob(filepath.Join(dir, filepath.Dir(packageFile), "*"))
	hidden, _ := filepath.Glob(filepath.Join(dir, filepath.Dir(packageFile), ".*"))
	if err != nil || len(left)+len(hidden) > 0 {
		t.Errorf("left: %v %v %v", left, hidden, err)
	}
}

func TestFaults(t *testing.T) {
	m, now := newMirror(t), time.Now()
	m.set(packageFile, "hello")
	a := m.archive(t.TempDir(), &now)
	add := func(f Fault) {
		t.Helper()
		if err := a.AddFault(f); err != nil {
			t.Fatal(err)
		}
	}
	add(Fault{Effect: Unavailable, Count: 2})
	want(t, a, packageFile, 503, "")
	want(t, a, packageFile, 503, "")
	want(t, a, packageFile, 200, "hello")
	add(Fault{Effect: Unavailable, Source: netip.MustParseAddr("203.0.113.10")})
	want(t, a, packageFile, 200, "hello")
	add(Fault{Effect: Unavailable, Source: netip.MustParseAddr("203.0.113.9")})
	want(t, a, packageFile, 503, "")
	if got := len(a.Faults()); got != 2 {
		t.Errorf("%d faults, want 2", got)
	}
	a.ClearFaults()
	want(t, a, packageFile, 200, "hello")
	for _, f := range []Fault{{}, {Effect: "fire"}, {Effect: Stall, Count: -1}} {
		if a.AddFault(f) == nil {
			t.Errorf("accepted %+v", f)
		}
	}
}

func TestStall(t *testing.T) {
	m, now := newMirror(t), time.Now()
	m.set(packageFile, "hello")
	a := m.archive(t.TempDir(), &now)
	if err := a.AddFault(Fault{Effect: Stall, Count: 1}); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(a)
	defer srv.Close()
	ask := func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+packageFile, nil)
		if err != nil {
			return err
		}
		resp, err := srv.Client().Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	silent, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	answered := make(chan error, 1)
	go func() { answered <- ask(silent) }()
	// The first request uses the fault up, and is not answered.
	for len(a.Faults()) > 0 && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
	select {
	case err := <-answered:
		t.Errorf("the archive answered (%v), want silence", err)
	case <-time.After(100 * time.Millisecond):
	}
	giveUp()
	if err := ask(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWeb(t *testing.T) {
	var log Log
	web := Web(&log)
	want(t, web, "/hello", 200, "203.0.113.9\n")
	if got := log.Requests(); len(got) != 1 || got[0].Path != "/hello" || got[0].Source.String() != "203.0.113.9" || got[0].Host != "example.com" {
		t.Errorf("log: %+v", got)
	}
	for range logLength + 5 {
		get(web, "/more")
	}
	if got := log.Requests(); len(got) != logLength || got[0].Path != "/more" {
		t.Errorf("%d lines in the log, the first %+v", len(got), got[0])
	}
	log.Reset()
	if got := log.Requests(); got == nil || len(got) > 0 {
		t.Errorf("log after a reset: %+v", got)
	}
}
