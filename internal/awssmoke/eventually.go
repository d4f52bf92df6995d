package main

import (
	"context"
	"fmt"
	"time"
)

// pause is the time between two attempts.
var pause = 2 * time.Second

// eventually calls f until it succeeds. After the time limit, or at the end of ctx, it returns f's
// last error.
func eventually(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	deadline := time.After(limit)
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-deadline:
			return fmt.Errorf("not within %s: %w", limit, err)
		case <-time.After(pause):
		}
	}
}
