// Package bucket has the token buckets with which AWS throttles the calls of an account.
package bucket

import (
	"sync"
	"time"
)

// Size is what a bucket holds at most and when it is new, and how many tokens it gets a second.
type Size struct{ Capacity, Refill float64 }

// Set is the buckets of an account, by name. They are refilled continuously. The zero value is ready for use.
type Set struct {
	mu      sync.Mutex
	buckets map[string]*state
}

type state struct {
	tokens float64
	at     time.Time // of the tokens
}

// Take takes n tokens from a bucket, or none if it has fewer.
func (s *Set) Take(name string, size Size, n float64, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.buckets == nil {
		s.buckets = map[string]*state{}
	}
	b := s.buckets[name]
	if b == nil {
		b = &state{size.Capacity, now}
		s.buckets[name] = b
	}
	if passed := now.Sub(b.at).Seconds(); passed > 0 {
		b.tokens, b.at = min(size.Capacity, b.tokens+passed*size.Refill), now
	}
	if b.tokens < n {
		return false
	}
	b.tokens -= n
	return true
}
