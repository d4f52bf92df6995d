package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
)

// A Question is put to one of several servers that would all answer the same.
type Question[T any] struct {
	whom string // for errors: "controller-0"
	ask  func(context.Context) (T, error)
}

// ToEach puts the same question to every machine.
func ToEach[T any](machines []*Machine, ask func(context.Context, *Machine) (T, error)) []Question[T] {
	out := make([]Question[T], len(machines))
	for i, m := range machines {
		out[i] = Question[T]{m.Name(), func(ctx context.Context) (T, error) { return ask(ctx, m) }}
	}
	return out
}

// FirstAnswer asks all machines at once and returns the first answer; with
// none, every error.
func FirstAnswer[T any](ctx context.Context, machines []*Machine, ask func(context.Context, *Machine) (T, error)) (T, error) {
	return InTurn(ctx, 0, nil, ToEach(machines, ask))
}

// AskAPI puts a plan's question to the API servers behind an endpoint, each
// time over a new connection, which a load balancer may give to another of
// them. It ends with ctx or ProbeBudget.
func AskAPI[T any](ctx context.Context, a *Access, endpoint string, ask func(context.Context, *kube.Client) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, ProbeBudget, fmt.Errorf("not within %s", ProbeBudget))
	defer cancel()
	once := Question[T]{endpoint, func(ctx context.Context) (none T, err error) {
		c, err := a.connect(ctx, endpoint, a.dial)
		if err != nil {
			return none, err
		}
		defer c.Close()
		return ask(ctx, c)
	}}
	return InTurn(ctx, AnswerShare, kube.Busy, []Question[T]{once, once, once})
}

// InTurn asks one after the other and returns the first answer; with none,
// every error. The next is asked as soon as one fails, or has not answered
// within share; that one may answer still. Whoever fails with an error that is
// busy is asked once more, after the others. It ends with ctx, without waiting for
// those who do not.
func InTurn[T any](ctx context.Context, share time.Duration, busy func(error) bool, questions []Question[T]) (T, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errAnswered)
	type answer struct {
		i     int
		value T
		err   error
	}
	var (
		none    T
		answers = make(chan answer, len(questions)) // nobody is asked twice at once
		errs    = make([]error, len(questions))
		open    int
		queue   []int
	)
	for i := range questions {
		queue = append(queue, i)
	}
	turn := time.NewTimer(0)
	defer turn.Stop()
	for open > 0 || len(queue) > 0 {
		next := turn.C
		if len(queue) == 0 {
			next = nil
		}
		select {
		case <-ctx.Done():
			for i, q := range questions {
				if errs[i] == nil && !slices.Contains(queue, i) {
					errs[i] = fmt.Errorf("%s gave no answer: %w", q.whom, silence{context.Cause(ctx)})
				}
			}
			if errors.Join(errs...) == nil {
				return none, silence{context.Cause(ctx)}
			}
			return none, joined(errs)
		case <-next:
			i := queue[0]
			queue = queue[1:]
			open++
			go func() {
				v, err := questions[i].ask(ctx)
				answers <- answer{i, v, err}
			}()
			turn.Reset(share)
		case a := <-answers:
			if a.err == nil {
				return a.value, nil
			}
			open--
			pause := time.Duration(0)
			if len(queue) == 0 || errs[queue[0]] != nil {
				pause = UnitPoll // the next has been asked before
			}
			errs[a.i] = a.err
			if busy != nil && busy(a.err) {
				queue = append(queue, a.i)
			}
			turn.Reset(pause)
		}
	}
	if len(questions) == 0 {
		return none, errors.New("no machine to ask")
	}
	return none, joined(errs)
}

var errAnswered = fmt.Errorf("another has answered: %w", context.Canceled)

// silence is why one no longer waits for an answer. It counts as a timeout
// for [kube.Unanswered].
type silence struct{ error }

func (s silence) Timeout() bool   { return true }
func (s silence) Temporary() bool { return true } // net.Error wants it
func (s silence) Unwrap() error   { return s.error }

// joined is errors.Join, each message once.
func joined(errs []error) error {
	var out []error
	for _, err := range errs {
		if err != nil && !slices.ContainsFunc(out, func(o error) bool { return o.Error() == err.Error() }) {
			out = append(out, err)
		}
	}
	return errors.Join(out...)
}
