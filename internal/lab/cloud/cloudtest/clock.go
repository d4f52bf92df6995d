package cloudtest

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// Clock is a clock that tests move.
type Clock struct {
	mu     sync.Mutex
	now    time.Time
	timers []timer
}

// timer is somebody who waits.
type timer struct {
	at time.Time
	ch chan time.Time
}

// Now implements ec2.Clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// After implements ec2.Clock.
func (c *Clock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := make(chan time.Time, 1)
	c.timers = append(c.timers, timer{c.now.Add(d), ch})
	return ch
}

// Waiting returns how many wait.
func (c *Clock) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.timers)
}

// Advance moves the clock, and wakes those whose time has come.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	c.timers = slices.DeleteFunc(c.timers, func(t timer) bool {
		if t.at.After(c.now) {
			return false
		}
		t.ch <- c.now
		return true
	})
}

// SignHTTP signs with the cloud's time instead of the host's.
func (c *Clock) SignHTTP(ctx context.Context, creds aws.Credentials, r *http.Request, hash, service, region string, _ time.Time, opts ...func(*v4.SignerOptions)) error {
	return v4.NewSigner().SignHTTP(ctx, creds, r, hash, service, region, c.Now(), opts...)
}
