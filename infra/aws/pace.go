package aws

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"
	"golang.org/x/time/rate"
)

// EC2 has a token bucket for each action, in an account and region: so many calls at once, then so many
// a second. Some actions have larger ones than changeBurst and changeRate, none that is used here a
// smaller one but RunInstances and StartInstances.
// https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html
const (
	launchBurst, launchRate = 5, 2
	changeBurst, changeRate = 50, 5
	// paceMargin is added to each wait for a token: calls do not arrive at the intervals at which they
	// were sent.
	paceMargin = 100 * time.Millisecond
)

// pacer makes the attempts of calls that change something wait for a token, so that EC2 need not refuse
// them. Calls that only read are few, see Lookup. It is inside of the retries: others in the account may
// have taken EC2's tokens.
type pacer struct {
	mu     sync.Mutex
	limits map[string]*rate.Limiter // by action
}

// limit returns the limit of an action, nil if it has none.
func (p *pacer) limit(action string) *rate.Limiter {
	if strings.HasPrefix(action, "Describe") || strings.HasPrefix(action, "Get") {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.limits == nil {
		p.limits = map[string]*rate.Limiter{
			"RunInstances":   rate.NewLimiter(launchRate, launchBurst),
			"StartInstances": rate.NewLimiter(launchRate, launchBurst),
		}
	}
	if p.limits[action] == nil {
		p.limits[action] = rate.NewLimiter(changeRate, changeBurst)
	}
	return p.limits[action]
}

// wait waits for the turn of a call.
func (p *pacer) wait(ctx context.Context, action string) error {
	limit := p.limit(action)
	if limit == nil {
		return nil
	}
	turn := limit.Reserve()
	pause := turn.Delay()
	if pause <= 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		turn.Cancel()
		return fmt.Errorf("wait for a turn, since EC2 takes %g calls of %s a second: %w", float64(limit.Limit()), action, context.Cause(ctx))
	case <-time.After(pause + paceMargin):
		return nil
	}
}

// pace adds the pacer to the calls of a client.
func (p *pacer) pace(stack *middleware.Stack) error {
	return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("Pace",
		func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
			if err := p.wait(ctx, awsmiddleware.GetOperationName(ctx)); err != nil {
				return middleware.FinalizeOutput{}, middleware.Metadata{}, err
			}
			return next.HandleFinalize(ctx, in)
		}), "Retry", middleware.After)
}
