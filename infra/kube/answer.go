package kube

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// Answer is where one new connection to an API server, or to a load balancer in front of several, has
// led.
type Answer struct {
	// Connected is set if something took the connection, even if it ended it again.
	Connected bool
	// Status is the HTTP status of /readyz, 0 without an answer.
	Status int
	// Certificate is the digest of the server's certificate, by which API servers can be told apart.
	Certificate string

	transport *http.Transport
}

// Close ends the connection.
func (a Answer) Close() {
	if a.transport != nil {
		a.transport.CloseIdleConnections()
	}
}

// NewConnection asks /readyz over a new connection, which stays open until the answer is closed: a load
// balancer that counts connections takes another server for the next one. Without a certificate in a it
// asks as the health checks of load balancers do. name is the server's name in its certificate; empty means
// the host of the endpoint. The error says why there is no answer; the Answer is valid also then.
func NewConnection(ctx context.Context, a Access, name string) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, probeTimeout))
	defer cancel()
	config, err := a.clientTLS()
	if err != nil {
		return Answer{}, err
	}
	config.ServerName = name
	var connected atomic.Bool // a dial may end after the request
	dial := parallel.Dial(a.dialer())
	answer := Answer{transport: &http.Transport{TLSClientConfig: config, TLSHandshakeTimeout: probeTimeout, IdleConnTimeout: idleTimeout,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			connected.Store(err == nil)
			return conn, err
		}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.Endpoint+"/readyz", nil)
	if err != nil {
		return answer, err
	}
	response, err := (&bounded{answer.transport, a.Timing}).RoundTrip(request)
	answer.Connected = connected.Load()
	if err != nil {
		return answer, fmt.Errorf("asking %s over a new connection: %w", a.Endpoint, err)
	}
	defer response.Body.Close() //nolint:errcheck // only read
	// The connection stays open only if the answer was read to its end.
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxReady))
	answer.Status = response.StatusCode
	digest := sha256.Sum256(response.TLS.PeerCertificates[0].Raw)
	answer.Certificate = hex.EncodeToString(digest[:])
	return answer, nil
}

// idleTimeout ends a connection that nobody closes.
const idleTimeout = 5 * time.Minute

// maxReady bounds what is read of an answer to /readyz, which has one line for each check.
const maxReady = 64 << 10

// clientTLS trusts only the CA of an access, and has its certificate if there is one.
func (a Access) clientTLS() (*tls.Config, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(a.CA) {
		return nil, fmt.Errorf("connecting to %s: the CA bundle holds no certificate", a.Endpoint)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	if len(a.Cert) == 0 {
		return config, nil
	}
	pair, err := tls.X509KeyPair(a.Cert, a.Key)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: client certificate: %w", a.Endpoint, err)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

func (a Access) dialer() DialFunc {
	if a.Dial == nil {
		return (&net.Dialer{Timeout: requestTimeout}).DialContext
	}
	return a.Dial
}

var errNoCertificate = errors.New("no client certificate")
