package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestParse(t *testing.T) {
	o, err := parse([]string{"-root", "../..", "-yes"}, t.Output())
	if err != nil || !o.yes || !filepath.IsAbs(o.root) || o.into != filepath.Join(o.root, ".aws-smoke") {
		t.Errorf("%+v, %v", o, err)
	}
	for want, args := range map[string][]string{
		"is no flag":              {"-root", "../..", "now"},
		"top of the repository":   {"-root", t.TempDir()},
		"flag provided but not d": {"-nonsense"},
	} {
		if _, err := parse(args, t.Output()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// TestSignals ends the trial at the first signal, and the destroying only at the second.
func TestSignals(t *testing.T) {
	trying, end := context.WithCancelCause(t.Context())
	destroying, giveUp := context.WithCancelCause(t.Context())
	signals, said := make(chan os.Signal), &strings.Builder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		interrupt(signals, said, end, giveUp)
	}()
	signals <- os.Interrupt
	<-trying.Done()
	if destroying.Err() != nil || !errors.Is(context.Cause(trying), errInterrupted) || !strings.Contains(said.String(), "destroyed now") {
		t.Errorf("after one signal: %v, %v, %q", context.Cause(trying), destroying.Err(), said.String())
	}
	signals <- syscall.SIGTERM
	<-done
	if !errors.Is(context.Cause(destroying), errInterrupted) {
		t.Error("the second signal does not end the destroying")
	}
}

func TestPublicAddress(t *testing.T) {
	answer, status := "198.51.100.7\n", http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(answer))
	}))
	defer server.Close()
	if a, err := publicAddress(t.Context(), server.URL); err != nil || a.String() != "198.51.100.7" {
		t.Errorf("%v, %v", a, err)
	}
	for _, answer = range []string{"<html>", "2001:db8::1", ""} {
		if a, err := publicAddress(t.Context(), server.URL); err == nil {
			t.Errorf("%q is taken for %v", answer, a)
		}
	}
	answer, status = "198.51.100.7", http.StatusBadGateway
	if _, err := publicAddress(t.Context(), server.URL); err == nil {
		t.Error("an error page is taken for an address")
	}
}

func TestAgainst(t *testing.T) {
	env := map[string]string{}
	getenv := func(name string) string { return env[name] }
	if got := against(getenv); got != "AWS" {
		t.Error(got)
	}
	env["AWS_ENDPOINT_URL_SSM"] = "http://127.0.0.1:1"
	if got := against(getenv); !strings.Contains(got, "not AWS") {
		t.Error(got)
	}
}

// TestVariables takes the file's variables, except for the name of the cluster.
func TestVariables(t *testing.T) {
	file := filepath.Join(t.TempDir(), "vars.json")
	if err := os.WriteFile(file, []byte(`{"cluster": "demo", "workers": 3, "admin_cidrs": ["192.0.2.0/24"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	tr := trial{name: "smoke-1", options: options{varFile: file}}
	vars, err := tr.variables(t.Context())
	if err != nil || vars["cluster"] != "smoke-1" || vars["workers"] != 3.0 || vars["admin_cidrs"] == nil {
		t.Errorf("%v, %v", vars, err)
	}
	if err := os.WriteFile(file, []byte(`workers = 3`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.variables(t.Context()); err == nil || !strings.Contains(err.Error(), file) {
		t.Error(err)
	}
}
