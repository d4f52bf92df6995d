package aws

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"
)

// attempts is a retryer that returns the attempt as the delay.
type attempts struct{ retry.Standard }

func (*attempts) RetryDelay(attempt int, _ error) (time.Duration, error) {
	return time.Duration(attempt) * time.Hour, nil
}

// The delay of a throttled call depends only on how often it was throttled, and not on its other
// retries.
func TestRetryCountsSeparately(t *testing.T) {
	missing := &smithy.GenericAPIError{Code: "InvalidInstanceID.NotFound"}
	throttled := &smithy.GenericAPIError{Code: "RequestLimitExceeded"}
	p := &codeRetryer{Retryer: &attempts{*retry.NewStandard()}, codes: notYet, limit: 6}
	attempt := 0
	next := func(err error) time.Duration {
		t.Helper()
		attempt++
		if !p.IsErrorRetryable(err) {
			t.Fatalf("attempt %d: %v is not retried", attempt, err)
		}
		d, err := p.RetryDelay(attempt, err)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for range 4 {
		if d := next(missing); d > time.Second {
			t.Errorf("attempt %d, an id not known yet: delayed by %s", attempt, d)
		}
	}
	if d := next(throttled); d != time.Hour {
		t.Errorf("the first throttled attempt is delayed as number %d", d/time.Hour)
	}
	if d := next(missing); d != backoff(4) {
		t.Errorf("the fifth attempt with an id not known yet: delayed by %s", d)
	}
	if p.IsErrorRetryable(missing) {
		t.Error("an unknown id is retried beyond the limit")
	}
}
