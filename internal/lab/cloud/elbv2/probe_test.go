package elbv2

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// direct dials what a check is about, and takes note of the interface.
type direct struct{ from *string }

func (d direct) DialFrom(ctx context.Context, id string, to netip.AddrPort) (net.Conn, error) {
	*d.from = id
	return (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
}

func (direct) EndFlows(context.Context, string, netip.AddrPort) error { return nil }

func TestProbe(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code := 200
		switch r.URL.Path {
		case "/slow":
			select {
			case <-r.Context().Done():
			case <-time.After(time.Minute):
			}
		case "/moved":
			w.Header().Set("Location", "/500")
			code = 302
		default:
			_, _ = fmt.Sscanf(r.URL.Path, "/%d", &code)
		}
		if !strings.HasPrefix(r.UserAgent(), "ELB-HealthChecker/") {
			code = 400
		}
		w.WriteHeader(code)
	})
	plain, secret := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	defer plain.Close()
	defer secret.Close()
	closed, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	for _, tt := range []struct {
		protocol, path, matcher string
		to                      net.Addr
		want                    string // a part of the error
	}{
		{"TCP", "", "", plain.Listener.Addr(), ""},
		{"TCP", "", "", closed.Addr(), "refused"},
		{"HTTP", "/200", "200-399", plain.Listener.Addr(), ""},
		{"HTTP", "/500", "200-399", plain.Listener.Addr(), "code 500"},
		{"HTTP", "/moved", "200-399", plain.Listener.Addr(), ""}, // it is not followed
		{"HTTP", "/moved", "200", plain.Listener.Addr(), "code 302"},
		{"HTTP", "/slow", "200", plain.Listener.Addr(), "deadline"},
		{"HTTPS", "/200", "200,202", secret.Listener.Addr(), ""}, // nobody has signed its certificate
		{"HTTPS", "/202", "200,202", secret.Listener.Addr(), ""},
		{"HTTPS", "/201", "200,202", secret.Listener.Addr(), "code 201"},
		{"HTTPS", "/200", "200", plain.Listener.Addr(), "HTTP response to HTTPS client"},
	} {
		from := ""
		p := probe{of: healthCheck{Protocol: tt.protocol, Path: tt.path, Matcher: tt.matcher}, networkDevice: "eni-1", to: netip.MustParseAddrPort(tt.to.String())}
		timeout := time.Minute
		if tt.path == "/slow" {
			timeout = 300 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		err := p.run(ctx, direct{&from})
		cancel()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %s %s: %v, want %q", tt.protocol, tt.path, tt.matcher, err, tt.want)
		}
		if from != "eni-1" {
			t.Errorf("%s %s: from %q", tt.protocol, tt.path, from)
		}
	}
}

// TestNote: a target changes after so many results in a row.
func TestNote(t *testing.T) {
	at := time.Now().UTC()
	g := &targetGroup{ARN: "g", Check: healthCheck{Healthy: 3, Unhealthy: 2}, Targets: []target{{ID: "i-1", Port: 1, Registered: at, Health: healthInitial}}}
	key := keyOf(g, g.Targets[0])
	for _, tt := range []struct {
		passes, fails int
		want          string
	}{
		{1, 0, healthInitial}, {0, 1, healthInitial}, {2, 0, healthInitial}, {3, 0, healthHealthy}, {0, 1, healthHealthy},
		{0, 2, healthUnhealthy}, {2, 0, healthUnhealthy}, {3, 0, healthHealthy},
	} {
		if after := g.note(key, tt.passes, tt.fails); after != nil {
			g.Targets[0] = *after
		}
		if got := g.Targets[0].Health; got != tt.want || !g.Targets[0].Checked {
			t.Errorf("after %d passes or %d fails: %s, want %s", tt.passes, tt.fails, got, tt.want)
		}
	}
	again := key
	again.registered = at.Add(time.Second)
	if g.note(again, 3, 0) != nil || g.note(key, 3, 0) != nil {
		t.Error("a result of another registration, or one that changes nothing, changes the target")
	}
}
