package remote

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/ssh"
)

// tunnelled is a pool whose streams are counted.
type tunnelled struct {
	*Pool
	open, peak, made atomic.Int32
}

type countedConn struct {
	net.Conn
	ended func()
}

func (c *countedConn) Close() error {
	c.ended()
	return c.Conn.Close()
}

func newTunnelled(t *testing.T, key ssh.Signer, limit int) *tunnelled {
	t.Helper()
	out := &tunnelled{}
	out.Pool = NewPool(Config{Signers: []ssh.Signer{key}, ConnectTimeout: time.Minute, Tunnels: &Tunnels{Name: "the endpoint", Max: limit, Lifetime: time.Hour,
		Open: func(ctx context.Context, h Host) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", h.addr())
			if err != nil {
				return nil, err
			}
			out.made.Add(1)
			if n := out.open.Add(1); n > out.peak.Load() {
				out.peak.Store(n)
			}
			return &countedConn{conn, sync.OnceFunc(func() { out.open.Add(-1) })}, nil
		}}})
	t.Cleanup(func() { _ = out.Close() })
	return out
}

// TestTunnelsAtOnce runs commands on more machines than there may be tunnels, also while all tunnels are in use.
func TestTunnelsAtOnce(t *testing.T) {
	t.Parallel()
	key := newSigner(t)
	s := newServer(t, newSigner(t), key.PublicKey())
	p := newTunnelled(t, key, 2)
	var all sync.WaitGroup
	for n := range 6 {
		m := p.Machine(s.host("machine-" + strconv.Itoa(n)))
		all.Go(func() {
			m.Prepare(t.Context())
			for range 2 {
				if _, err := m.Run(t.Context(), Command{Script: "sleep 0.1"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if peak := p.peak.Load(); peak != 2 {
		t.Errorf("%d tunnels at once", peak)
	}
	if made := p.made.Load(); made < 6 {
		t.Errorf("%d tunnels for 6 machines", made)
	}
	for n := range 2 {
		started := &signalWriter{seen: make(chan struct{})}
		go func() {
			_, _ = p.Machine(s.host("machine-"+strconv.Itoa(n))).Run(t.Context(), Command{Script: "echo; exec sleep 600", Tee: started})
		}()
		<-started.seen
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := p.Machine(s.host("machine-5")).Run(ctx, Command{Script: ":"})
	var unreachable *UnreachableError
	if !errors.As(err, &unreachable) || unreachable.Tunnel != "the endpoint" || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a tunnel: %v", err)
	}
}

// TestTunnelTurn checks that the wait for a tunnel is no part of the time that a machine may take to answer.
func TestTunnelTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		opened := errors.New("it opens")
		p := NewPool(Config{Tunnels: &Tunnels{Max: 1, Lifetime: time.Hour, Open: func(ctx context.Context, _ Host) (net.Conn, error) {
			return nil, cmp.Or(ctx.Err(), opened)
		}}})
		defer p.Close()
		p.slots.tokens <- struct{}{}
		time.AfterFunc(2*DefaultConnectTimeout, p.slots.give)
		if err := p.Machine(Host{Name: "a", HostKeys: []string{authorizedKey(newSigner(t))}}).Ping(t.Context()); !errors.Is(err, opened) {
			t.Error(err)
		}
	})
}

// TestTunnelRenewed checks that a command that runs when half the time of its tunnel is over goes on, and
// that the next command gets a new tunnel.
func TestTunnelRenewed(t *testing.T) {
	t.Parallel()
	key := newSigner(t)
	s := newServer(t, newSigner(t), key.PublicKey())
	p := newTunnelled(t, key, 2)
	m := p.Machine(s.host("machine"))
	started := &signalWriter{seen: make(chan struct{})}
	stdin, end := io.Pipe()
	long := make(chan error, 1)
	go func() {
		_, err := m.Run(t.Context(), Command{Script: "echo; cat", Stdin: stdin, Tee: started})
		long <- err
	}()
	<-started.seen
	m.mu.Lock()
	old := m.conn
	m.mu.Unlock()
	old.use.mu.Lock()
	if left := time.Until(old.use.until); left > 30*time.Minute || left < 20*time.Minute {
		t.Errorf("work may begin for %s more, in a lifetime of an hour", left)
	}
	old.use.until = time.Unix(1, 0)
	old.use.mu.Unlock()
	if n := s.connections.Load(); n != 1 {
		t.Fatalf("%d connections before", n)
	}
	for range 3 {
		if _, err := m.Run(t.Context(), Command{Script: ":"}); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.connections.Load(); n != 2 {
		t.Errorf("%d connections, want the old and the new one", n)
	}
	end.Close()
	if err := <-long; err != nil {
		t.Errorf("the command that ran: %v", err)
	}
	deadline := time.Now().Add(time.Minute)
	for p.open.Load() != 1 && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	if n := p.open.Load(); n != 1 {
		t.Errorf("%d tunnels are open after the old one was used", n)
	}
}

// TestTunnelForwards checks that a forwarded connection keeps its tunnel from being closed for another
// machine.
func TestTunnelForwards(t *testing.T) {
	t.Parallel()
	key := newSigner(t)
	s := newServer(t, newSigner(t), key.PublicKey())
	p := newTunnelled(t, key, 1)
	conn, err := p.Machine(s.host("a")).Dial(t.Context(), "tcp", s.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := p.Machine(s.host("b")).Ping(ctx); err == nil {
		t.Error("the tunnel in use was closed")
	}
	conn.Close()
	conn.Close()
	if err := p.Machine(s.host("b")).Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestTunnelWait checks that a machine that is waited for does not cost many tunnels.
func TestTunnelWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var opened atomic.Int32
		p := NewPool(Config{Tunnels: &Tunnels{Max: 1, Lifetime: time.Hour, Open: func(context.Context, Host) (net.Conn, error) {
			opened.Add(1)
			return nil, errors.New("it boots")
		}}})
		defer p.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		err := p.Machine(Host{Name: "a", HostKeys: []string{authorizedKey(newSigner(t))}}).WaitReady(ctx, 0)
		if n := opened.Load(); err == nil || n < 3 || n > 4 {
			t.Errorf("%d tunnels in 2.5 seconds: %v", n, err)
		}
	})
}

func TestWayClosed(t *testing.T) {
	t.Parallel()
	why := errors.New("no endpoint")
	var opened atomic.Int32
	p := NewPool(Config{Tunnels: &Tunnels{Max: 1, Lifetime: time.Hour, Open: func(_ context.Context, h Host) (net.Conn, error) {
		opened.Add(1)
		return nil, &WayError{Machine: h.Name, Err: why}
	}}})
	defer p.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h := newServer(t, newSigner(t), newSigner(t).PublicKey()).host("a")
	for range 2 {
		if err := p.Machine(h).WaitReady(ctx, 0); !errors.Is(err, why) {
			t.Errorf("got %v", err)
		}
	}
	if n := opened.Load(); n != 2 {
		t.Errorf("it was tried %d times in two waits", n)
	}
}
