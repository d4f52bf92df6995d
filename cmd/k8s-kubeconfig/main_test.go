package main

import (
	"strings"
	"testing"
)

// TestBadProxy checks that a proxy that kubectl cannot use is refused before anything is fetched.
func TestBadProxy(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), []string{"-cluster", "demo", "-endpoint", "https://10.240.0.30:6443", "-proxy-url", "localhost:1080"})
	if err == nil || !strings.Contains(err.Error(), `-proxy-url: "localhost:1080" is not an http, https or socks5 URL`) {
		t.Errorf("got %v", err)
	}
}

// TestSignInArguments checks that a sign-in without an issuer says what it needs.
func TestSignInArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"-issuer", "http://login.example.com", "-client-id", "kubernetes"}, {"-issuer", "https://login.example.com"}} {
		if err := run(t.Context(), append([]string{"sign-in"}, args...)); err == nil || !strings.Contains(err.Error(), "-issuer https://... and -client-id are required") {
			t.Errorf("%v: %v", args, err)
		}
	}
}
