package cloudtest

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"testing"
)

// Fields is the body of a request to the control endpoint.
type Fields map[string]any

// Fault adds a fault.
func (l *Lab) Fault(t *testing.T, f Fields) {
	t.Helper()
	if got := l.Control(t, http.MethodPost, "/_lab/faults", f, nil); got >= 300 {
		t.Fatalf("the fault %v got status %d", f, got)
	}
}

// Control sends in to the control endpoint as JSON, reads the answer into out unless it is nil, and returns the
// status.
func (l *Lab) Control(t *testing.T, method, path string, in, out any) int {
	t.Helper()
	raw, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, l.URL+path, bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	if out != nil {
		if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
			t.Fatal(err)
		}
	}
	return resp.StatusCode
}
