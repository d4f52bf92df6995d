// Package etcd is a client of a running etcd cluster: its members, their health, and joining and
// leaving.
//
// A Client talks to exactly one member, because callers need to know whether that member is
// healthy. The caller's dialer decides how it is reached. What may not enter: starting and stopping
// etcd, and who should be a member.
package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/timing"
)

const (
	// requestTimeout bounds one request. It is long enough for several elections (etcd's default
	// election timeout is one second); an answer that takes longer never comes.
	requestTimeout = 5 * time.Second
	// healthTimeout bounds a health check, which is repeated.
	healthTimeout = 2 * time.Second
	// maxAnswer bounds one answer. The largest ones are lists of members and of alarms.
	maxAnswer = 4 << 20
	// pollInterval is the interval at which conditions are checked in a wait.
	pollInterval = 150 * time.Millisecond
	// reconnectDelay is the longest pause between gRPC's attempts to connect, so that a starting
	// member is noticed at once.
	reconnectDelay = 250 * time.Millisecond
)

// Access is how to reach one member, and the identity to use there.
type Access struct {
	Endpoint string // https://host:port
	CA       []byte // PEM bundle that signed the member's certificate
	Cert     []byte // PEM client certificate
	Key      []byte // PEM private key of Cert; never logged
	// Dial opens the connection; nil dials directly.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Timing, if set, counts the requests by their names, such as "etcd MemberList".
	Timing *timing.Recorder
}

// Client is a connection to one member. It is safe for concurrent use and must be closed.
type Client struct {
	endpoint string
	cli      *clientv3.Client
	web      *http.Client // for its metrics
}

// New returns a client, which connects at its first request. An error is about the certificates.
func New(a Access) (*Client, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(a.CA) {
		return nil, fmt.Errorf("connecting to etcd %s: the CA bundle holds no certificate", a.Endpoint)
	}
	pair, err := tls.X509KeyPair(a.Cert, a.Key)
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd %s: client certificate: %w", a.Endpoint, err)
	}
	options := []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: reconnectDelay / 2, Multiplier: 1.5, MaxDelay: reconnectDelay},
		MinConnectTimeout: requestTimeout,
	})}
	if a.Timing != nil {
		options = append(options, grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				defer a.Timing.Start(ctx, "etcd "+path.Base(method))()
				return invoke(ctx, method, req, reply, conn, opts...)
			}))
	}
	if a.Dial != nil {
		a.Dial = parallel.Dial(a.Dial)
		options = append(options, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return a.Dial(ctx, "tcp", address)
		}))
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}}
	cli, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{a.Endpoint},
		TLS:         secure.Clone(),
		DialOptions: options,
		Logger:      zap.NewNop(),
		// One attempt: the caller decides about retries.
		MaxUnaryRetries:    1,
		MaxCallRecvMsgSize: maxAnswer,
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd %s: %w", a.Endpoint, err)
	}
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: secure, DialContext: a.Dial, DisableKeepAlives: true}}
	return &Client{endpoint: a.Endpoint, cli: cli, web: web}, nil
}

// Endpoint returns the URL the client was made for.
func (c *Client) Endpoint() string { return c.endpoint }

// Close closes the connection.
func (c *Client) Close() {
	_ = c.cli.Close() // it only returns that its context was cancelled
}

// ID identifies a member; it prints in hexadecimal, as etcdctl does.
type ID uint64

func (i ID) String() string { return strconv.FormatUint(uint64(i), 16) }

// Member is one member, as the cluster knows it.
type Member struct {
	ID         ID
	Name       string // empty until the member has started for the first time
	PeerURLs   []string
	ClientURLs []string // empty until the member has started for the first time
	Learner    bool
}

// Started reports whether the member has ever started.
func (m Member) Started() bool { return len(m.ClientURLs) > 0 }

// Label returns the member's name, or its ID if it has no name yet.
func (m Member) Label() string {
	if m.Name != "" {
		return m.Name
	}
	return m.ID.String()
}

// Quorum returns how many of n voters must agree.
func Quorum(n int) int { return n/2 + 1 }

// Members returns the cluster's members. It needs a quorum.
func (c *Client) Members(ctx context.Context) ([]Member, error) {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
	defer cancel()
	resp, err := c.cli.MemberList(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking etcd %s for the members: %w", c.endpoint, err)
	}
	return membersOf(resp.Members), nil
}

// MembersKnown returns the members that this member knows, without asking the others. It needs no
// quorum, and may be outdated.
func (c *Client) MembersKnown(ctx context.Context) ([]Member, error) {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
	defer cancel()
	resp, err := c.cli.MemberList(ctx, clientv3.WithSerializable())
	if err != nil {
		return nil, fmt.Errorf("asking etcd %s for the members it knows: %w", c.endpoint, err)
	}
	return membersOf(resp.Members), nil
}

func membersOf(list []*etcdserverpb.Member) []Member {
	out := make([]Member, 0, len(list))
	for _, m := range list {
		out = append(out, Member{ID: ID(m.ID), Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs, Learner: m.IsLearner})
	}
	slices.SortFunc(out, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Contents is how much a cluster holds.
type Contents struct {
	Keys  int64 `json:"keys"`  // Kubernetes has one for each object
	Bytes int64 `json:"bytes"` // of one member's database
}

// Contents returns how much the member holds. The member counts in memory and sends none of the
// keys; it needs no quorum.
func (c *Client) Contents(ctx context.Context) (Contents, error) {
	s, err := c.Status(ctx)
	if err != nil {
		return Contents{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
	defer cancel()
	counted, err := c.cli.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithCountOnly(), clientv3.WithSerializable())
	if err != nil {
		return Contents{}, fmt.Errorf("asking etcd %s how many keys it has: %w", c.endpoint, err)
	}
	return Contents{Keys: counted.Count, Bytes: s.DBSize}, nil
}
