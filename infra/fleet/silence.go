package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// Silence remembers for which clusters no API server has answered the questions of a plan, so that a
// plan of many resources waits for them once. As long as an endpoint has not answered, one question is
// in progress and the others wait for its result. If it has no answer, all get its error. The zero
// Silence is ready. It is safe for concurrent use.
//
// Code that changes something calls [Silence.Forget] before and after, since a later question may have
// an answer. Nothing else is remembered: a question that may have an answer is always asked.
type Silence struct {
	mu    sync.Mutex
	heard map[string]*hearing // by cluster and endpoint
}

// hearing is what is known of the questions to one endpoint.
type hearing struct {
	answers bool
	err     error         // of a question that had no answer, if there was no answer since
	waited  time.Duration // how long that question waited
	asking  chan struct{} // of the question that is under way; nil if nobody waits for it
}

// Forget forgets everything. What is under way is not remembered either.
func (s *Silence) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = nil
}

// of returns what is known of a key. The caller holds the lock.
func (s *Silence) of(key string) *hearing {
	if s.heard == nil {
		s.heard = map[string]*hearing{}
	}
	if s.heard[key] == nil {
		s.heard[key] = &hearing{}
	}
	return s.heard[key]
}

// ask asks the API servers of a cluster behind an endpoint, unless it is known that they do not answer.
func (s *Silence) ask(ctx context.Context, cluster, endpoint string, question func() error) error {
	if s == nil {
		return question()
	}
	patient := patience.Of(ctx, ProbeBudget)
	for {
		s.mu.Lock()
		all, h := s.of(cluster), s.of(cluster+" "+endpoint)
		for _, known := range []*hearing{all, h} {
			if known.err != nil && known.waited >= patient {
				s.mu.Unlock()
				return known.err
			}
		}
		wait := h.asking
		if h.answers || wait == nil {
			var asking chan struct{}
			if !h.answers {
				asking = make(chan struct{})
				h.asking = asking
			}
			s.mu.Unlock()
			return s.note(ctx, h, asking, patient, question)
		}
		s.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return silence{context.Cause(ctx)}
		}
	}
}

// note asks, and remembers the result. Then the callers that wait for asking continue.
func (s *Silence) note(ctx context.Context, h *hearing, asking chan struct{}, waited time.Duration, question func() error) (err error) {
	ended := false
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case !ended || ctx.Err() != nil: // it was given up, or made a panic, which says nothing
		case kube.Unanswered(err):
			h.answers, h.err, h.waited = false, err, waited
		default:
			h.answers, h.err = true, nil
		}
		if asking != nil {
			close(asking)
			h.asking = nil
		}
	}()
	err = question()
	ended = true
	return err
}

// silent remembers that no API server of a cluster has answered.
func (s *Silence) silent(cluster string, err error, waited time.Duration) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.of(cluster)
	h.err, h.waited = err, waited
}
