package aws

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aws/smithy-go/middleware"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
)

// sharedFor is how long an answer may be given to those who have not had it.
const sharedFor = 10 * time.Second

// Shared keeps answers of EC2 about many things, of which each caller wants one: a refresh of many
// resources asks once. It is safe for concurrent use.
//
// Every caller gets what EC2 says now, as far as a refresh can know it: the question was asked at
// most sharedFor ago and after the last change of this client, and no caller gets the same answer
// twice. A caller that does not find its object in an answer must ask for that object alone.
type Shared[V any] struct {
	mu      sync.Mutex
	answers map[string]*answer[V] // by question
}

type answer[V any] struct {
	changes int64 // of the client, when it was asked for
	asked   time.Time
	had     map[string]bool // by whom
	waiting int             // how many wait for it
	cancel  context.CancelFunc

	done  chan struct{} // closed when it is there
	value V
	err   error
}

// Get returns the answer to a question, for one asker. changes is the client's number of changes.
// ask is not interrupted while a caller waits for it. All waiting callers get its error, which is
// not kept.
func (s *Shared[V]) Get(ctx context.Context, question, asker string, changes int64, ask func(context.Context) (V, error)) (V, error) {
	s.mu.Lock()
	a := s.answers[question]
	if a == nil || a.changes != changes || a.had[asker] || time.Since(a.asked) > sharedFor {
		a = &answer[V]{changes: changes, asked: time.Now(), had: map[string]bool{}, done: make(chan struct{})}
		if s.answers == nil {
			s.answers = map[string]*answer[V]{}
		}
		s.answers[question] = a
		asking, cancel := context.WithCancel(context.WithoutCancel(ctx))
		a.cancel = cancel
		go func() {
			defer cancel()
			var value V
			err := parallel.Safely(asking, "", func() (err error) {
				value, err = ask(asking)
				return err
			})
			s.mu.Lock()
			defer s.mu.Unlock()
			if a.value, a.err = value, err; err != nil {
				s.drop(question, a)
			}
			close(a.done)
		}()
	}
	a.had[asker] = true
	a.waiting++
	s.mu.Unlock()

	var err error
	select {
	case <-a.done:
		err = a.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.waiting--; a.waiting == 0 && err != nil {
		a.cancel()
		s.drop(question, a)
	}
	if err != nil {
		var none V
		return none, err
	}
	return a.value, nil
}

// drop forgets an answer. The caller holds s.mu.
func (s *Shared[V]) drop(question string, a *answer[V]) {
	if s.answers[question] == a {
		delete(s.answers, question)
	}
}

// noteChanges adds to a service's calls that changed is called before and after every call that may
// change something. Answers to questions in between may or may not include the change.
func noteChanges(changed func()) func(*middleware.Stack) error {
	return func(s *middleware.Stack) error {
		return s.Initialize.Add(middleware.InitializeMiddlewareFunc("NoteChanges",
			func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
				if call := fmt.Sprintf("%T", in.Parameters); !strings.Contains(call, ".Describe") { // *ec2.DescribeVpcsInput
					changed()
					defer changed()
				}
				return next.HandleInitialize(ctx, in)
			}), middleware.Before)
	}
}
