package machine

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

const (
	// aliveInterval is the interval at which EC2 is asked about a machine that does not answer yet.
	aliveInterval = 2 * time.Second
	// bootGrace is how long SSH may take once EC2's checks pass. After that, something blocks the
	// connection. The checks pass as soon as the machine answers ARP, which it does for a moment early in
	// its boot: cloud-init asks DHCP for an address by itself, to read instance metadata, and lets go of it.
	// In the local EC2 on a busy computer it was silent for 50 s after that.
	bootGrace = 90 * time.Second
	// refusedGrace is bootGrace for a machine that refuses connections: nothing blocks them, and
	// sshd has not started yet.
	refusedGrace = 3 * time.Minute
)

// errSilent says that SSH does not answer on a machine that booted long ago.
var errSilent = errors.New("its SSH port cannot be reached")

// sshShare is by how much each machine that is waited for lengthens the pause between attempts to
// reach one.
const sshShare = 10 * time.Millisecond

// awaitShell waits until a machine answers on SSH. The more machines are waited for, the longer are the
// pauses.
func awaitShell(ctx context.Context, c *aws.Client, id string, shell Shell) error {
	booting := &memoryOf(c).booting
	waiting := booting.Add(1)
	defer booting.Add(-1)
	pause := max(sshPoll, time.Duration(waiting)*sshShare)
	return aliveWhile(ctx, c, id, func(ctx context.Context) error { return shell.WaitReady(ctx, pause) })
}

// aliveWhile runs wait, and ends it if EC2 says that the instance will never answer or booted long
// ago.
func aliveWhile(ctx context.Context, c *aws.Client, id string, wait func(context.Context) error) error {
	grace, refused := patience.Of(ctx, bootGrace), patience.Of(ctx, refusedGrace)
	err := alive(ctx, c, id, grace, wait)
	if errors.Is(err, errSilent) && errors.Is(err, syscall.ECONNREFUSED) {
		return alive(ctx, c, id, refused-grace, wait)
	}
	return err
}

func alive(ctx context.Context, c *aws.Client, id string, grace time.Duration, wait func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan error, 1)
	asking, stop := context.WithCancel(ctx) // ends when the wait does, which need not wait for EC2
	go func() {
		defer stop()
		done <- parallel.Safely(ctx, id, func() error { return wait(ctx) })
	}()
	defer cancel(nil)
	var booted time.Time
	for {
		select {
		case err := <-done:
			if cause := context.Cause(ctx); err != nil && cause != nil {
				return fmt.Errorf("%w (%w)", cause, err)
			}
			return err
		case <-time.After(untilAsked(time.Now())):
		}
		i, err := c.WatchInstance(asking, id, aws.ConsistencyAttempts)
		switch {
		case errors.Is(err, aws.ErrNotFound):
			cancel(err)
		case err != nil: // a failure of EC2's API says nothing about the machine
		case aws.StateOf(i) == types.InstanceStateNameStopped || aws.StateOf(i) == types.InstanceStateNameStopping:
			cancel(fmt.Errorf("it is %s: %s", aws.StateOf(i), aws.StateReason(i)))
		case !booted.IsZero() && time.Since(booted) > grace:
			cancel(fmt.Errorf("EC2 reports it up and healthy for %s, but %w: something on the way lets no packets through, which may be VPC Block Public Access, "+
				"a setting of the account (`aws ec2 describe-vpc-block-public-access-options` shows it), although no route is refused", grace, errSilent))
		case booted.IsZero() && healthy(asking, c, id):
			booted = time.Now()
		}
	}
}

// untilAsked returns the time until EC2 is asked again: all waiting callers ask at the same moments, and
// so with the same call.
func untilAsked(now time.Time) time.Duration {
	return now.Truncate(aliveInterval).Add(aliveInterval).Sub(now)
}

// healthy reports whether EC2's reachability checks have passed.
func healthy(ctx context.Context, c *aws.Client, id string) bool {
	ok, _, err := memoryOf(c).lookups.healthy.Ask(ctx, id)
	return err == nil && ok
}

// AwaitBoot waits for SSH on a recently started machine: EC2 reports it as running before it has
// booted. It does not wait for a machine that has been up for refusedGrace or has no host key of
// its own.
func AwaitBoot(ctx context.Context, c *aws.Client, m Machine, connect Connect) error {
	refused := patience.Of(ctx, refusedGrace)
	rest := min(refused-time.Since(m.Started), refused)
	if m.HostKey == "" || rest <= 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, rest, fmt.Errorf("it was started %s ago", refused))
	defer cancel()
	return AwaitSSH(ctx, c, m, connect)
}

// AwaitSSH waits until a machine with a host key of its own answers on SSH, for example after a
// start.
func AwaitSSH(ctx context.Context, c *aws.Client, m Machine, connect Connect) error {
	shell := connect(m, []string{m.HostKey})
	if err := awaitShell(ctx, c, m.ID, shell); err != nil {
		return fmt.Errorf("machine %s (%s): wait for SSH: %w", m.Name, m.ID, err)
	}
	return nil
}
