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
	// Parameter Store has a rate for all reads of an account and region, and one for writes, and says nothing of bursts.
	// https://docs.aws.amazon.com/general/latest/gr/ssm.html#limits_ssm
	readParameterRate, writeParameterRate = 40, 3
	// paceMargin is added to each wait for a token: calls do not arrive at the intervals at which they
	// were sent.
	paceMargin = 100 * time.Millisecond
)

// pacer makes the attempts of calls of a service wait for a token, so that AWS need not refuse them. It is inside of the
// retries: others in the account may have taken AWS's tokens.
type pacer struct {
	service string
	// bucket returns the name and the size of the bucket of an action; no rate if it has none.
	bucket func(action string) (name string, burst int, rate rate.Limit)
	mu     sync.Mutex
	limits map[string]*rate.Limiter // by name
}

// newEC2Pacer returns a pacer for calls that change something in EC2. Calls that only read are few, see Lookup.
func newEC2Pacer() *pacer {
	return &pacer{service: "EC2", bucket: func(action string) (string, int, rate.Limit) {
		switch {
		case strings.HasPrefix(action, "Describe") || strings.HasPrefix(action, "Get"):
			return "", 0, 0
		case action == "RunInstances" || action == "StartInstances":
			return action, launchBurst, launchRate
		}
		return action, changeBurst, changeRate
	}}
}

// newSSMPacer returns a pacer for calls of Parameter Store.
func newSSMPacer() *pacer {
	return &pacer{service: "Parameter Store", bucket: func(action string) (string, int, rate.Limit) {
		switch action {
		case "GetParameter", "GetParameters", "GetParametersByPath":
			return "read", readParameterRate, readParameterRate
		case "PutParameter":
			return action, writeParameterRate, writeParameterRate
		}
		return "", 0, 0
	}}
}

// limit returns the limit of an action, nil if it has none.
func (p *pacer) limit(action string) *rate.Limiter {
	name, burst, every := p.bucket(action)
	if every == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.limits == nil {
		p.limits = map[string]*rate.Limiter{}
	}
	if p.limits[name] == nil {
		p.limits[name] = rate.NewLimiter(every, burst)
	}
	return p.limits[name]
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
		return fmt.Errorf("wait for a turn, since %s takes %g calls of %s a second: %w", p.service, float64(limit.Limit()), action, context.Cause(ctx))
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
