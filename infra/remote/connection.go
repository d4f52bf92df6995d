package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	// keepaliveEvery is the interval of keepalive requests.
	keepaliveEvery = 5 * time.Second
	// keepaliveGrace is how long an answer may take: longer than a machine at full load needs.
	keepaliveGrace = 20 * time.Second
	// maxSessions stays below OpenSSH's MaxSessions, 10 by default (sshd_config(5)).
	maxSessions = 8
	// maxBastions bounds a chain of bastions, and so ends a circular one.
	maxBastions = 4
)

// connection is one authenticated SSH connection.
type connection struct {
	client   *ssh.Client
	sessions chan struct{} // a token per session in use
	ended    atomic.Int64  // sessions that were in use
	lost     chan struct{} // closed when the connection has ended
	use      use
}

func (c *connection) isLost() bool {
	select {
	case <-c.lost:
		return true
	default:
		return false
	}
}

// connect opens and authenticates a connection to h. The machine may take dial to answer, and the
// configured timeout for everything.
func (p *Pool) connect(ctx context.Context, h Host, dial time.Duration) (*connection, error) {
	wanted, err := parseHostKeys(h)
	if err != nil {
		return nil, err
	}
	if depth(h) > maxBastions {
		return nil, fmt.Errorf("machine %s: more than %d bastions in a row", h.Name, maxBastions)
	}
	defer p.cfg.Timing.Start(ctx, "SSH handshake")()
	ctx, cancel := withTimeout(ctx, p.cfg.ConnectTimeout)
	defer cancel()
	go func() {
		select {
		case <-p.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	opening, opened := withTimeout(ctx, dial)
	defer opened()
	conn, err := p.open(opening, h)
	if err != nil {
		var key *HostKeyError
		var auth *AuthError
		var agent *AgentKeyError
		var way *WayError
		if errors.As(err, &way) {
			return nil, err
		}
		if errors.As(err, &key) || errors.As(err, &auth) || errors.As(err, &agent) { // the bastion's
			return nil, fmt.Errorf("machine %s: %w", h.Name, err)
		}
		switch {
		case opening.Err() != nil && p.tunnelled(h):
			err = fmt.Errorf("%w: %w", context.Cause(opening), err)
		case opening.Err() != nil:
			err = context.Cause(opening)
		case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded):
			err = noAnswer(dial) // the dialer has the same deadline and noticed it first
		}
		return nil, p.unreachable(h, err)
	}
	c, err := p.handshake(ctx, h, conn, wanted)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, noAnswer(d))
}

func noAnswer(within time.Duration) error { return fmt.Errorf("no answer within %s", within) }

// open opens the byte stream for SSH, directly or through the bastion.
func (p *Pool) open(ctx context.Context, h Host) (net.Conn, error) {
	if p.tunnelled(h) {
		conn, err := p.cfg.Tunnels.Open(ctx, h)
		if err != nil {
			return nil, err
		}
		return p.cfg.Timing.Count("SSH", conn), nil
	}
	if h.Bastion == nil {
		conn, err := p.cfg.Dial(ctx, "tcp", h.addr())
		if err != nil {
			return nil, err
		}
		return p.cfg.Timing.Count("SSH", conn), nil
	}
	conn, err := p.Machine(*h.Bastion).Dial(ctx, "tcp", h.addr())
	var forwarding *ForwardingError
	switch {
	case errors.As(err, &forwarding):
		return nil, &WayError{Machine: h.Name, Err: forwarding}
	case err != nil:
		return nil, fmt.Errorf("through bastion %s: %w", h.Bastion.Name, err)
	}
	return conn, nil
}

func (p *Pool) handshake(ctx context.Context, h Host, conn net.Conn, wanted []ssh.PublicKey) (*connection, error) {
	// Closing the connection is the only way to interrupt a handshake.
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()

	signers, closeAgent, err := p.signers(ctx)
	if err != nil {
		return nil, fmt.Errorf("machine %s: %w", h.Name, err)
	}
	defer closeAgent()
	verified := false
	var mismatch *HostKeyError
	cfg := &ssh.ClientConfig{
		User:              h.User,
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(signers...)},
		HostKeyAlgorithms: algorithms(wanted),
		HostKeyCallback: func(_ string, _ net.Addr, got ssh.PublicKey) error {
			for _, w := range wanted {
				if bytes.Equal(w.Marshal(), got.Marshal()) {
					verified = true
					return nil
				}
			}
			mismatch = &HostKeyError{Machine: h.Name, Address: h.addr(),
				Wanted: fingerprints(wanted), Got: fingerprints([]ssh.PublicKey{got})}
			return mismatch
		},
	}
	sc, chans, reqs, err := ssh.NewClientConn(conn, h.addr(), cfg)
	var negotiation *ssh.AlgorithmNegotiationError
	switch {
	case err == nil:
	case mismatch != nil:
		return nil, mismatch
	case errors.As(err, &negotiation) && negotiation.What == "host key":
		return nil, &HostKeyError{Machine: h.Name, Address: h.addr(), Wanted: fingerprints(wanted)}
	case negotiation != nil: // waiting does not help
		return nil, fmt.Errorf("machine %s (%s): %w", h.Name, h.addr(), err)
	case verified && refused(err):
		var offered []string
		for _, s := range signers {
			offered = append(offered, ssh.FingerprintSHA256(s.PublicKey()))
		}
		return nil, &AuthError{Machine: h.Name, Address: h.addr(), User: h.User, Offered: offered, Err: err}
	default:
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, p.unreachable(h, err)
	}
	if !stop() {
		sc.Close()
		return nil, p.unreachable(h, context.Cause(ctx))
	}
	c := &connection{
		client:   ssh.NewClient(sc, chans, reqs),
		sessions: make(chan struct{}, maxSessions),
		lost:     make(chan struct{}),
	}
	go func() {
		defer close(c.lost)
		_ = c.client.Wait() // its error only says that the connection ended
	}()
	go c.keepalive(p.keepaliveEvery, p.keepaliveGrace)
	return c, nil
}

// keepalive closes the connection once the peer stops answering. Without it, a lost machine is
// noticed only when TCP gives up, minutes later.
func (c *connection) keepalive(every, grace time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-c.lost:
			return
		case <-tick.C:
		}
		overdue := time.AfterFunc(grace, func() { c.client.Close() })
		_, _, err := c.client.SendRequest("keepalive@openssh.com", true, nil)
		overdue.Stop()
		if err != nil {
			c.client.Close()
			return
		}
	}
}

// signers returns the configured keys followed by the agent's one. The returned function closes the
// connection to the agent.
func (p *Pool) signers(ctx context.Context) ([]ssh.Signer, func(), error) {
	signers := slices.Clone(p.cfg.Signers)
	if p.cfg.Agent.Socket == "" {
		return signers, func() {}, nil
	}
	key, done, err := p.cfg.Agent.signer(ctx)
	if err != nil {
		return nil, nil, err
	}
	return append(signers, key), done, nil
}

// parseHostKeys returns the pinned keys of h; none is an error.
func parseHostKeys(h Host) ([]ssh.PublicKey, error) {
	var keys []ssh.PublicKey
	for _, line := range h.HostKeys {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
		if err != nil {
			return nil, fmt.Errorf("machine %s: pinned SSH host key %q: %w", h.Name, line, err)
		}
		if algorithms([]ssh.PublicKey{key}) == nil {
			return nil, fmt.Errorf("machine %s: pinned SSH host key type %s is not supported; use ed25519, ECDSA or RSA",
				h.Name, key.Type())
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, &HostKeyError{Machine: h.Name, Address: h.addr()}
	}
	return keys, nil
}

// algorithms returns the host key algorithms for the keys, strongest first. ssh-rsa with SHA-1, DSA
// and certificates are left out.
func algorithms(keys []ssh.PublicKey) []string {
	byType := []struct {
		keyType string
		algos   []string
	}{
		{ssh.KeyAlgoED25519, []string{ssh.KeyAlgoED25519}},
		{ssh.KeyAlgoECDSA256, []string{ssh.KeyAlgoECDSA256}},
		{ssh.KeyAlgoECDSA384, []string{ssh.KeyAlgoECDSA384}},
		{ssh.KeyAlgoECDSA521, []string{ssh.KeyAlgoECDSA521}},
		{ssh.KeyAlgoRSA, []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}},
	}
	var out []string
	for _, t := range byType {
		if slices.ContainsFunc(keys, func(k ssh.PublicKey) bool { return k.Type() == t.keyType }) {
			out = append(out, t.algos...)
		}
	}
	return out
}

func fingerprints(keys []ssh.PublicKey) []string {
	out := make([]string, 0, len(keys))
	for _, k := range keys {
		out = append(out, k.Type()+" "+ssh.FingerprintSHA256(k))
	}
	return out
}

// depth returns the number of bastions in front of h, at most one more than allowed.
func depth(h Host) int {
	n := 0
	for b := h.Bastion; b != nil && n <= maxBastions; b = b.Bastion {
		n++
	}
	return n
}
