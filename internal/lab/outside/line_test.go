package outside

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestLine checks that all requests of an address share one line, that another address has a line
// of its own, and that nothing waits without limits.
func TestLine(t *testing.T) {
	body := bytes.Repeat([]byte("x"), 1_000_000)
	server := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Kept", "yes")
		_, _ = w.Write(body)
	})
	get := func(t *testing.T, l *Line, from string) time.Duration {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.RemoteAddr = from
		w := httptest.NewRecorder()
		began := time.Now()
		l.Handler(server).ServeHTTP(w, r)
		if w.Body.Len() != len(body) || w.Header().Get("X-Kept") != "yes" {
			t.Errorf("%d bytes, headers %v", w.Body.Len(), w.Header())
		}
		return time.Since(began).Round(time.Millisecond)
	}
	synctest.Test(t, func(t *testing.T) {
		var l Line
		if took := get(t, &l, "203.0.113.9:1"); took != 0 {
			t.Errorf("without limits it took %s", took)
		}
		if err := l.SetSpeed(Speed{Mbit: 8, Milliseconds: 30}); err != nil {
			t.Fatal(err)
		}
		// A megabyte a second, but for the burst, after the delay.
		if took, want := get(t, &l, "203.0.113.9:1"), 964*time.Millisecond; took != want {
			t.Errorf("alone it took %s, want %s", took, want)
		}
		time.Sleep(time.Minute)
		began := time.Now()
		var all sync.WaitGroup
		for _, from := range []string{"203.0.113.9:1", "203.0.113.9:2", "203.0.113.7:1"} {
			all.Go(func() { get(t, &l, from) })
		}
		all.Wait()
		if took, want := time.Since(began).Round(time.Millisecond), 1964*time.Millisecond; took != want {
			t.Errorf("two for one address, and one for another one, took %s, want %s", took, want)
		}
		l.Reset()
		if took := get(t, &l, "203.0.113.9:1"); took != 0 {
			t.Errorf("after the reset it took %s", took)
		}
	})
}

func TestInvalidSpeed(t *testing.T) {
	for _, s := range []Speed{{}, {Mbit: -1}, {Mbit: 1, Milliseconds: -1}} {
		if err := new(Line).SetSpeed(s); err == nil {
			t.Errorf("%+v is accepted", s)
		}
	}
}
