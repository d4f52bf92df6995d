package outside

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Speed is what the line of one machine to the internet can do. The zero Speed has no limits.
type Speed struct {
	// Mbit is how many megabits (10^6 bits) a second the servers of the internet send to one address
	// together; 0 means as many as they can.
	Mbit float64 `json:"mbit,omitempty"`
	// Milliseconds is how long every answer takes to begin.
	Milliseconds int `json:"milliseconds,omitempty"`
}

func (s Speed) validate() error {
	switch {
	case s.Mbit < 0 || s.Milliseconds < 0:
		return errors.New("mbit and milliseconds must not be negative")
	case s == Speed{}:
		return errors.New("a slow line needs mbit or milliseconds")
	}
	return nil
}

// Line makes servers as slow as a line to the internet. Each address has a line of its own. The zero Line
// has no limits and is ready for use. It is safe for concurrent use.
type Line struct {
	mu    sync.Mutex
	speed Speed
	lines map[netip.Addr]*rate.Limiter
}

// lineBurst is how many bytes a line sends at once.
const lineBurst = 64 << 10

// SetSpeed changes the speed of all lines, for answers that begin from now on. Answers under way
// first finish a wait at the old speed, and stay unlimited if they began without limits. It fails
// on an invalid speed.
func (l *Line) SetSpeed(s Speed) error {
	if err := s.validate(); err != nil {
		return err
	}
	l.set(s)
	return nil
}

// Reset removes all limits. Answers that wait finish their wait.
func (l *Line) Reset() { l.set(Speed{}) }

func (l *Line) set(s Speed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.speed = s
	for _, line := range l.lines {
		line.SetLimit(s.limit())
	}
}

// limit is in bytes a second.
func (s Speed) limit() rate.Limit {
	if s.Mbit == 0 {
		return rate.Inf
	}
	return rate.Limit(s.Mbit * 1e6 / 8)
}

// Speed returns the speed that was set, or the zero Speed.
func (l *Line) Speed() Speed {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.speed
}

// to returns the line to an address, and the delay of an answer.
func (l *Line) to(source netip.Addr) (*rate.Limiter, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.lines[source]
	if line == nil {
		if l.lines == nil {
			l.lines = map[netip.Addr]*rate.Limiter{}
		}
		line = rate.NewLimiter(l.speed.limit(), lineBurst)
		l.lines[source] = line
	}
	return line, time.Duration(l.speed.Milliseconds) * time.Millisecond
}

// Handler returns a server whose answers go through the line of the address that asks.
func (l *Line) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.Speed() == (Speed{}) {
			next.ServeHTTP(w, r)
			return
		}
		line, delay := l.to(source(r))
		select {
		case <-time.After(delay):
		case <-r.Context().Done():
			return
		}
		next.ServeHTTP(&slowWriter{w, r.Context(), line}, r)
	})
}

// slowWriter sends a body through a line.
type slowWriter struct {
	http.ResponseWriter
	//nolint:containedctx // of the request, which ends with the writer
	ctx  context.Context
	line *rate.Limiter
}

func (w *slowWriter) Write(p []byte) (written int, err error) {
	for len(p) > 0 && err == nil {
		n := min(len(p), lineBurst)
		if err = w.line.WaitN(w.ctx, n); err != nil {
			break
		}
		n, err = w.ResponseWriter.Write(p[:n])
		written, p = written+n, p[n:]
	}
	return written, err
}

// Unwrap is for http.ResponseController.
func (w *slowWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
