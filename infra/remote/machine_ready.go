package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

const (
	// loginGrace is how long a new machine may refuse the login: sshd answers before cloud-init has
	// created the user. After that the key counts as wrong.
	loginGrace = 30 * time.Second
	// readyAttempt is how long a machine may take to accept a connection in a wait. Packets sent
	// before it has its address are lost, and waiting for them would take longer than trying again.
	// The rest of an attempt may take longer, because a booting machine is busy.
	readyAttempt = 2 * time.Second
	// tunnelPoll is the shortest pause between two attempts through a tunnel: each asks AWS for a new one.
	tunnelPoll = time.Second
)

// WaitReady waits until a command runs as root on the machine, and tries every poll (100 ms if
// zero, and a second at least through a tunnel). It returns at once with a [*HostKeyError] or another permanent error, after loginGrace
// with an [*AuthError], and otherwise with the last error when ctx ends.
func (m *Machine) WaitReady(ctx context.Context, poll time.Duration) error {
	if poll <= 0 {
		poll = 100 * time.Millisecond
	}
	if m.pool.tunnelled(m.host) {
		poll = max(poll, tunnelPoll)
	}
	tick := time.NewTicker(poll)
	defer tick.Stop()
	var refusedSince time.Time
	var last error
	for {
		err := m.attempt(ctx)
		if err == nil {
			return nil
		}
		var (
			unreachable *UnreachableError
			auth        *AuthError
			exit        *ExitError
		)
		switch {
		case ended(ctx):
			if last == nil {
				last = err
			}
			return fmt.Errorf("machine %s is not ready: %w; last seen: %w", m.host.Name, endOf(ctx), last)
		case errors.As(err, &auth), errors.As(err, &exit):
			if refusedSince.IsZero() {
				refusedSince = time.Now()
			}
			if time.Since(refusedSince) > patience.Of(ctx, loginGrace) {
				return err
			}
		case errors.As(err, &unreachable):
		default:
			return err
		}
		last = err
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// attempt tries once to run a command as root.
func (m *Machine) attempt(ctx context.Context) error {
	dial := m.pool.cfg.ConnectTimeout
	if m.host.Bastion == nil && m.pool.slots == nil {
		dial = min(dial, patience.Of(ctx, readyAttempt))
	}
	c, _, err := m.connection(ctx, dial)
	if err != nil {
		return err
	}
	defer c.give()
	_, err = m.Run(ctx, Command{Script: ":", Sudo: true})
	return err
}

// endOf returns why the context's time is over.
func endOf(ctx context.Context) error { return cmp.Or(ctx.Err(), context.DeadlineExceeded) }

// ended reports whether the context's time is over. A dialer with the context's deadline may notice
// before the context does.
func ended(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}
