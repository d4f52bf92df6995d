package remote

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// silent is a network in which nothing answers; it counts attempts.
type silent struct{ dials atomic.Int32 }

func (s *silent) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	s.dials.Add(1)
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestAttempts(t *testing.T) {
	var network silent
	m := newPool(t, Config{Dial: network.dial, ConnectTimeout: 100 * time.Millisecond}).Machine(Host{
		Name: "m-0", Address: "192.0.2.1", User: "admin", HostKeys: []string{authorizedKey(newSigner(t))}})
	gone := func(ctx context.Context) {
		t.Helper()
		var unreachable *UnreachableError
		if err := m.Ping(ctx); !errors.As(err, &unreachable) {
			t.Fatalf("error %v", err)
		}
	}
	tries := func(want int32, what string) {
		t.Helper()
		if n := network.dials.Swap(0); n != want {
			t.Errorf("%s: %d attempts, wanted %d", what, n, want)
		}
	}
	looking := RememberUnreachable(t.Context(), time.Minute)

	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() { gone(looking) })
	}
	wait.Wait()
	gone(looking)
	if _, err := m.Dialer(looking)(context.Background(), "tcp", "192.0.2.1:80"); err == nil {
		t.Error("a dead machine connects")
	}
	tries(1, "looking at it again and again")

	gone(t.Context())
	gone(t.Context())
	tries(2, "waiting for it, which must not rely on earlier failures")

	gone(RememberUnreachable(t.Context(), time.Nanosecond))
	tries(1, "a failure too long ago")

	// A caller with little time must not leave the others without an answer.
	impatient, cancel := context.WithTimeout(looking, time.Millisecond)
	defer cancel()
	if err := m.Ping(impatient); err == nil {
		t.Error("a dead machine answers")
	}
	gone(looking)
	tries(0, "the failure is known")
}
