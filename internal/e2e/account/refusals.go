package account

import (
	"context"
	"log/slog"
	"sync"
)

// refusals counts the refused calls in the log of an account's calls, by error code.
type refusals struct {
	mu sync.Mutex
	n  map[string]int
}

func (r *refusals) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n = nil
}

// Enabled implements slog.Handler.
func (*refusals) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (r *refusals) Handle(_ context.Context, record slog.Record) error {
	record.Attrs(func(a slog.Attr) bool {
		if a.Key != "code" {
			return true
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.n == nil {
			r.n = map[string]int{}
		}
		r.n[a.Value.String()]++
		return false
	})
	return nil
}

// WithAttrs implements slog.Handler. The log of calls has none.
func (r *refusals) WithAttrs([]slog.Attr) slog.Handler { return r }

// WithGroup implements slog.Handler. The log of calls has none.
func (r *refusals) WithGroup(string) slog.Handler { return r }
