// Package mirror serves the files of a directory over HTTP, and damages answers on request.
//
// It does not know what the files are, how they got there, or on which address they are served.
package mirror

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path"
	"strings"
	"sync"
)

// Fault is damage that a Handler does to an answer, to test that clients check what they download.
// The file on disk stays intact.
type Fault string

// The faults a Handler knows.
const (
	// FaultNone serves the file as it is.
	FaultNone Fault = ""
	// FaultTruncate serves the first half of the file as if it were the whole.
	FaultTruncate Fault = "truncate"
	// FaultFlip inverts one byte in the middle of the file.
	FaultFlip Fault = "flip"
	// FaultCut announces the whole file's length and closes the connection halfway.
	FaultCut Fault = "cut"
	// FaultMissing answers 404 Not Found.
	FaultMissing Fault = "missing"
)

// Handler serves the files of a directory, supports range requests, and counts requests. It is safe
// for concurrent use.
type Handler struct {
	dir string

	mu     sync.Mutex
	counts map[string]int
	faults map[string]Fault
}

// New returns a Handler that serves the files of dir. It lists no directories and follows no links
// out of dir.
func New(dir string) *Handler {
	return &Handler{dir: dir, counts: make(map[string]int), faults: make(map[string]Fault)}
}

// SetFault damages the file of a URL path in every answer from now on, until FaultNone is set. It
// fails on an unknown fault.
func (m *Handler) SetFault(urlPath string, f Fault) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch f {
	case FaultNone:
		delete(m.faults, clean(urlPath))
	case FaultTruncate, FaultFlip, FaultCut, FaultMissing:
		m.faults[clean(urlPath)] = f
	default:
		return fmt.Errorf("unknown fault %q: want %s, %s, %s, %s or none", f, FaultTruncate, FaultFlip, FaultCut, FaultMissing)
	}
	return nil
}

// Faults returns the faults in force, by URL path.
func (m *Handler) Faults() map[string]Fault {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.faults)
}

// Counts returns how many GET requests there were, by URL path, for files that exist and for files
// that do not.
func (m *Handler) Counts() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.counts)
}

// ServeHTTP implements http.Handler.
func (m *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "this mirror is read-only", http.StatusMethodNotAllowed)
		return
	}
	name := clean(r.URL.Path)
	m.mu.Lock()
	if r.Method == http.MethodGet {
		m.counts[name]++
	}
	fault := m.faults[name]
	m.mu.Unlock()

	f, err := os.OpenInRoot(m.dir, strings.TrimPrefix(name, "/"))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || fault == FaultMissing {
		http.NotFound(w, r)
		return
	}
	var content io.ReadSeeker = f
	switch half := info.Size() / 2; fault {
	case FaultTruncate:
		content = io.NewSectionReader(f, 0, half)
	case FaultFlip:
		content = io.NewSectionReader(flipped{f, half}, 0, info.Size())
	case FaultCut:
		content = io.NewSectionReader(cut{f, half}, 0, info.Size())
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, name, info.ModTime(), content)
}

func clean(urlPath string) string { return path.Clean("/" + urlPath) }

// flipped inverts the byte at an offset.
type flipped struct {
	io.ReaderAt
	at int64
}

func (r flipped) ReadAt(b []byte, off int64) (int, error) {
	n, err := r.ReaderAt.ReadAt(b, off)
	if i := r.at - off; i >= 0 && i < int64(n) {
		b[i] ^= 0xff
	}
	return n, err
}

// cut fails to read beyond an offset, and net/http then closes the connection.
type cut struct {
	io.ReaderAt
	at int64
}

func (r cut) ReadAt(b []byte, off int64) (int, error) {
	if off >= r.at {
		return 0, io.ErrUnexpectedEOF
	}
	return r.ReaderAt.ReadAt(b[:min(int64(len(b)), r.at-off)], off)
}
