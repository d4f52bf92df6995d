package remote

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
)

// capture keeps a command's output: all of it or, with end, as many bytes of its end. A command that
// writes more than limit bytes, or what tee does not take, has failed.
type capture struct {
	limit int64
	end   int
	tee   io.Writer
	ctx   context.Context // only its log is used
	fail  func(error)     // called once, with an error that ends the command

	mu   sync.Mutex
	got  int64
	buf  []byte
	over bool
}

func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return len(p), nil // until the command has ended
	}
	room := min(int64(len(p)), c.limit-c.got)
	taken := p[:room]
	c.got += room
	c.buf = append(c.buf, taken...)
	if over := len(c.buf) - c.end; c.end > 0 && over > 0 {
		c.buf = append(c.buf[:0], c.buf[over:]...)
	}
	var err error
	if c.tee != nil { // in a goroutine of the ssh package
		err = parallel.Safely(c.ctx, "", func() error {
			_, err := c.tee.Write(taken)
			return err
		})
	}
	if err == nil && len(taken) < len(p) {
		err = &foreign.TooMuchError{Limit: c.limit}
	}
	if err != nil {
		c.over = true
		c.fail(err)
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
