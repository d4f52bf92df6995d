package remote

import (
	"context"
	"errors"
	"net"
	"testing"
)

// TestOff: a machine that is off on purpose is unreachable at once, for commands and connections,
// and nothing is dialled.
func TestOff(t *testing.T) {
	t.Parallel()
	p := NewPool(Config{Dial: func(context.Context, string, string) (net.Conn, error) {
		t.Error("it was dialled")
		return nil, errors.New("no")
	}})
	t.Cleanup(func() { _ = p.Close() })
	m := p.Machine(Host{Name: "worker-0", Address: "203.0.113.1", User: "root", Off: true})
	var gone *UnreachableError
	if _, err := m.Run(t.Context(), Command{Script: ":"}); !errors.As(err, &gone) || gone.Machine != "worker-0" {
		t.Errorf("a command: %v", err)
	}
	if _, err := m.Dial(t.Context(), "tcp", "127.0.0.1:2379"); !errors.As(err, &gone) {
		t.Errorf("a connection: %v", err)
	}
}
