package fleet

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Gate is a condition that must hold before or after a step.
type Gate string

// The gates.
const (
	GateNone        Gate = ""
	GateOthers      Gate = "all others healthy"
	GateSelf        Gate = "healthy"
	GateQuorum      Gate = "a quorum is healthy"
	GateQuorumAfter Gate = "the rest has a quorum"
	GateNodeReady   Gate = "node Ready, a pod started"

	// These gates count a member with an alarm as healthy, for the repair of the alarm itself.
	GateServes       Gate = "serves reads"
	GateQuorumServes Gate = "a quorum serves reads"
	GateOthersServe  Gate = "all others serve reads"
)

// UntilNone calls round until it returns no more obstacles or the budget is spent. With the error
// it returns the obstacles of the last complete round. A round that the deadline has cut short
// counts only if there was no other.
func UntilNone(ctx context.Context, budget time.Duration, what string, round func(context.Context) []string) (last []string, err error) {
	err = Within(ctx, budget, what, func(ctx context.Context) error {
		return wait.PollUntilContextCancel(ctx, Poll, true, func(ctx context.Context) (bool, error) {
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
