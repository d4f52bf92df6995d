package harness

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// Proxy returns the URL of an HTTP proxy on this computer that connects from a machine, until the test ends.
func (c *Cluster) Proxy(t *testing.T, machine string) string {
	t.Helper()
	client, err := c.connect(t.Context(), machine)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		there, err := client.DialContext(r.Context(), "tcp", r.Host)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		here, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			_ = there.Close()
			return
		}
		_, _ = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
		carry(here, buffered, there)
	}))
	t.Cleanup(func() {
		_ = client.Close() // ends what is carried
		server.Close()
	})
	return server.URL
}

// carry copies both ways until one side ends.
func carry(here net.Conn, from io.Reader, there net.Conn) {
	var both sync.WaitGroup
	one := func(to net.Conn, from io.Reader) {
		_, _ = io.Copy(to, from)
		_, _ = here.Close(), there.Close()
	}
	both.Go(func() { one(there, from) })
	both.Go(func() { one(here, there) })
	both.Wait()
}
