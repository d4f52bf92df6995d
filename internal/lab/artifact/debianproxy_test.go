package artifact

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func TestDebianHandler(t *testing.T) {
	var requests atomic.Int64
	var release atomic.Value
	release.Store("release 1")
	archive := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		switch r.URL.Path {
		case "/debian/pool/main/h/hello.deb":
			_, _ = w.Write([]byte("package"))
		case "/debian/dists/bookworm/InRelease":
			_, _ = w.Write([]byte(release.Load().(string)))
		default:
			http.NotFound(w, r)
		}
	}))
	defer archive.Close()
	handler, err := DebianHandler(t.TempDir(), archive.URL+"/debian", nil)
	must(t, err)
	proxy := httptest.NewServer(handler)
	defer proxy.Close()
	expect := func(path string, status int, want string) {
		t.Helper()
		got, err := get(t, "GET", proxy.URL+path)
		if err != nil || got.status != status || status == 200 && got.body != want {
			t.Errorf("%s: %d %q, %v; want %d %q", path, got.status, got.body, err, status, want)
		}
	}

	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { expect("/pool/main/h/hello.deb", 200, "package") })
	}
	wg.Wait()
	expect("/pool/main/h/hello.deb", 200, "package")
	if n := requests.Load(); n != 1 {
		t.Errorf("a package was fetched %d times", n)
	}
	expect("/dists/bookworm/InRelease", 200, "release 1")
	release.Store("release 2")
	expect("/dists/bookworm/InRelease", 200, "release 2")
	expect("/pool/none.deb", 404, "")
	expect("/pool", 404, "")

	archive.Close()
	expect("/pool/main/h/hello.deb", 200, "package")
	expect("/dists/bookworm/InRelease", 200, "release 2")
	expect("/dists/bookworm/Release", 502, "")
	if got, err := get(t, "PUT", proxy.URL+"/pool/x"); err != nil || got.status != 405 {
		t.Errorf("PUT: %d, %v; want 405", got.status, err)
	}

	for _, bad := range []string{"", "ftp://example.test/debian", "example.test/debian", "http://"} {
		if _, err := DebianHandler(t.TempDir(), bad, nil); err == nil {
			t.Errorf("archive %q is accepted", bad)
		}
	}
}

func TestDebianUpstream(t *testing.T) {
	for name, tc := range map[string]struct{ file, text, want string }{
		"deb822":    {"sources.list.d/debian.sources", "Types: deb\nURIs: http://example.test/debian/\nSuites: bookworm\n", "http://example.test/debian"},
		"one line":  {"sources.list", "# deb http://no.test/debian x\ndeb [arch=amd64] https://example.test/mirror/debian bookworm main\n", "https://example.test/mirror/debian"},
		"security":  {"sources.list", "deb http://example.test/debian-security bookworm-security main\n", DefaultDebianUpstream},
		"ubuntu":    {"sources.list.d/u.list", "deb http://example.test/ubuntu noble main\n", DefaultDebianUpstream},
		"no source": {"sources.list", "", DefaultDebianUpstream},
	} {
		dir := t.TempDir()
		must(t, writeFile(filepath.Join(dir, tc.file), []byte(tc.text)))
		if got := DebianUpstream(dir); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	if got := DebianUpstream("/nonexistent"); !strings.HasPrefix(got, "http") {
		t.Errorf("without sources: %q", got)
	}
}
