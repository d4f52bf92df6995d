package aws

import (
	"context"
	"fmt"
	"time"
)

// Polling starts fast, because the local EC2 and most state changes of EC2 take less than a second,
// and slows down to what EC2's API limits recommend for long waits.
const (
	firstPoll = 100 * time.Millisecond
	lastPoll  = 2 * time.Second
)

// backoff returns the pause before the given attempt, counted from 0.
func backoff(attempt int) time.Duration {
	d := firstPoll
	for range attempt {
		if d = d * 3 / 2; d >= lastPoll {
			return lastPoll
		}
	}
	return d
}

// Pause waits before the given attempt, counted from 0, or until ctx ends.
func Pause(ctx context.Context, attempt int) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(backoff(attempt)):
		return nil
	}
}

// Poll calls ready until it returns true or an error, or ctx ends. The last string it returned goes
// into the error.
func Poll(ctx context.Context, what string, ready func(context.Context) (bool, string, error)) error {
	last := "nothing seen yet"
	for attempt := 0; ; attempt++ {
		ok, seen, err := ready(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if ok {
			return nil
		}
		if seen != "" {
			last = seen
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: last seen: %s: %w", what, last, context.Cause(ctx))
		case <-time.After(backoff(attempt)):
		}
	}
}
