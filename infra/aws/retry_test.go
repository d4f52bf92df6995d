package aws

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
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

// TestUntilUnused: a deletion has no limit but its context, whatever AWS calls what is in the way.
func TestUntilUnused(t *testing.T) {
	c := &Client{}
	c.retryers.ec2 = retry.NewStandard()
	var o ec2.Options
	c.RetryUntilUnused()(&o)
	for n := range 5000 {
		err := error(&smithy.GenericAPIError{Code: "DependencyViolation"})
		if n%2 == 0 {
			err = &smithy.GenericAPIError{Code: "AuthFailure", Message: "You do not have permission to access the specified resource."}
		}
		if !o.Retryer.IsErrorRetryable(err) || o.Retryer.MaxAttempts() < n {
			t.Fatalf("%v is retried %d times", err, n)
		}
	}
	wrong := &smithy.GenericAPIError{Code: "AuthFailure", Message: "AWS was not able to validate the provided access credentials"}
	if o.Retryer.IsErrorRetryable(wrong) {
		t.Error("wrong credentials are retried")
	}
	for err, want := range map[error]string{
		wrong: "AWS does not accept the credentials",
		&smithy.GenericAPIError{Code: "AuthFailure", Message: "You do not have permission to access the specified resource."}: "Another service of AWS has the resource",
	} {
		if got := Advice(err); !strings.HasPrefix(got, want) {
			t.Errorf("%v: %s", err, got)
		}
	}
}

// TestMaxRetries: each call has the whole limit, however many calls were retried before.
func TestMaxRetries(t *testing.T) {
	for _, mode := range []string{"", "adaptive"} {
		r := newRetryer(Config{MaxRetries: 300, RetryMode: mode})
		if n := r.MaxAttempts(); n != 301 {
			t.Errorf("%q: %d attempts", mode, n)
		}
		throttled := &smithy.GenericAPIError{Code: "RequestLimitExceeded"}
		for n := range 1000 {
			if _, err := r.GetRetryToken(t.Context(), throttled); err != nil {
				t.Fatalf("%q: retry %d: %v", mode, n, err)
			}
		}
	}
}

// paced counts attempts, as a retryer in adaptive mode does to pace them.
type paced struct {
	sdk.Retryer
	attempts int
}

func (p *paced) GetAttemptToken(context.Context) (func(error) error, error) {
	p.attempts++
	return func(error) error { return nil }, nil
}

// TestSettlingIsPaced: every attempt of a call that waits for EC2 passes the client's retryer.
func TestSettlingIsPaced(t *testing.T) {
	p := &paced{Retryer: sdk.NopRetryer{}}
	c := &Client{retryers: retryers{ec2: p}}
	var o ec2.Options
	c.RetryUntilKnown()(&o)
	v2, ok := o.Retryer.(sdk.RetryerV2)
	if !ok {
		t.Fatal("attempts are not paced")
	}
	for range 3 {
		if _, err := v2.GetAttemptToken(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if p.attempts != 3 {
		t.Errorf("%d of 3 attempts were paced", p.attempts)
	}
}

// TestUnknownTags: a refusal of one resource is retried for a while if the caller waits for
// something new, since EC2 may not know the tags yet that a policy asks for. Other refusals are final.
func TestUnknownTags(t *testing.T) {
	const denied = "You are not authorized to perform this operation. User: arn:aws:iam::123456789012:user/u is not authorized to perform: ec2:CreateRoute"
	for message, want := range map[string]int{
		denied + " on resource: arn:aws:ec2:us-east-1:123456789012:route-table/rtb-1 because no identity-based policy allows the ec2:CreateRoute action": DoubtAttempts,
		denied + " on resource: arn:aws:ec2:us-east-1:123456789012:route-table/rtb-1 with an explicit deny in a service control policy":                  1,
		denied + " on resource: arn:aws:ec2:us-east-1:123456789012:route-table/* because no identity-based policy allows the ec2:CreateRoute action":     1,
		denied + " because no identity-based policy allows the ec2:CreateRoute action":                                                                   1,
		"Not you.": 1,
	} {
		c := &Client{retryers: retryers{ec2: sdk.NopRetryer{}}}
		var o ec2.Options
		c.RetryUntilKnown()(&o)
		attempts := 1
		for o.Retryer.IsErrorRetryable(&smithy.GenericAPIError{Code: "UnauthorizedOperation", Message: message}) {
			attempts++
		}
		if attempts != want {
			t.Errorf("%s: %d attempts, want %d", message, attempts, want)
		}
	}
}

// TestLostConnection: an attempt that AWS does not answer ends, and the next one is made.
func TestLostConnection(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // from then on the server notices that the client has gone
		if asked.Add(1) == 1 {
			<-r.Context().Done()
			return
		}
		_, _ = w.Write([]byte(`<DescribeVpcsResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><vpcSet/></DescribeVpcsResponse>`))
	}))
	defer server.Close()
	c, err := New(t.Context(), Config{Region: "eu-central-1", AccessKey: "AKIA", SecretKey: "x", MaxRetries: 20,
		AnswerLimit: 200 * time.Millisecond, Endpoints: Endpoints{EC2: server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.EC2.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{}); err != nil || asked.Load() < 2 {
		t.Errorf("%d attempts: %v", asked.Load(), err)
	}
}
