// Package parallel runs functions in goroutines of their own, in which a panic is an error of the
// function and not the end of the process: finished work on other machines can still be recorded.
// Every goroutine of this repository that does more than wait is started here, or calls [Safely].
//
// What may not enter: what the functions do.
package parallel

import (
	"context"
	"fmt"
	"net"
	"runtime/debug"

	"golang.org/x/sync/errgroup"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
)

// PanicError says that a function panicked. That is a bug of this program.
type PanicError struct {
	What  string // what was at work, for people: "machine worker-0"; may be empty
	Value any
	Stack []byte // where
}

func (e *PanicError) Error() string {
	what := ""
	if e.What != "" {
		what = e.What + ": "
	}
	return fmt.Sprintf("%sa bug of this program has ended the work: %s; the debug log says where", what, foreign.Line(fmt.Sprint(e.Value), 200))
}

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

type logKey struct{}

// WithLog returns a context in which log is told of every panic, with its stack.
func WithLog(ctx context.Context, log func(ctx context.Context, message, stack string)) context.Context {
	return context.WithValue(ctx, logKey{}, log)
}

// logOf returns what is told of panics in a context.
func logOf(ctx context.Context) func(message, stack string) {
	log, ok := ctx.Value(logKey{}).(func(context.Context, string, string))
	if !ok {
		return func(string, string) {}
	}
	return func(message, stack string) { log(ctx, message, stack) }
}

// Safely runs f. A panic of it is a [*PanicError], and what was at work is what.
func Safely(ctx context.Context, what string, f func() error) error {
	return safely(logOf(ctx), what, f)
}

func safely(log func(message, stack string), what string, f func() error) (err error) {
	defer func() {
		value := recover()
		if value == nil {
			return
		}
		if again, ok := value.(*PanicError); ok { // of a Group, which has told the log
			err = again
			return
		}
		panicked := &PanicError{What: what, Value: value, Stack: debug.Stack()}
		if log != nil {
			log(panicked.Error(), string(panicked.Stack))
		}
		err = panicked
	}()
	return f()
}

// Group is an [errgroup.Group] in which a panic is an error. The zero Group is valid, and has no log.
type Group struct {
	group errgroup.Group
	joint *errgroup.Group // with a context
	log   func(message, stack string)
}

// WithContext returns a Group and a context that ends with the first error and with Wait.
func WithContext(ctx context.Context) (*Group, context.Context) {
	joint, inner := errgroup.WithContext(ctx)
	return &Group{joint: joint, log: logOf(ctx)}, inner
}

func (g *Group) inner() *errgroup.Group {
	if g.joint != nil {
		return g.joint
	}
	return &g.group
}

// SetLimit limits how many functions run at the same time.
func (g *Group) SetLimit(n int) { g.inner().SetLimit(n) }

// Go runs f in a goroutine.
func (g *Group) Go(f func() error) { g.GoFor("", f) }

// GoFor is Go for what is at work.
func (g *Group) GoFor(what string, f func() error) {
	g.inner().Go(func() error { return safely(g.log, what, f) })
}

// Wait waits for all functions and returns the first error.
func (g *Group) Wait() error { return g.inner().Wait() }

// Do runs all functions at once and waits for them. If one panics, Do panics with its
// [*PanicError] in the caller's goroutine, where [Safely] makes it an error.
func Do(ctx context.Context, functions ...func()) {
	g, _ := WithContext(ctx)
	for _, f := range functions {
		g.Go(func() error { f(); return nil })
	}
	if err := g.Wait(); err != nil {
		panic(err)
	}
}

// Dial makes a panic of dial an error. Clients call it in goroutines of their own.
func Dial(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		panicked := Safely(ctx, "", func() error {
			conn, err = dial(ctx, network, address)
			return nil
		})
		if panicked != nil {
			return nil, panicked
		}
		return conn, err
	}
}
