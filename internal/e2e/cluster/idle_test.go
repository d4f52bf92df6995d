package cluster_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// forgetAfter is when the local EC2 forgets connections in testIdle: later than HAProxy's keepalives, and sooner than the
// keepalives of an API server, which are due after three minutes.
const forgetAfter = 75 * time.Second

// idle has two watches without keepalives of their own: one through the load balancer, one directly to an API server.
type idle struct {
	through, direct *watch
	forgotten       chan error // once the local EC2 has forgotten what is idle
}

type watch struct {
	conn   *tls.Conn
	events *bufio.Reader
}

// watches opens a watch of a ConfigMap that does not exist yet, over a connection of its own.
func (c *cluster) watches(t *testing.T, machine string) *watch {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	secured, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	secured.ServerName, secured.NextProtos = "kubernetes", []string{"http/1.1"} // of HTTP/2 clients ping
	plain := harness.Must[net.Conn](t)((&net.Dialer{KeepAlive: -1}).DialContext(t.Context(), "tcp", net.JoinHostPort(c.Addresses[machine], "6443")))
	w := &watch{conn: tls.Client(plain, secured)}
	t.Cleanup(func() { _ = w.conn.Close() })
	request := harness.Must[*http.Request](t)(http.NewRequestWithContext(t.Context(), http.MethodGet, "https://kubernetes/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=600&fieldSelector=metadata.name%3Didle", nil))
	if err := request.Write(w.conn); err != nil {
		t.Fatal(err)
	}
	answer := harness.Must[*http.Response](t)(http.ReadResponse(bufio.NewReader(w.conn), request)) //nolint:bodyclose // it ends with the connection
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("a watch: %s", answer.Status)
	}
	w.events = bufio.NewReader(answer.Body)
	return w
}

// next returns the next event, if it comes soon.
func (w *watch) next() (string, error) {
	if err := w.conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	return w.events.ReadString('\n')
}

// beginIdle opens the watches. The local EC2 forgets idle connections meanwhile.
func (c *cluster) beginIdle(t *testing.T) *idle {
	i := &idle{through: c.watches(t, "lb-0"), direct: c.watches(t, "controller-0"), forgotten: make(chan error, 1)}
	ctx := t.Context()
	time.AfterFunc(forgetAfter+5*time.Second, func() {
		var got struct{ Forgotten int }
		err := suite.Control(context.WithoutCancel(ctx), "POST", "/_lab/faults", map[string]any{"kind": "idle-flows", "seconds": forgetAfter.Seconds()}, &got)
		if err == nil && got.Forgotten == 0 {
			err = fmt.Errorf("no connection was idle for %s", forgetAfter)
		}
		i.forgotten <- err
	})
	return i
}

// testIdle: a watch through the load balancer is told of a change although nothing happened for longer than EC2 remembers a
// connection. A watch without the load balancer is not.
func (c *cluster) testIdle(t *testing.T, i *idle) {
	began := time.Now()
	if err := <-i.forgotten; err != nil {
		t.Fatal(err)
	}
	t.Logf("figures: waited %.1f s until connections were idle", time.Since(began).Seconds())
	c.Kubectl(t, "create", "configmap", "idle")
	if event, err := i.through.next(); err != nil || !strings.Contains(event, `"ADDED"`) {
		t.Errorf("a watch through the load balancer after %s: %q %v", forgetAfter, event, err)
	}
	if event, err := i.direct.next(); err == nil {
		t.Errorf("a watch without keepalives is remembered: %q", event)
	}
	c.Kubectl(t, "delete", "configmap", "idle")
}
