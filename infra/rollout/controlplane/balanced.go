package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// An API server can be ready for its administrator, on its own machine, while the load balancer treats it as
// down. A roll that asks only the machines would then end with a cluster that no client reaches. So two more
// conditions must hold for a changed API server before the next one is changed: it answers health checks, and
// the load balancer sends a client to it.

const (
	// balancerPoll is the pause between two connections to the load balancer.
	balancerPoll = 500 * time.Millisecond
	// openConnections is how many connections to other API servers stay open meanwhile. So a load
	// balancer that prefers the server with the fewest connections chooses the changed API server.
	openConnections = 32
)

// balanced waits until the load balancer, if there is one, sends clients to the API server of a machine. Until
// then the record says that it is not known to do so. Where the load balancer is not reached from here at all,
// only the API server's answer to health checks counts.
func (o *operation) balanced(ctx context.Context, m *fleet.Machine) error {
	if o.want.Balancer == "" {
		return nil
	}
	q := balancing{operation: o, machine: m, began: time.Now()}
	q.sick = q.began
	defer q.close()
	err := fleet.Within(ctx, fleet.APIBudget, "a connection through the load balancer", func(ctx context.Context) error {
		return wait.PollUntilContextCancel(ctx, balancerPoll, true, q.ask)
	})
	switch {
	case err != nil:
		return q.failed(err)
	case q.unreachable:
		m.Say("API server: the load balancer cannot be asked from here: %v", q.last)
	default:
		m.Say("API server: the load balancer sends clients to it")
	}
	o.noteUnproven(m.Name(), false)
	return nil
}

// answers are when connections through the load balancer began that have led to a ready API server, by its
// certificate. Machines that are started together share them: each may see the answer for which another one waits,
// as long as the load balancer takes its servers in turn.
type answers struct {
	mu   sync.Mutex
	last map[string]time.Time
}

func (a *answers) add(certificate string, began time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last == nil {
		a.last = map[string]time.Time{}
	}
	if began.After(a.last[certificate]) {
		a.last[certificate] = began
	}
}

// since reports whether a connection that began after a time has led to an API server.
func (a *answers) since(certificate string, t time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last[certificate].After(t)
}

// balancing is the wait for a load balancer.
type balancing struct {
	*operation
	machine *fleet.Machine
	began   time.Time // of the wait
	sick    time.Time // when the API server answered last that it is not ready; the beginning at first
	asked   time.Time // when the load balancer was asked first

	connected   bool // the load balancer took a connection
	unreachable bool // it has not, for long enough to say so
	healthy     bool // the API server answers as health checks want
	last        error
	open        []kube.Answer
}

// ask asks the API server and the load balancer once. Its error is final. A round cut short by the deadline does
// not count.
func (q *balancing) ask(ctx context.Context) (done bool, err error) {
	own, failed := q.Access.CheckHealth(ctx, q.machine)
	own.Close()
	if over(ctx) {
		return false, nil
	}
	q.healthy = failed == nil && own.Status == http.StatusOK
	if !q.healthy {
		if failed == nil {
			failed = refusal(own)
		}
		q.last, q.sick = failed, time.Now()
		// A server that has just started may refuse until it has read its rules.
		refused := own.Status == http.StatusUnauthorized || own.Status == http.StatusForbidden
		if refused && time.Since(q.began) >= fleet.ReachBudget {
			return false, errRefused
		}
		return false, nil
	}
	if q.asked.IsZero() {
		q.asked = time.Now()
	}
	began := time.Now()
	behind, failed := q.Access.AskBehind(ctx, q.want.Balancer)
	q.connected = q.connected || behind.Connected
	if failed == nil && behind.Status == http.StatusOK {
		q.behind.add(behind.Certificate, began)
	}
	if failed != nil || behind.Certificate == own.Certificate || len(q.open) >= openConnections {
		behind.Close()
	} else {
		q.open = append(q.open, behind)
	}
	if over(ctx) || q.behind.since(own.Certificate, q.sick) {
		return !over(ctx), nil
	}
	if failed == nil {
		failed = fmt.Errorf("%s leads to other API servers only", q.want.Balancer)
	}
	q.last = failed
	q.unreachable = !q.connected && time.Since(q.asked) >= fleet.ReachBudget
	return q.unreachable, nil
}

func over(ctx context.Context) bool { return ctx.Err() != nil }

// errRefused marks the end of a wait for an API server that refuses health checks.
var errRefused = errors.New("refused")

func refusal(a kube.Answer) error {
	return fmt.Errorf("GET /readyz without credentials: %d %s", a.Status, http.StatusText(a.Status))
}

func (q *balancing) close() {
	for _, a := range q.open {
		a.Close()
	}
}

// failed says how the wait ended, and what to look at.
func (q *balancing) failed(err error) error {
	switch {
	case errors.Is(err, errRefused):
		err = q.last
	case q.last != nil:
		err = fmt.Errorf("%w (last: %w)", err, q.last)
	}
	failed := &fleet.StepError{Machine: q.machine.Name(), Err: err, Unit: component.APIServerUnit,
		Step: "ask the API server as the load balancer's health checks do",
		Next: "correct which of its flags and files refuse anonymous requests of /readyz (authorization-config, authorization-mode), and apply again: the load " +
			"balancer sends no client to this API server"}
	if q.healthy {
		failed.Step = "wait until the load balancer sends clients to the API server"
		failed.Next = "find out why the load balancer treats this API server as down, although it is ready and answers health checks on its machine: see the load balancer's log, or the health " +
			"of its targets"
	}
	return failed
}

// noteUnproven records whether it is unknown that the load balancer sends clients to the API server of a machine.
func (o *operation) noteUnproven(name string, unproven bool) {
	if m := o.ByName(name); m != nil {
		m.Record.Unproven = unproven
	}
	o.Note(func(r *rollout.Record) {
		rec := r.Machines[name]
		rec.Unproven = unproven
		r.Machines[name] = rec
	})
}
