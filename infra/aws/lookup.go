package aws

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
)

// Lookup answers many callers, who ask about one thing each, with few calls. Questions that come while
// a call is in progress, or soon after a call, share the next call. An answer is never older than its
// question.
//
// The more keys are asked about, the longer are the pauses between calls. So the number of calls a
// second falls as more machines are waited for.
type Lookup[K comparable, V any] struct {
	describe func(ctx context.Context, keys []K) (map[K]V, error)
	limit    int // keys of one call

	mu   sync.Mutex
	next *round[K, V]    // takes questions; nil if there is none yet
	last *round[K, V]    // the round before next, whose call may be in progress
	seen map[K]time.Time // when keys were last in a call, for lookupMemory
}

// NewLookup returns a lookup with calls of at most limit keys. describe returns what was found of them. Its context
// ends once nobody waits for the answer.
func NewLookup[K comparable, V any](c *Client, limit int, describe func(ctx context.Context, c *Client, keys []K) (map[K]V, error)) *Lookup[K, V] {
	return &Lookup[K, V]{limit: limit, describe: func(ctx context.Context, keys []K) (map[K]V, error) { return describe(ctx, c, keys) }}
}

const (
	// lookupGather is how long the first question waits for others that are asked at the same time.
	lookupGather = 5 * time.Millisecond
	// lookupPause is the shortest time between the beginnings of two calls.
	lookupPause = 50 * time.Millisecond
	// lookupShare is the part of the time between two calls for each key that was asked about within
	// lookupMemory, up to lastPoll together.
	lookupShare = 10 * time.Millisecond
	// lookupBudget is how long one call may take with its retries: further questions wait for it. With
	// the default number of retries a call ends earlier, after about seven minutes.
	lookupBudget = 15 * time.Minute
	// lookupMemory is how long a key counts as asked about: longer than callers pause between their
	// questions.
	lookupMemory = 2 * lastPoll
)

// round is one call, and the callers that wait for its answer.
type round[K comparable, V any] struct {
	keys    map[K]bool
	waiting int
	cancel  context.CancelFunc

	began time.Time     // zero if the call was never made
	pause time.Duration // after began
	done  chan struct{} // closed when found and err are final
	found map[K]V
	err   error
}

// Ask returns what is found of a key. ok is false if it was not found.
func (l *Lookup[K, V]) Ask(ctx context.Context, key K) (found V, ok bool, err error) {
	r := l.join(ctx, key)
	defer l.leave(r)
	select {
	case <-ctx.Done():
		return found, false, fmt.Errorf("ask EC2: %w", context.Cause(ctx))
	case <-r.done:
		found, ok = r.found[key]
		return found, ok, r.err
	}
}

// join adds a question to the next round.
func (l *Lookup[K, V]) join(ctx context.Context, key K) *round[K, V] {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next == nil {
		shared, cancel := context.WithCancel(context.WithoutCancel(ctx))
		l.next = &round[K, V]{keys: map[K]bool{}, cancel: cancel, done: make(chan struct{})}
		go l.run(shared, l.next, l.last)
	}
	l.next.keys[key] = true
	l.next.waiting++
	return l.next
}

// leave ends a round's call if nobody waits for it any more.
func (l *Lookup[K, V]) leave(r *round[K, V]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.waiting--; r.waiting > 0 {
		return
	}
	r.cancel()
	if l.next == r {
		l.close(r)
	}
}

// close makes a round take no more questions. The caller has the lock.
func (l *Lookup[K, V]) close(r *round[K, V]) { l.next, l.last = nil, r }

// run makes the call of a round, after that of the one before.
func (l *Lookup[K, V]) run(ctx context.Context, r, before *round[K, V]) {
	defer close(r.done)
	pause := lookupGather
	if before != nil {
		<-before.done
		r.began, r.pause = before.began, before.pause // if this call is never made
		pause = max(pause, time.Until(before.began.Add(before.pause)))
	}
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
	l.mu.Lock()
	if l.next == r {
		l.close(r)
	}
	keys := slices.Collect(maps.Keys(r.keys))
	if r.err = ctx.Err(); r.err == nil {
		r.began, r.pause = time.Now(), l.pauseAfter(keys, time.Now())
	}
	l.mu.Unlock()
	if r.err != nil {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lookupBudget, fmt.Errorf("no answer within %s", lookupBudget))
	defer cancel()
	r.found = map[K]V{}
	for some := range slices.Chunk(keys, l.limit) {
		var found map[K]V
		err := parallel.Safely(ctx, "", func() (err error) {
			found, err = l.describe(ctx, some)
			return err
		})
		if err != nil {
			if ctx.Err() != nil {
				err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
			}
			r.err = err
			return
		}
		maps.Copy(r.found, found)
	}
}

// pauseAfter returns the pause after a call for keys. The caller has the lock.
func (l *Lookup[K, V]) pauseAfter(keys []K, now time.Time) time.Duration {
	if l.seen == nil {
		l.seen = map[K]time.Time{}
	}
	maps.DeleteFunc(l.seen, func(_ K, at time.Time) bool { return now.Sub(at) > lookupMemory })
	for _, k := range keys {
		l.seen[k] = now
	}
	return min(max(lookupPause, time.Duration(len(l.seen))*lookupShare), lastPoll)
}
