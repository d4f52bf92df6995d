package lab

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/mirror"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/outside"
)

// newOutside returns an account without machines, and an internet without listeners.
func newOutside(t *testing.T) (*cloud.Account, *internet) {
	t.Helper()
	account, err := cloud.Open(cloud.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(account.Close)
	var world internet
	world.archive = outside.NewArchive(t.TempDir(), "http://127.0.0.1:1/debian", &world.archiveLog, slog.New(slog.DiscardHandler))
	return account, &world
}

func TestControlOfTheOutside(t *testing.T) {
	account, world := newOutside(t)
	world.files = mirror.New(t.TempDir())
	control := newControl(account, world, Daemon{}, nil)
	do := func(handler http.Handler, method, path, body string) (int, string) {
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		r.RemoteAddr = "203.0.113.9:4711"
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		out, _ := io.ReadAll(w.Result().Body)
		return w.Code, string(out)
	}
	for _, tc := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "/_lab/faults", `{"kind":"archive","fault":"unavailable","count":2,"source":"203.0.113.9"}`, 201, `"source":"203.0.113.9"`},
		{"POST", "/_lab/faults", `{"kind":"archive","fault":"fire"}`, 400, "want stall or unavailable"},
		{"POST", "/_lab/faults", `{"kind":"archive","fault":"stall","source":"me"}`, 400, "reading the fault"},
		{"POST", "/_lab/faults", `{"kind":"archive","path":"/x"}`, 400, "unknown field"},
		{"POST", "/_lab/faults", `{"kind":"mirror","fault":"flip"}`, 400, "needs the path"},
		{"POST", "/_lab/faults", `{"kind":"mirror","path":"/x","fault":"flip"}`, 201, `"/x"`},
		{"POST", "/_lab/faults", `{"kind":"capacity"}`, 201, `"RunInstances"`},
		{"POST", "/_lab/faults", `{`, 400, "reading the fault"},
		{"GET", "/_lab/faults", "", 200, `{"kind":"archive","fault":"unavailable","count":2,"source":"203.0.113.9"}`},
		{"GET", "/_lab/outside", "", 200, `{"web":[],"archive":[]}`},
	} {
		if status, out := do(control, tc.method, tc.path, tc.body); status != tc.status || !strings.Contains(out, tc.says) {
			t.Errorf("%s %s %s: %d %s, want %d and %q", tc.method, tc.path, tc.body, status, out, tc.status, tc.says)
		}
	}
	if status, _ := do(world.archive, "GET", "/debian/dists/trixie/InRelease", ""); status != 503 {
		t.Errorf("archive: %d", status)
	}
	if status, out := do(control, "POST", "/_lab/faults", `{"kind":"line","mbit":8}`); status != 201 || !strings.Contains(out, `"mbit":8`) {
		t.Errorf("line: %d %s", status, out)
	}
	if _, out := do(control, "GET", "/_lab/faults", ""); !strings.Contains(out, `{"kind":"line","mbit":8}`) {
		t.Errorf("faults: %s", out)
	}
	do(outside.Web(&world.webLog), "GET", "/hello", "")
	if _, out := do(control, "GET", "/_lab/outside", ""); strings.Count(out, `"source":"203.0.113.9"`) != 2 || !strings.Contains(out, `"/hello"`) {
		t.Errorf("asked: %s", out)
	}
	for _, path := range []string{"/_lab/outside", "/_lab/faults"} {
		if status, out := do(control, "DELETE", path, ""); status != 204 {
			t.Errorf("DELETE %s: %d %s", path, status, out)
		}
	}
	if _, out := do(control, "GET", "/_lab/faults", ""); strings.TrimSpace(out) != "[]" {
		t.Errorf("faults after all were cleared: %s", out)
	}
	if _, out := do(control, "GET", "/_lab/outside", ""); strings.Contains(out, "hello") {
		t.Errorf("requests after the log was cleared: %s", out)
	}
}

func TestBareLabHasNoMirror(t *testing.T) {
	account, world := newOutside(t)
	control := newControl(account, world, Daemon{}, nil)
	for _, tc := range []struct {
		method, path, body, says string
	}{
		{"POST", "/_lab/faults", `{"kind":"mirror","path":"/x","fault":"flip"}`, "is bare"},
		{"GET", "/_lab/faults", "", "[]"},
		{"GET", "/_lab/mirror", "", "{}"},
		{"DELETE", "/_lab/faults", "", ""},
	} {
		w := httptest.NewRecorder()
		control.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), tc.method, tc.path, strings.NewReader(tc.body)))
		if !strings.Contains(w.Body.String(), tc.says) {
			t.Errorf("%s %s: %d %s", tc.method, tc.path, w.Code, w.Body)
		}
	}
}

func TestToken(t *testing.T) {
	account, world := newOutside(t)
	handler := func(token string) http.Handler {
		return withToken(token, newControl(account, world, Daemon{}, nil))
	}
	for _, tc := range []struct {
		token, path, authorization string
		status                     int
	}{
		{"secret", "/_lab/state", "Bearer secret", 200},
		{"secret", "/_lab/state", "", 401},
		{"secret", "/_lab/state", "Bearer secre", 401},
		{"secret", "/_lab/state", "secret", 401},
		{"secret", "/_lab/daemon", "", 401},
		{"", "/_lab/state", "Bearer ", 401}, // a lab without a token is closed, not open
		{"secret", "/", "", 400},            // the AWS APIs have signatures
	} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", tc.path, nil)
		if tc.authorization != "" {
			r.Header.Set("Authorization", tc.authorization)
		}
		w := httptest.NewRecorder()
		handler(tc.token).ServeHTTP(w, r)
		if w.Code != tc.status {
			t.Errorf("%s with %q: %d %s, want %d", tc.path, tc.authorization, w.Code, w.Body, tc.status)
		}
	}
}
