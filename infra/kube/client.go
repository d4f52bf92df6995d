// Package kube is a client of a running cluster's API server: readiness, nodes, leases, drains,
// server-side apply and what keeps pods from running.
//
// It is a thin layer on client-go and does not decide what a cluster should be. The caller's dialer
// decides how the API server is reached (directly, or from a machine through SSH). Nothing here
// reads kubeconfigs, files or the environment.
package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/timing"
)

const (
	// requestTimeout bounds one request. API servers answer in milliseconds, so a longer silence
	// means a dead connection.
	requestTimeout = 15 * time.Second
	// probeTimeout bounds one readiness probe, so that a wait soon notices when a server that hung
	// answers again.
	probeTimeout = 3 * time.Second
	// maxAnswer bounds one answer. The largest ones are lists of nodes, of some 20 KiB each.
	maxAnswer = 64 << 20
	// pollInterval is the interval at which conditions of objects are checked in a wait.
	pollInterval = 150 * time.Millisecond
)

// DialFunc opens a network connection, as [net.Dialer.DialContext] does.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Access is how to reach an API server, and the identity to use there.
type Access struct {
	Endpoint string // https://host:port
	CA       []byte // PEM bundle that signed the server's certificate
	Cert     []byte // PEM client certificate
	Key      []byte // PEM private key of Cert; never logged
	// Dial opens the connection to Endpoint's address; nil dials directly.
	Dial DialFunc
	// Timing, if set, counts the requests by their methods, such as "API GET".
	Timing *timing.Recorder
}

// Client is a connection to one API server or load balancer. It is safe for concurrent use and must
// be closed.
type Client struct {
	endpoint  string
	transport *http.Transport
	typed     kubernetes.Interface
	dynamic   dynamic.Interface
	discovery discovery.CachedDiscoveryInterface
	mapper    *restmapper.DeferredDiscoveryRESTMapper
}

// New returns a client. It does no I/O. An error is about the certificates.
func New(a Access) (*Client, error) {
	config, err := a.clientTLS()
	if err == nil && len(config.Certificates) == 0 {
		err = fmt.Errorf("connecting to %s: %w", a.Endpoint, errNoCertificate)
	}
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		DialContext:         parallel.Dial(a.dialer()),
		TLSClientConfig:     config,
		TLSHandshakeTimeout: requestTimeout,
		ForceAttemptHTTP2:   true,
		// Without pings, a connection to a machine that lost power would be used until the kernel
		// gives up on it, minutes later.
		HTTP2: &http.HTTP2Config{SendPingTimeout: requestTimeout, PingTimeout: probeTimeout},
	}
	trips := &bounded{transport, a.Timing}
	httpClient := &http.Client{Transport: trips}
	settings := &rest.Config{Host: a.Endpoint, QPS: -1, UserAgent: "k8s-from-scratch"}
	c := &Client{endpoint: a.Endpoint, transport: transport}
	if c.typed, err = kubernetes.NewForConfigAndClient(settings, httpClient); err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", a.Endpoint, err)
	}
	if c.dynamic, err = dynamic.NewForConfigAndClient(settings, httpClient); err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", a.Endpoint, err)
	}
	// Discovery takes no context: without a timeout of its own it would wait forever for a server
	// that hangs.
	kinds, err := discovery.NewDiscoveryClientForConfigAndClient(settings, &http.Client{Transport: trips, Timeout: requestTimeout})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", a.Endpoint, err)
	}
	c.discovery = memory.NewMemCacheClient(kinds)
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(c.discovery)
	return c, nil
}

// bounded counts requests until the head of their answer, and bounds what is read of it. It repeats writes whose
// connection was lost: a load balancer ends the connections to a server that it treats as down. All writes of this
// package have the same effect when they are made twice. client-go repeats GET by itself.
type bounded struct {
	http.RoundTripper
	timing *timing.Recorder
}

// Repetitions of a write, and the pause before each.
const (
	writeRepetitions = 3
	writePause       = 500 * time.Millisecond
)

func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	defer b.timing.Start(r.Context(), "API "+r.Method)()
	answer, err := b.RoundTripper.RoundTrip(r)
	for range writeRepetitions {
		if err == nil || r.Method != http.MethodPatch && r.Method != http.MethodPut || !utilnet.IsProbableEOF(err) && !utilnet.IsConnectionReset(err) || r.GetBody == nil {
			break
		}
		body, failed := r.GetBody()
		if failed != nil {
			break
		}
		select {
		case <-r.Context().Done():
			return nil, err
		case <-time.After(writePause):
		}
		again := r.Clone(r.Context())
		again.Body = body
		answer, err = b.RoundTripper.RoundTrip(again)
	}
	if err == nil {
		answer.Body = foreign.Body(answer.Body, maxAnswer, "API server "+r.URL.Host)
	}
	return answer, err
}

// Endpoint returns the URL the client was made for.
func (c *Client) Endpoint() string { return c.endpoint }

// Typed returns client-go's typed client, for what this package does not offer.
func (c *Client) Typed() kubernetes.Interface { return c.typed }

// Close closes the client's idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Version returns the server's version: "v1.36.4".
func (c *Client) Version(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
	defer cancel()
	// The discovery client's own ServerVersion takes no context.
	raw, err := c.typed.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return "", fmt.Errorf("asking %s for its version: %w", c.endpoint, err)
	}
	return parseVersion(raw)
}

// NotReadyError names the failing checks of an API server's /readyz.
type NotReadyError struct {
	Endpoint string
	Failing  []string // names of the failing checks; empty if the server named none
}

func (e *NotReadyError) Error() string {
	if len(e.Failing) == 0 {
		return fmt.Sprintf("API server %s is not ready", e.Endpoint)
	}
	return fmt.Sprintf("API server %s is not ready: failing checks: %s", e.Endpoint, strings.Join(e.Failing, ", "))
}

// Ready asks /readyz once. The error is a *NotReadyError if the server answers that it is not
// ready.
func (c *Client) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, probeTimeout))
	defer cancel()
	result := c.typed.Discovery().RESTClient().Get().AbsPath("/readyz").Param("verbose", "").MaxRetries(0).Do(ctx)
	raw, err := result.Raw()
	var status int
	result.StatusCode(&status)
	switch {
	case err == nil:
		return nil
	case status >= http.StatusInternalServerError:
		return &NotReadyError{Endpoint: c.endpoint, Failing: failingChecks(string(raw))}
	default:
		return fmt.Errorf("asking %s whether it is ready: %w", c.endpoint, err)
	}
}

// failingChecks returns the names in the lines "[-]name failed: reason" of the verbose health
// endpoints.
func failingChecks(body string) []string {
	var out []string
	for line := range strings.Lines(body) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "[-]"); ok {
			name, _, _ := strings.Cut(rest, " ")
			out = append(out, name)
		}
	}
	return out
}

// WaitReady polls Ready until it succeeds. It returns the error at once if the server's certificate
// is not the cluster's, since waiting does not help then. abort, if not nil, is called between
// polls; its error ends the wait.
func (c *Client) WaitReady(ctx context.Context, poll time.Duration, abort func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		err := c.Ready(ctx)
		if err == nil || Permanent(err) {
			return true, err
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if abort != nil {
			return false, abort(ctx)
		}
		return false, nil
	})
	if err != nil && ctx.Err() != nil && last != nil {
		return fmt.Errorf("waiting for the API server to become ready: %w (last: %w)", context.Cause(ctx), last)
	}
	return err
}

// Permanent reports whether retrying cannot help: the server's certificate is not the cluster's, or
// the server rejects the client's.
func Permanent(err error) bool {
	var (
		unknown  x509.UnknownAuthorityError
		hostname x509.HostnameError
		invalid  x509.CertificateInvalidError
	)
	return errors.As(err, &unknown) || errors.As(err, &hostname) || errors.As(err, &invalid) ||
		apierrors.IsUnauthorized(err)
}

// Unanswered reports whether an error says nothing about the answer: the server was not reached,
// did not answer in time, or could not answer. Another server, or the same one later, may answer.
func Unanswered(err error) bool {
	if err == nil {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return !Permanent(err) && silent(err)
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	default:
		return code < http.StatusBadRequest || code >= http.StatusInternalServerError
	}
}

// silent reports whether an error without a status comes from the connection, a timeout or a server
// that is not ready, and not from a wrong certificate or an answer that cannot be read.
func silent(err error) bool {
	var (
		network  net.Error // also the *url.Error of every failed request
		wrong    *tls.CertificateVerificationError
		notReady *NotReadyError
		groups   *discovery.ErrGroupDiscoveryFailed // of an aggregated API that is not available
	)
	switch {
	case errors.As(err, &wrong):
		return false
	case errors.As(err, &network), errors.As(err, &notReady), errors.As(err, &groups),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return true
	default:
		return connectionLost(err)
	}
}

// Busy reports whether a server was reached and could not answer: it is starting, its etcd has no
// leader, or it is overloaded. One that refuses connections is not busy.
func Busy(err error) bool {
	var (
		notReady *NotReadyError
		status   apierrors.APIStatus
		slow     interface{ Timeout() bool }
	)
	return errors.As(err, &notReady) || Unanswered(err) && errors.As(err, &status) && !apierrors.IsUnauthorized(err) ||
		errors.Is(err, context.DeadlineExceeded) || errors.As(err, &slow) && slow.Timeout()
}
