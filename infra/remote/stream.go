package remote

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// capture keeps up to max bytes of a command's output: the beginning or, with keepEnd, the end. It
// drops the rest and never blocks the command.
type capture struct {
	max     int
	keepEnd bool
	tee     io.Writer

	mu      sync.Mutex
	buf     []byte
	dropped bool
}

func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keepEnd {
		c.buf = append(c.buf, p...)
		if over := len(c.buf) - c.max; over > 0 {
			c.dropped = true
			c.buf = append(c.buf[:0], c.buf[over:]...)
		}
	} else {
		room := max(0, c.max-len(c.buf))
		c.dropped = c.dropped || len(p) > room
		c.buf = append(c.buf, p[:min(len(p), room)]...)
	}
	if c.tee != nil {
		if _, err := c.tee.Write(p); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (c *capture) bytes() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]byte(nil), c.buf...)
}

// detach makes sure that tee is not written to afterwards.
func (c *capture) detach() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tee = nil
}

func (c *capture) overflow() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dropped
}

// deadlineConn adds deadlines to a connection inside SSH, because HTTP and gRPC clients rely on
// them and the ssh package has none. When a deadline passes, the connection is closed.
type deadlineConn struct {
	net.Conn
	ended func() // gives the SSH connection back; may be called again

	mu      sync.Mutex
	timer   *time.Timer
	expired atomic.Bool
}

func (c *deadlineConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, c.explain(err)
}

func (c *deadlineConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, c.explain(err)
}

func (c *deadlineConn) explain(err error) error {
	if err != nil && c.expired.Load() {
		return os.ErrDeadlineExceeded
	}
	return err
}

// Close closes the connection.
func (c *deadlineConn) Close() error {
	c.setTimer(nil)
	defer c.ended()
	err := c.Conn.Close()
	if errors.Is(err, io.EOF) { // the other side closed first
		return nil
	}
	return err
}

// SetDeadline closes the connection at t; the zero time cancels that.
func (c *deadlineConn) SetDeadline(t time.Time) error {
	if t.IsZero() {
		c.setTimer(nil)
		return nil
	}
	c.setTimer(time.AfterFunc(time.Until(t), func() {
		c.expired.Store(true)
		c.Conn.Close()
		c.ended()
	}))
	return nil
}

func (c *deadlineConn) setTimer(t *time.Timer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
	}
	c.timer = t
}

// SetReadDeadline is SetDeadline: there is one deadline for both directions.
func (c *deadlineConn) SetReadDeadline(t time.Time) error { return c.SetDeadline(t) }

// SetWriteDeadline is SetDeadline: there is one deadline for both directions.
func (c *deadlineConn) SetWriteDeadline(t time.Time) error { return c.SetDeadline(t) }
