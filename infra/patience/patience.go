// Package patience lets every single wait of an operation take longer than its budget, by one factor: machines that
// need more time for one thing are slow in everything.
package patience

import (
	"context"
	"fmt"
	"time"
)

type key struct{}

// With returns a context in which every wait with a budget may take longer, by a factor. A factor below 1 changes
// nothing.
func With(ctx context.Context, factor float64) context.Context {
	return context.WithValue(ctx, key{}, factor)
}

// Of returns how long a wait with a budget may take in a context, in whole seconds if [With] lengthens it.
func Of(ctx context.Context, budget time.Duration) time.Duration {
	if factor, patient := ctx.Value(key{}).(float64); patient && factor > 1 {
		return max(budget, time.Duration(factor*float64(budget)).Round(time.Second))
	}
	return budget
}

// Within limits a context by a budget, as [Of] returns it.
func Within(ctx context.Context, budget time.Duration) (context.Context, context.CancelFunc) {
	budget = Of(ctx, budget)
	return context.WithTimeoutCause(ctx, budget, fmt.Errorf("not within %s", budget))
}
