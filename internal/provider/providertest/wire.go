package providertest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
)

// Refusing is a machine that cannot be reached.
type Refusing struct{ Name string }

func (r Refusing) WaitReady(context.Context, time.Duration) error {
	return &remote.UnreachableError{Machine: r.Name, Address: "203.0.113.10:22", Err: errors.New("connection refused")}
}

func (r Refusing) Run(ctx context.Context, _ remote.Command) (remote.Output, error) {
	return remote.Output{}, r.WaitReady(ctx, 0)
}

// Wire carries what one process of the provider asks of AWS and of machines. It simulates the death
// of the process at one question: before it (it never arrives) or after it (nobody hears the
// answer). From then on nothing arrives.
type Wire struct {
	mu      sync.Mutex
	asked   []string // actions, in order; "ssh" for a command on a machine
	dieAt   int      // counts from 1 what is asked after arm; 0 never
	DieOn   string   // the process dies at the first question of this name
	arrives bool     // whether the question at which the process dies still takes effect
	died    bool
	loses   func(action string) bool // whether the first answer to an action is lost on its way; nil: none
	end     context.CancelFunc       // ends what the process is doing
	// After, if not nil, is called after each question to AWS and before the next one is put.
	After func(action string)
	turn  sync.Mutex // of questions, if After is set
}

// Arm makes the process die at a question from now on. The returned context is that of what it
// does.
func (w *Wire) Arm(ctx context.Context, at int, arrives bool) context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	ctx, w.end = context.WithCancel(ctx)
	w.asked, w.dieAt, w.arrives = nil, at, arrives
	return ctx
}

func (w *Wire) made() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked)
}

// Dead reports whether the process has died.
func (w *Wire) Dead() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.died
}

// note records a question. The process hears the answer unless deaf; the question is put unless
// lost.
func (w *Wire) note(action string) (lost, deaf bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.died {
		return true, true
	}
	first := !slices.Contains(w.asked, action)
	w.asked = append(w.asked, action)
	if first && w.loses != nil && w.loses(action) {
		return false, true
	}
	if action != w.DieOn && (w.dieAt == 0 || len(w.asked) != w.dieAt) {
		return false, false
	}
	w.died = true
	return !w.arrives, true
}

// serve serves the account to the process and returns its URL.
func (w *Wire) serve(t *testing.T, account http.Handler) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		action := actionOf(r, body)
		lost, deaf := w.note(action)
		if w.After != nil {
			w.turn.Lock()
			defer w.turn.Unlock()
			defer w.After(action)
		}
		if !deaf {
			account.ServeHTTP(rw, r)
			return
		}
		if !lost {
			account.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithoutCancel(r.Context())))
		}
		if w.Dead() {
			w.end()
		}
		panic(http.ErrAbortHandler) // closes the connection
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func actionOf(r *http.Request, body []byte) string {
	if account.IsS3(r) {
		return account.S3Action(r)
	}
	if target := r.Header.Get("X-Amz-Target"); target != "" {
		_, name, _ := strings.Cut(target, ".")
		return name
	}
	form, _ := url.ParseQuery(string(body))
	return form.Get("Action")
}

// mortalShell is a connection of a process that may die.
type mortalShell struct {
	awsmachine.Shell
	wire *Wire
}

var errDied = errors.New("the process has died")

func (s mortalShell) WaitReady(ctx context.Context, patience time.Duration) error {
	if s.wire.Dead() {
		return errDied
	}
	return s.Shell.WaitReady(ctx, patience)
}

func (s mortalShell) Run(ctx context.Context, cmd remote.Command) (out remote.Output, err error) {
	lost, deaf := s.wire.note("ssh")
	if !lost {
		out, err = s.Shell.Run(ctx, cmd)
	}
	if deaf {
		s.wire.end()
		return remote.Output{}, errDied
	}
	return out, err
}
