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

// idle has two watches without keepalives of their own: one through the load balancer, one directly to an API server. It
// also has sessions of kubectl with a pod.
type idle struct {
	through, direct *watch
	command, logs   *spoken
	forwarded       string     // URL of a forwarded port that nobody has used
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

// idlePod logs nothing, and has a page.
const idlePod = `
apiVersion: v1
kind: Pod
metadata: {name: idle, namespace: default}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: idle, image: "k8s-lab/toolbox:1", command: [sh, -c, "mkdir /www; echo still here >/www/index.html; exec httpd -f -p 8080 -h /www"]}
`

// beginIdle opens the watches and the sessions. The local EC2 forgets idle connections meanwhile.
func (c *cluster) beginIdle(t *testing.T) *idle {
	ctx := t.Context()
	i := &idle{through: c.watches(t, "lb-0"), direct: c.watches(t, "controller-0"), forgotten: make(chan error, 1)}
	c.beginSessions(t, i)
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

// beginSessions starts a pod and what kubectl does with it.
func (c *cluster) beginSessions(t *testing.T, i *idle) {
	ctx := t.Context()
	c.Create(t, idlePod)
	c.Kubectl(t, "wait", "--for=condition=Ready", "--timeout=60s", "pod/idle")
	i.command = c.begin(ctx, t, "exec", "idle", "--", "sh", "-c", "until [ -e /tmp/go ]; do sleep 0.2; done; echo still here")
	i.logs = c.begin(ctx, t, "logs", "--follow", "idle")
	i.forwarded = c.forward(ctx, t, "idle")
}

// testIdle: a watch through the load balancer is told of a change although nothing happened for longer than EC2 remembers a
// connection. A watch without the load balancer is not. Nor does this end what kubectl does with a pod.
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
	c.Kubectl(t, "delete", "configmap/idle")
	c.Kubectl(t, "exec", "idle", "--", "sh", "-c", "touch /tmp/go; echo still here >/proc/1/fd/1")
	for what, s := range map[string]*spoken{"exec": i.command, "logs --follow": i.logs} {
		if line, err := s.next(); err != nil || line != "still here\n" {
			t.Errorf("kubectl %s after %s: %q %v", what, forgetAfter, line, err)
		}
	}
	if page, err := harness.Fetch(t.Context(), i.forwarded); err != nil || page != "still here\n" {
		t.Errorf("kubectl port-forward after %s: %q %v", forgetAfter, page, err)
	}
	c.Kubectl(t, "delete", "pod/idle")
}
