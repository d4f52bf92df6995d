package outside

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sync/singleflight"
)

const (
	// freshness is how long a file that may change upstream is served from the cache without asking
	// upstream.
	freshness = 6 * time.Hour
	// downloadTimeout bounds the download of one file.
	downloadTimeout = 10 * time.Minute
	// answerTimeout bounds the wait for the headers of the upstream's answer.
	answerTimeout = 30 * time.Second
	// capacity bounds the size of the cache, in bytes.
	capacity = 2 << 30
)

// roots are the URL paths below which an Archive serves Debian's archives, as on Debian's own
// servers.
var roots = []string{"/debian/", "/debian-security/"}

// errNotThere says that the upstream does not have a file.
var errNotThere = errors.New("not found upstream")

// Archive is an HTTP handler that serves Debian's package archives from a cache, which it fills
// from an upstream on request. Several archives, also in several processes, may share a cache.
type Archive struct {
	dir      string // of the cache
	upstream string // base URL of Debian's archive, "http://deb.debian.org/debian"
	capacity int64  // bytes
	client   *http.Client
	now      func() time.Time
	requests *Log
	log      *slog.Logger

	downloads singleflight.Group

	mu     sync.Mutex
	faults []Fault
}

// NewArchive returns an archive with its cache in dir. upstream is the base URL of a Debian mirror;
// the security archive is expected beside it, at the same URL with "-security" appended. Requests
// are logged in requests.
func NewArchive(dir, upstream string, requests *Log, log *slog.Logger) *Archive {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = answerTimeout
	// Files are stored and served as they are in the archive, compressed or not.
	transport.DisableCompression = true
	return &Archive{
		dir: dir, upstream: strings.TrimSuffix(upstream, "/"), capacity: capacity,
		client: &http.Client{Transport: transport}, now: time.Now, requests: requests, log: log,
	}
}

// ServeHTTP implements http.Handler.
func (a *Archive) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	source := a.requests.note(r)
	switch a.effect(source) {
	case Stall:
		<-r.Context().Done()
		return
	case Unavailable:
		http.Error(w, "this archive is unavailable because of an injected fault", http.StatusServiceUnavailable)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "this archive is read-only", http.StatusMethodNotAllowed)
		return
	}
	name, ok := servable(r.URL.Path)
	if !ok {
		http.NotFound(w, r)
		return
	}
	f, err := a.open(r.Context(), name)
	if err != nil {
		status := http.StatusBadGateway
		if errors.Is(err, errNotThere) {
			status = http.StatusNotFound
		}
		http.Error(w, err.Error(), status)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, name, info.ModTime(), f)
}

// servable returns the name of the file at a URL path, relative to the cache.
func servable(urlPath string) (string, bool) {
	if path.Clean(urlPath) != urlPath {
		return "", false
	}
	for _, root := range roots {
		if strings.HasPrefix(urlPath, root) && !strings.HasPrefix(path.Base(urlPath), ".") {
			return strings.TrimPrefix(urlPath, "/"), true
		}
	}
	return "", false
}

// immutable says whether a file never changes: packages have their version in their name, and
// by-hash indices their checksum.
func immutable(name string) bool {
	return strings.Contains(name, "/pool/") || strings.Contains(name, "/by-hash/")
}

// open returns a file of the cache. If need be, it first downloads the file or asks the upstream
// whether it has changed. All requests for a file share one download, which continues when the
// first of them gives up.
func (a *Archive) open(ctx context.Context, name string) (*os.File, error) {
	if !a.fresh(name) {
		done := a.downloads.DoChan(name, func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), downloadTimeout)
			defer cancel()
			return nil, a.download(ctx, name)
		})
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case result := <-done:
			if err := a.tolerate(name, result.Err); err != nil {
				return nil, err
			}
		}
	}
	f, err := os.Open(a.file(name))
	if err != nil {
		return nil, fmt.Errorf("cached %s: %w", name, err)
	}
	a.used(f)
	return f, nil
}

// tolerate turns the error of a download into a warning if the cache has the file.
func (a *Archive) tolerate(name string, err error) error {
	if err == nil || errors.Is(err, errNotThere) {
		return err
	}
	if _, statErr := os.Stat(a.file(name)); statErr != nil {
		return err
	}
	a.log.Warn("the archive's upstream does not answer; serving the cached file", "file", name, "error", err)
	return nil
}

func (a *Archive) file(name string) string { return filepath.Join(a.dir, filepath.FromSlash(name)) }

// checkedSuffix ends the names of the files that checkedFile names.
const checkedSuffix = ".checked"

// checkedFile returns the name of the file whose time says when file name was last compared with
// upstream's.
func (a *Archive) checkedFile(name string) string {
	dir, base := filepath.Split(a.file(name))
	return filepath.Join(dir, "."+base+checkedSuffix)
}

func (a *Archive) fresh(name string) bool {
	if _, err := os.Stat(a.file(name)); err != nil {
		return false
	}
	if immutable(name) {
		return true
	}
	checked, err := os.Stat(a.checkedFile(name))
	return err == nil && a.now().Sub(checked.ModTime()) < freshness
}

// download downloads a file into the cache, unless the cache has upstream's version.
func (a *Archive) download(ctx context.Context, name string) error {
	if a.fresh(name) {
		return nil // another request has downloaded it
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url(name), nil)
	if err != nil {
		return fmt.Errorf("fetching %s: %w", name, err)
	}
	if info, err := os.Stat(a.file(name)); err == nil {
		req.Header.Set("If-Modified-Since", info.ModTime().UTC().Format(http.TimeFormat))
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return fmt.Errorf("fetching %s: %w", name, err)
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	switch resp.StatusCode {
	case http.StatusOK:
		if err := a.save(name, resp); err != nil {
			return fmt.Errorf("fetching %s: %w", a.url(name), err)
		}
		a.prune()
	case http.StatusNotModified:
	case http.StatusNotFound, http.StatusForbidden:
		return fmt.Errorf("%s: %w", a.url(name), errNotThere)
	default:
		return fmt.Errorf("%s: %s", a.url(name), resp.Status)
	}
	if immutable(name) {
		return nil
	}
	return a.noteChecked(name)
}

func (a *Archive) url(name string) string {
	archive, rest, _ := strings.Cut(name, "/")
	return a.upstream + strings.TrimPrefix(archive, "debian") + (&url.URL{Path: "/" + rest}).EscapedPath()
}

// save replaces a file of the cache atomically, so that no reader gets half of it.
func (a *Archive) save(name string, resp *http.Response) error {
	file := a.file(name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	tmp, err := renameio.NewPendingFile(file, renameio.WithTempDir(filepath.Dir(file)))
	if err != nil {
		return err
	}
	defer tmp.Cleanup() //nolint:errcheck // after a failure, which is returned
	n, err := io.Copy(tmp, resp.Body)
	if err != nil {
		return err
	}
	if resp.ContentLength >= 0 && n != resp.ContentLength {
		return fmt.Errorf("%d bytes of %d came", n, resp.ContentLength)
	}
	// Clients send this time in If-Modified-Since.
	changed, err := http.ParseTime(resp.Header.Get("Last-Modified"))
	if err != nil {
		changed = a.now()
	}
	if err := os.Chtimes(tmp.Name(), a.now(), changed); err != nil {
		return err
	}
	return tmp.CloseAtomicallyReplace()
}

func (a *Archive) noteChecked(name string) error {
	file := a.checkedFile(name)
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		return fmt.Errorf("noting that %s was checked: %w", name, err)
	}
	return os.Chtimes(file, a.now(), a.now())
}
