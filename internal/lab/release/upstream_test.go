package release

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
)

// release returns a client that gets files from https://example.test/.
func release(t *testing.T, files map[string]string) *http.Client {
	t.Helper()
	return tlsServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, ok := files["example.test"+r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(content))
	}))
}

// tlsServer returns a client whose requests to every https host are answered by handler.
func tlsServer(t *testing.T, handler http.Handler) *http.Client {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	transport := server.Client().Transport.(*http.Transport).Clone()
	transport.TLSClientConfig.ServerName = "example.com" // which httptest's certificate is for
	transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
	}
	return &http.Client{Transport: transport}
}

func sha(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func TestUpstreamIsPreferred(t *testing.T) {
	const dir = "example.test/releases/v1.0.0/"
	client := release(t, map[string]string{
		dir + "hello.tgz":  "upstream's own bytes",
		dir + "SHA256SUMS": sha("x") + "  other.tgz\n" + sha("upstream's own bytes") + " *hello.tgz\n",
	})
	t.Setenv("PATH", "") // building is impossible
	cache := t.TempDir()
	s := newStore(Options{CacheDir: cache, Client: client}, "mirror")
	must(t, s.ensure(t.Context(), []product{helloProduct("v1.0.0")}))
	if got := read(t, cache, "mirror", helloArchive); got != "upstream's own bytes" {
		t.Errorf("mirror holds %q", got)
	}
	if want := sha("upstream's own bytes") + "  " + helloArchive + "\n"; read(t, cache, "mirror", "SHA256SUMS") != want {
		t.Error("SHA256SUMS is wrong")
	}
	// A changed recipe is no reason to fetch upstream's files again.
	p := helloProduct("v1.0.0")
	p.modules[0].tags = []string{"changed"}
	if missing := s.missing([]product{p}); len(missing) != 0 {
		t.Error("upstream's file is thought to be built from a recipe")
	}
}

func TestWrongDownloadIsRefused(t *testing.T) {
	newModuleProxy(t).addHello("v1.0.0")
	const dir = "example.test/releases/v1.0.0/"
	client := release(t, map[string]string{
		dir + "hello.tgz":  "tampered",
		dir + "SHA256SUMS": sha("genuine") + "  hello.tgz\n",
	})
	cache := t.TempDir()
	s := newStore(Options{CacheDir: cache, Client: client}, "mirror")
	err := s.ensure(t.Context(), []product{helloProduct("v1.0.0")})
	if err == nil || !strings.Contains(err.Error(), sha("genuine")) || !strings.Contains(err.Error(), helloArchive) {
		t.Errorf("error does not name file and checksum: %v", err)
	}
	if found, _ := filepath.Glob(filepath.Join(cache, "mirror", dir, "*")); len(found) != 0 {
		t.Errorf("published %v", found)
	}
}

func TestBuildsWhatUpstreamLacks(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"nothing":     {},
		"no checksum": {helloArchive: "x"},
		"no line in the checksums": {
			helloArchive: "x", filepath.Dir(helloArchive) + "/SHA256SUMS": "<html>welcome to this hotel</html>",
		},
	} {
		t.Run(name, func(t *testing.T) {
			newModuleProxy(t).addHello("v1.0.0")
			client := release(t, files)
			cache := t.TempDir()
			s := newStore(Options{CacheDir: cache, Client: client}, "mirror")
			must(t, s.ensure(t.Context(), []product{helloProduct("v1.0.0")}))
			if got := archiveNames(t, filepath.Join(cache, "mirror", helloArchive)); !strings.HasSuffix(got, "/hello") {
				t.Errorf("archive holds %q", got)
			}
		})
	}
}

func TestUnreachableHostIsTriedOnce(t *testing.T) {
	var dials atomic.Int64
	client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		dials.Add(1)
		return nil, errors.New("no route to host")
	}}}
	l := new(recorder)
	u := newUpstream(client, progress.To(l.print))
	for range 3 {
		if err := u.fetch(t.Context(), helloProduct("v1.0.0"), t.TempDir()); !errors.Is(err, errUnavailable) {
			t.Errorf("fetch: %v", err)
		}
	}
	if dials.Load() != 1 || l.count("example.test cannot be reached (no route to host)") != 1 {
		t.Errorf("%d dials, progress %q", dials.Load(), l.lines)
	}
}

func TestFindChecksum(t *testing.T) {
	sum := sha("content")
	for name, tc := range map[string]struct {
		text string
		ok   bool
	}{
		"bare":            {sum, true},
		"bare, newline":   {sum + "\n", true},
		"sha256sum":       {sum + "  file\n", true},
		"binary mode":     {sum + " *file\n", true},
		"other first":     {sha("x") + "  file.asc\n" + sum + "  file\n", true},
		"in a directory":  {sum + "  ./file\n", true},
		"signed":          {"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\n" + sum + "  file\n-----END", true},
		"upper case":      {strings.ToUpper(sum), true},
		"only others":     {sum + "  file.asc\n", false},
		"not hexadecimal": {strings.Repeat("x", 64) + "  file\n", false},
		"sha512":          {sum + sum + "  file\n", false},
		"empty":           {"", false},
	} {
		got, err := findChecksum(strings.NewReader(tc.text), "file")
		if tc.ok && (err != nil || got != sum) {
			t.Errorf("%s: %s, %v", name, got, err)
		}
		if !tc.ok && !errors.Is(err, errUnavailable) {
			t.Errorf("%s: %s, %v; want errUnavailable", name, got, err)
		}
	}
}
