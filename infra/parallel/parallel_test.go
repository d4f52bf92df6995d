package parallel

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
)

// bug panics as code does that trusts what a machine has said.
func bug(list []int) error {
	i := -1
	for at, v := range list {
		if v == 0 {
			i = at
		}
	}
	_ = list[i]
	return nil
}

func TestPanicIsAnError(t *testing.T) {
	t.Parallel()
	var said, stack string
	ctx := WithLog(t.Context(), func(_ context.Context, message, at string) { said, stack = message, at })
	err := Safely(ctx, "machine worker-0", func() error { return bug([]int{1}) })
	var panicked *PanicError
	if !errors.As(err, &panicked) {
		t.Fatal(err)
	}
	if want := "machine worker-0: a bug of this program has ended the work: runtime error: index out of range [-1]; the debug log says where"; err.Error() != want {
		t.Errorf("%s, wanted %s", err, want)
	}
	if said != err.Error() || !strings.Contains(stack, "parallel.bug(") {
		t.Errorf("the log has %q and %q", said, stack)
	}
	if err := Safely(ctx, "", func() error { return context.Canceled }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestGroupOutlivesAPanic(t *testing.T) {
	t.Parallel()
	for name, g := range map[string]*Group{"with a context": first(WithContext(t.Context())), "zero": {}} {
		g.SetLimit(1) // one after the other
		var done atomic.Int32
		g.Go(func() error { done.Add(1); return nil })
		g.GoFor("machine a", func() error { return bug(nil) })
		g.Go(func() error { done.Add(1); return nil })
		var panicked *PanicError
		if err := g.Wait(); !errors.As(err, &panicked) || panicked.What != "machine a" || done.Load() != 2 {
			t.Errorf("%s: %v, %d others are done", name, err, done.Load())
		}
	}
}

func first(g *Group, _ context.Context) *Group { return g }

func TestDoPanicsInItsCaller(t *testing.T) {
	t.Parallel()
	var done atomic.Int32
	logged := 0
	ctx := WithLog(t.Context(), func(context.Context, string, string) { logged++ })
	err := Safely(ctx, "all", func() error {
		Do(ctx, func() { done.Add(1) }, func() { _ = bug(nil) }, func() { done.Add(1) })
		return nil
	})
	var panicked *PanicError
	if !errors.As(err, &panicked) || done.Load() != 2 || logged != 1 || !strings.Contains(string(panicked.Stack), "parallel.bug(") {
		t.Errorf("%v, %d others are done, %d in the log", err, done.Load(), logged)
	}
}

func TestDial(t *testing.T) {
	t.Parallel()
	var panicked *PanicError
	if _, err := Dial(func(context.Context, string, string) (net.Conn, error) { return nil, bug(nil) })(t.Context(), "", ""); !errors.As(err, &panicked) {
		t.Error(err)
	}
	if _, err := Dial(func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed })(t.Context(), "", ""); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}
