package artifact

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/singleflight"
)

// DefaultDebianUpstream serves Debian to hosts whose apt has no source of it.
const DefaultDebianUpstream = "http://deb.debian.org/debian"

// debianProxy keeps what it once fetched from a Debian archive.
type debianProxy struct {
	dir      string
	upstream *url.URL
	client   *http.Client
	fetches  singleflight.Group
}

// DebianHandler serves the Debian archive at upstream, an http or https URL,
// through a cache in dir, so that machines can install packages that another
// machine installed before even when the archive cannot be reached. A request
// for /pool/x asks for upstream's pool/x. Packages and files named by their
// hash never change and are fetched once; indexes are fetched each time, and
// come from the cache only when upstream does not answer. A nil client means
// http.DefaultClient.
func DebianHandler(dir, upstream string, client *http.Client) (http.Handler, error) {
	u, err := url.Parse(upstream)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("address %q of the Debian archive: want an http or https URL", upstream)
	}
	if client == nil {
		client = http.DefaultClient
	}
	return &debianProxy{dir: dir, upstream: u, client: client}, nil
}

// ServeHTTP implements http.Handler.
func (p *debianProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "this archive is read-only", http.StatusMethodNotAllowed)
		return
	}
	name := clean(r.URL.Path)
	file := filepath.Join(p.dir, filepath.FromSlash(name))
	if _, err := os.Stat(file); err != nil || !immutable(name) {
		// Others may wait for the same file: it is not this request's alone.
		ctx := context.WithoutCancel(r.Context())
		_, fetchErr, _ := p.fetches.Do(name, func() (any, error) { return nil, p.fetch(ctx, name, file) })
		var status statusError
		if errors.As(fetchErr, &status) {
			http.Error(w, fetchErr.Error(), int(status))
			return
		}
		if fetchErr != nil && err != nil {
			http.Error(w, fetchErr.Error(), http.StatusBadGateway)
			return
		}
	}
	f, err := os.Open(file)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, name, info.ModTime(), f)
}

func immutable(name string) bool {
	return strings.HasPrefix(name, "/pool/") || strings.Contains(name, "/by-hash/")
}

// statusError is an answer of upstream other than 200.
type statusError int

func (s statusError) Error() string {
	return fmt.Sprintf("the Debian archive answers %d %s", int(s), http.StatusText(int(s)))
}

// fetch replaces file, at once, by what upstream has under name.
func (p *debianProxy) fetch(ctx context.Context, name, file string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.upstream.JoinPath(name).String(), nil)
	if err != nil {
		return err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return statusError(resp.StatusCode)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	out, err := os.CreateTemp(filepath.Dir(file), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	_, err = io.Copy(out, resp.Body)
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	if modified, err := http.ParseTime(resp.Header.Get("Last-Modified")); err == nil {
		if err := os.Chtimes(out.Name(), modified, modified); err != nil {
			return err
		}
	}
	return os.Rename(out.Name(), file)
}

// DebianUpstream returns the archive that the host's own apt uses for Debian's
// main packages, read from its sources in dir (/etc/apt), or
// DefaultDebianUpstream when there is none.
func DebianUpstream(dir string) string {
	files := []string{filepath.Join(dir, "sources.list")}
	for _, pattern := range []string{"*.list", "*.sources"} {
		// The only error is that of a bad pattern.
		found, _ := filepath.Glob(filepath.Join(dir, "sources.list.d", pattern))
		files = append(files, found...)
	}
	for _, name := range files {
		if uri := debianURI(name); uri != "" {
			return uri
		}
	}
	return DefaultDebianUpstream
}

// debianURI finds, in a file of either of sources.list(5)'s formats, the first
// URI that ends in /debian, as every mirror of the archive's does.
func debianURI(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || !slices.Contains([]string{"deb", "URIs:"}, fields[0]) {
			continue
		}
		for _, field := range fields[1:] {
			u, err := url.Parse(field)
			if err == nil && (u.Scheme == "http" || u.Scheme == "https") && strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), "/debian") {
				return strings.TrimSuffix(field, "/")
			}
		}
	}
	return ""
}
