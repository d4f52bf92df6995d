package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// Tunnels is another way to machines than TCP connections: byte streams of which there may be few, and
// which the other side cuts after a time.
type Tunnels struct {
	// Name says what they lead through, for people.
	Name string
	// Open opens a stream to the SSH server of a machine. A [*WayError] says that waiting does not help.
	Open func(ctx context.Context, h Host) (net.Conn, error)
	// Max is how many are open at the same time.
	Max int
	// Lifetime is after which time a stream is cut. Work begins on a stream in the first half of it only, so
	// that commands that take less than the other half are not interrupted.
	Lifetime time.Duration
}

// WayError says that the way to a machine is closed, for a reason that is not the machine's. Waiting does
// not help.
type WayError struct {
	Machine string
	Err     error
}

func (e *WayError) Error() string { return fmt.Sprintf("machine %s: %v", e.Machine, e.Err) }

// Unwrap returns the reason.
func (e *WayError) Unwrap() error { return e.Err }

// use counts what uses a connection, and says whether more may begin to.
type use struct {
	mu      sync.Mutex
	count   int
	last    time.Time // when it was last taken or given back
	until   time.Time // nothing begins afterwards; zero: no limit
	retired bool      // nothing begins any more, and it is closed at the end of what uses it
}

// take reports whether one more may use the connection, and counts it.
func (c *connection) take(now time.Time) bool {
	c.use.mu.Lock()
	defer c.use.mu.Unlock()
	if !c.use.until.IsZero() && now.After(c.use.until) {
		c.use.retired = true
	}
	if c.use.retired {
		c.closeUnused()
		return false
	}
	c.use.count++
	c.use.last = now
	return true
}

// give ends one use.
func (c *connection) give() {
	c.use.mu.Lock()
	defer c.use.mu.Unlock()
	c.use.count--
	c.use.last = time.Now()
	c.closeUnused()
}

// closeUnused closes a retired connection that nothing uses. The caller holds the lock.
func (c *connection) closeUnused() {
	if c.use.retired && c.use.count == 0 {
		c.client.Close()
	}
}

// idleSince returns since when nothing uses the connection. ok is false if something does, or if it is
// about to close.
func (c *connection) idleSince() (since time.Time, ok bool) {
	c.use.mu.Lock()
	defer c.use.mu.Unlock()
	return c.use.last, c.use.count == 0 && !c.use.retired
}

// retireIdle retires the connection if nothing uses it.
func (c *connection) retireIdle() bool {
	c.use.mu.Lock()
	defer c.use.mu.Unlock()
	if c.use.count > 0 || c.use.retired {
		return false
	}
	c.use.retired = true
	c.closeUnused()
	return true
}

// slots bounds how many tunnels are open. Each connection has one until it is lost.
type slots struct {
	tokens chan struct{}
	mu     sync.Mutex
	conns  []*connection
}

func newSlots(n int) *slots { return &slots{tokens: make(chan struct{}, n)} }

// slotPoll is how often a wait for a slot looks for a connection that nothing uses any more.
const slotPoll = 100 * time.Millisecond

// take takes a slot. If there is none, it closes the connection that was not used for the longest time.
// If all are in use, it waits.
func (s *slots) take(ctx context.Context, closed <-chan struct{}) error {
	tick := time.NewTicker(slotPoll)
	defer tick.Stop()
	for {
		select {
		case s.tokens <- struct{}{}:
			return nil
		default:
		}
		s.closeIdle()
		select {
		case s.tokens <- struct{}{}:
			return nil
		case <-tick.C:
		case <-closed:
			return errClosed
		case <-ctx.Done():
			return fmt.Errorf("all %d tunnels are in use: %w", cap(s.tokens), context.Cause(ctx))
		}
	}
}

func (s *slots) give() { <-s.tokens }

// full reports whether another connection would have to be closed for a further one.
func (s *slots) full() bool { return len(s.tokens) == cap(s.tokens) }

// keep gives the slot back once the connection is lost.
func (s *slots) keep(c *connection) {
	s.mu.Lock()
	s.conns = append(s.conns, c)
	s.mu.Unlock()
	go func() {
		<-c.lost
		s.mu.Lock()
		s.conns = slices.DeleteFunc(s.conns, func(other *connection) bool { return other == c })
		s.mu.Unlock()
		s.give()
	}()
}

// closeIdle closes the connection that was not used for the longest time.
func (s *slots) closeIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest *connection
	var since time.Time
	for _, c := range s.conns {
		if at, ok := c.idleSince(); ok && (oldest == nil || at.Before(since)) {
			oldest, since = c, at
		}
	}
	if oldest != nil {
		oldest.retireIdle()
	}
}

// closeAll closes every connection, also those that are retired.
func (s *slots) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.client.Close()
	}
}

// tunnelled reports whether a machine is reached through a tunnel.
func (p *Pool) tunnelled(h Host) bool { return p.slots != nil && h.Bastion == nil }

// connectTunnelled is connect for a machine behind a tunnel. The time that it waits for others to end does
// not count against the machine.
func (p *Pool) connectTunnelled(ctx context.Context, h Host, dial time.Duration) (*connection, error) {
	waiting, cancel := context.WithTimeout(ctx, p.cfg.Tunnels.Lifetime)
	defer cancel()
	if err := p.slots.take(waiting, p.closed); err != nil {
		if errors.Is(err, errClosed) {
			return nil, fmt.Errorf("machine %s: %w", h.Name, err)
		}
		return nil, p.unreachable(h, err)
	}
	began := time.Now()
	c, err := p.connect(ctx, h, dial)
	if err != nil {
		p.slots.give()
		return nil, err
	}
	c.use.mu.Lock()
	c.use.last, c.use.until = began, began.Add(p.cfg.Tunnels.Lifetime/2)
	c.use.mu.Unlock()
	p.slots.keep(c)
	return c, nil
}

// unreachable returns the error about a host that could not be reached.
func (p *Pool) unreachable(h Host, err error) *UnreachableError {
	e := &UnreachableError{Machine: h.Name, Address: h.addr(), Err: err}
	switch {
	case h.Bastion != nil:
		e.Through = h.Bastion.Name
	case p.slots != nil:
		e.Tunnel = p.cfg.Tunnels.Name
	}
	return e
}
