package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// A Question is put to one of several servers that would all give the same answer.
type Question[T any] struct {
	whom string // for errors: "controller-0"
	ask  func(context.Context) (T, error)
}

// QuestionsFor makes one question for every machine.
func QuestionsFor[T any](machines []*Machine, ask func(context.Context, *Machine) (T, error)) []Question[T] {
	out := make([]Question[T], len(machines))
	for i, m := range machines {
		out[i] = Question[T]{m.Name(), func(ctx context.Context) (T, error) { return ask(ctx, m) }}
	}
	return out
}

// FirstAnswer asks all machines at once and returns the first answer. If no machine answers, it
// returns all errors, joined.
func FirstAnswer[T any](ctx context.Context, machines []*Machine, ask func(context.Context, *Machine) (T, error)) (T, error) {
	return AskInTurn(ctx, 0, nil, QuestionsFor(machines, ask))
}

// API is how to reach the API servers of a running cluster.
type API struct {
	// Endpoint is https://<host>:6443.
	Endpoint string
	PKI      pki.Ref
}

// AskAPI asks the API servers behind an endpoint while planning. Each attempt uses a new
// connection, which a load balancer may give to another server. It ends with ctx or after
// ProbeBudget, and at once if they have given no answer to another question (see [Silence]).
func AskAPI[T any](ctx context.Context, a *Access, endpoint string, ask func(context.Context, *kube.Client) (T, error)) (answer T, err error) {
	once := Question[T]{endpoint, func(ctx context.Context) (none T, err error) {
		c, err := a.connect(ctx, endpoint, a.dial)
		if err != nil {
			return none, err
		}
		defer c.Close()
		return ask(ctx, c)
	}}
	err = a.silence.ask(ctx, a.Keys.Ref.Cluster, endpoint, func() (err error) {
		ctx, cancel := Probing(ctx)
		defer cancel()
		answer, err = AskInTurn(ctx, AnswerShare, kube.Busy, []Question[T]{once, once, once})
		return err
	})
	return answer, err
}

// AskAPIServers asks the API servers on their machines while planning. It ends with ctx or after
// ProbeBudget.
func AskAPIServers[T any](ctx context.Context, a *Access, machines []*Machine, ask func(context.Context, *Machine) (T, error)) (T, error) {
	probing, cancel := Probing(ctx)
	defer cancel()
	answer, err := AskInTurn(probing, AnswerShare, kube.Busy, QuestionsFor(machines, ask))
	// The same servers are behind the endpoint. Nothing is known of servers whose machines cannot be
	// reached.
	if kube.Unanswered(err) && !Unreachable(err) && probing.Err() != nil && ctx.Err() == nil {
		a.silence.silent(a.Keys.Ref.Cluster, err, patience.Of(ctx, ProbeBudget))
	}
	return answer, err
}

// AskInTurn asks one server after the other and returns the first answer. If none answers, it
// returns all errors, joined. The next server is asked as soon as one fails or has not answered
// within share; the slow one may still answer. A server whose error is busy is asked once more,
// after the others. AskInTurn returns when ctx ends and does not wait for questions that still run.
func AskInTurn[T any](ctx context.Context, share time.Duration, busy func(error) bool, questions []Question[T]) (T, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errAnswered)
	type answer struct {
		i     int
		value T
		err   error
	}
	var (
		none    T
		answers = make(chan answer, len(questions)) // no server gets two questions at the same time
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
				a := answer{i: i}
				a.err = parallel.Safely(ctx, questions[i].whom, func() (err error) {
					a.value, err = questions[i].ask(ctx)
					return err
				})
				answers <- a
			}()
			turn.Reset(share)
		case a := <-answers:
			if a.err == nil {
				return a.value, nil
			}
			open--
			pause := time.Duration(0)
			if len(queue) == 0 || errs[queue[0]] != nil {
				pause = UnitPoll // the next server has been asked already
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

var errAnswered = fmt.Errorf("another machine has answered: %w", context.Canceled)

// silence is the reason for no longer waiting for a server's answer. It counts as a timeout for
// [kube.Unanswered].
type silence struct{ error }

func (s silence) Timeout() bool   { return true }
func (s silence) Temporary() bool { return true } // part of net.Error
func (s silence) Unwrap() error   { return s.error }

// joined is errors.Join with each message only once.
func joined(errs []error) error {
	var out []error
	for _, err := range errs {
		if err != nil && !slices.ContainsFunc(out, func(o error) bool { return o.Error() == err.Error() }) {
			out = append(out, err)
		}
	}
	return errors.Join(out...)
}
