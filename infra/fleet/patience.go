package fleet

import (
	"context"
	"fmt"
	"time"
)

type patienceKey struct{}

// Patient returns a context in which every single wait may take longer than its budget, by a factor. A factor
// below 1 changes nothing: the caller's context ends earlier anyway.
func Patient(ctx context.Context, factor float64) context.Context {
	return context.WithValue(ctx, patienceKey{}, max(factor, 1))
}

// Patience returns how long a wait with a budget may take in a context, see [Patient].
func Patience(ctx context.Context, budget time.Duration) time.Duration {
	factor, patient := ctx.Value(patienceKey{}).(float64)
	if !patient {
		return budget
	}
	return time.Duration(factor * float64(budget)).Round(time.Second)
}

// Observing limits ctx by [ObserveBudget].
func Observing(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := Patience(ctx, ObserveBudget)
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
}

// Probing limits ctx by [ProbeBudget].
func Probing(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := Patience(ctx, ProbeBudget)
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s", limit))
}
