package rollout

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// untilNone asks, round after round, what still stands in the way, until
// nothing does or the budget is spent. With the error it returns what the last
// whole round found: one that the deadline cut short says nothing, unless it is
// the only one.
func untilNone(ctx context.Context, budget time.Duration, what string, round func(context.Context) []string) (last []string, err error) {
	err = within(ctx, budget, what, func(ctx context.Context) error {
		return wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
			now := round(ctx)
			if ctx.Err() == nil || last == nil {
				last = now
			}
			return len(now) == 0, nil
		})
	})
	if err == nil {
		return nil, nil
	}
	return last, err
}
