package outside

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// logLength is how many of the last requests a Log keeps.
const logLength = 10000

// Request is one line of a Log.
type Request struct {
	Time   time.Time  `json:"time"`
	Source netip.Addr `json:"source"` // the address the request came from
	Host   string     `json:"host"`   // the Host header
	Path   string     `json:"path"`
}

// Log keeps the last requests that a server received. The zero Log is ready for use and safe for
// concurrent use.
type Log struct {
	mu       sync.Mutex
	requests []Request
}

// Requests returns the requests received since the last Reset, oldest first.
func (l *Log) Requests() []Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Request{}, l.requests...)
}

// Reset forgets all requests.
func (l *Log) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests = nil
}

// note adds a request and returns the address it came from.
func (l *Log) note(r *http.Request) netip.Addr {
	from := source(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests = append(l.requests, Request{time.Now().UTC(), from, r.Host, r.URL.Path})
	if surplus := len(l.requests) - logLength; surplus > 0 {
		l.requests = slices.Delete(l.requests, 0, surplus)
	}
	return from
}

// source returns the address that a request came from; zero if it is not known.
func source(r *http.Request) netip.Addr {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return from.Addr().Unmap()
}

// Web returns a server that answers every request with the address it came from, and logs it in
// log.
func Web(log *Log) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		source := log.note(r)
		w.Header().Set("Content-Type", "text/plain")
		_, _ = fmt.Fprintln(w, source) // the client is gone if this fails
	})
}
