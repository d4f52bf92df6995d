package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
)

// attempt is one attempt to connect to a machine. Everyone who needs the machine meanwhile waits
// for the same attempt; otherwise the timeouts of many commands for a dead machine would add up. It
// is bounded by the pool's timeout, because the first caller may have little time.
type attempt struct {
	dial  time.Duration // how long the machine may take to accept
	ahead bool          // nobody needs it yet: its failure is not remembered
	done  chan struct{} // closed at its end, when the other fields are set
	conn  *connection
	err   error
	ended time.Time
}

// preparedLately is how long Prepare does not try again what could not be reached.
const preparedLately = time.Minute

type rememberKey struct{}

// RememberUnreachable returns a context for observing machines, not for waiting for them. A machine
// that could not be reached within the last age is not tried again; the earlier error is returned.
// Observing a machine several times in a row then costs one timeout. Do not use it to wait for a
// machine to start.
func RememberUnreachable(ctx context.Context, age time.Duration) context.Context {
	return context.WithValue(ctx, rememberKey{}, age)
}

// Dialer returns Dial for clients that dial in contexts of their own. [RememberUnreachable] in ctx
// holds for them, too.
func (m *Machine) Dialer(ctx context.Context) DialFunc {
	age, recalling := ctx.Value(rememberKey{}).(time.Duration)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if recalling {
			ctx = RememberUnreachable(ctx, age)
		}
		return m.Dial(ctx, network, addr)
	}
}

// Prepare opens a connection in the background, unless there is one, for whoever needs it soon. It
// does not wait and has no error: who then needs the machine joins the attempt while it lasts, and
// tries again if it failed. A machine or bastion that could not be reached lately is not tried.
func (m *Machine) Prepare(ctx context.Context) {
	if m.host.Off {
		return
	}
	ctx = RememberUnreachable(context.WithoutCancel(ctx), preparedLately)
	go func() {
		select {
		case m.pool.preparing <- struct{}{}:
		case <-m.pool.closed:
			return
		}
		defer func() { <-m.pool.preparing }()
		m.mu.Lock()
		lately := m.failed != nil && time.Since(m.failed.ended) < preparedLately
		if m.pool.isClosed() || lately || m.pool.tunnelled(m.host) && m.pool.slots.full() || m.trying != nil || m.conn != nil && !m.conn.isLost() {
			m.mu.Unlock()
			return
		}
		a := m.try(ctx, m.pool.cfg.ConnectTimeout)
		a.ahead = true
		m.mu.Unlock()
		<-a.done
	}()
}

// connection returns the pooled connection and opens it if there is none; reused says that it was
// open before. The caller gives it back when it has used it. The machine may take dial to accept.
func (m *Machine) connection(ctx context.Context, dial time.Duration) (c *connection, reused bool, err error) {
	if m.host.Off {
		return nil, false, m.pool.unreachable(m.host, errOff)
	}
	age, _ := ctx.Value(rememberKey{}).(time.Duration)
	for {
		m.mu.Lock()
		a := m.trying
		joined := a != nil
		switch {
		case m.pool.isClosed():
			m.mu.Unlock()
			return nil, false, fmt.Errorf("machine %s: %w", m.host.Name, errClosed)
		case m.conn != nil && !m.conn.isLost():
			if c = m.conn; !c.take(time.Now()) {
				m.conn = nil // it ends, and another one takes its place
				m.mu.Unlock()
				continue
			}
			m.mu.Unlock()
			return c, true, nil
		case !joined && m.failed != nil && time.Since(m.failed.ended) < age:
			err = m.failed.err
			m.mu.Unlock()
			return nil, false, err
		case !joined:
			a = m.try(ctx, dial)
		default:
			a.ahead = false
		}
		m.mu.Unlock()
		select {
		case <-a.done:
		case <-ctx.Done():
			return nil, false, m.pool.unreachable(m.host, fmt.Errorf("%w while connecting", ctx.Err()))
		}
		if a.err != nil && joined && a.dial < dial {
			continue // it was given up earlier than this caller would
		}
		if a.err == nil && !a.conn.take(time.Now()) {
			continue // another machine has got its tunnel
		}
		return a.conn, false, a.err
	}
}

// try starts an attempt. The caller holds m.mu.
func (m *Machine) try(ctx context.Context, dial time.Duration) *attempt {
	a, before := &attempt{dial: dial, done: make(chan struct{})}, m.failed
	m.conn, m.trying = nil, a
	ctx = context.WithoutCancel(ctx)
	go func() {
		connect := m.pool.connect
		if m.pool.tunnelled(m.host) {
			connect = m.pool.connectTunnelled
		}
		a.err = parallel.Safely(ctx, "machine "+m.host.Name, func() (err error) {
			a.conn, err = connect(ctx, m.host, dial)
			return err
		})
		m.mu.Lock()
		defer m.mu.Unlock()
		if a.err == nil && m.pool.isClosed() {
			a.conn.client.Close()
			a.conn, a.err = nil, fmt.Errorf("machine %s: %w", m.host.Name, errClosed)
		}
		a.ended = time.Now()
		m.trying, m.failed, m.conn = nil, nil, a.conn
		switch {
		case a.err == nil || errors.Is(a.err, errClosed):
		case a.ahead:
			m.failed = before
		default:
			m.failed = a
		}
		close(a.done)
	}()
	return a
}
