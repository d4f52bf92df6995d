package maintenance

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Clusters holds the turns of every cluster that this process maintains. The zero value is ready
// for use. It is safe for concurrent use.
type Clusters struct {
	turns sync.Map // *Turns by name
}

// Turns returns the turns of a cluster, the same for the same name.
func (c *Clusters) Turns(cluster string) *Turns {
	t, _ := c.turns.LoadOrStore(cluster, &Turns{
		turn: make(chan struct{}, 1), leaving: map[string]bool{}, starting: map[string]chan struct{}{}})
	return t.(*Turns) //nolint:forcetypeassert // nothing else is stored
}

// Turns lets the machines of one cluster go down one at a time when callers work in parallel. It is
// safe for concurrent use.
type Turns struct {
	turn chan struct{} // holds a token while a machine is down or about to be

	mu       sync.Mutex
	leaving  map[string]bool          // by name and by private address
	starting map[string]chan struct{} // closed when the machine answers again
	paused   *paused                  // the last pause; nil if there was none, or a machine has started since
}

// paused is the result of pausing a cluster.
type paused struct {
	ended time.Time
	err   error
}

// Pause makes a whole cluster ready for being stopped, once for all machines that call it: do is
// called by the first, and the others wait for it. It waits for the turn, so no other machine is
// down or being started meanwhile. If do fails, those that wait get its error, and the next call
// tries again.
func (t *Turns) Pause(ctx context.Context, do func(context.Context) error) error {
	began := time.Now()
	done, err := t.Take(ctx)
	defer done()
	if err != nil {
		return err
	}
	t.mu.Lock()
	last := t.paused
	t.mu.Unlock()
	if last != nil && (last.err == nil || last.ended.After(began)) {
		return last.err
	}
	err = do(ctx)
	t.mu.Lock()
	t.paused = &paused{time.Now(), err}
	t.mu.Unlock()
	return err
}

// Take waits for the turn and until no machine is being started. done gives the turn back; it is
// never nil and may be called again. The error is the context's.
func (t *Turns) Take(ctx context.Context) (done func(), err error) {
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return func() {}, fmt.Errorf("wait for the other machines of the cluster: %w", context.Cause(ctx))
	}
	giveBack := sync.OnceFunc(func() { <-t.turn })
	for {
		started := t.oneStarting()
		if started == nil {
			return giveBack, nil
		}
		select {
		case <-started:
		case <-ctx.Done():
			giveBack()
			return func() {}, fmt.Errorf("wait for a machine of the cluster that is being started: %w", context.Cause(ctx))
		}
	}
}

func (t *Turns) oneStarting() chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.starting {
		return c
	}
	return nil
}

// Start notes that a stopped machine is being started, until done is called.
func (t *Turns) Start(name string) (done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := make(chan struct{})
	t.starting[name], t.paused = c, nil
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.starting, name)
		close(c)
	}
}

// Leave notes that a machine, given by its name and its private address, will not come back.
func (t *Turns) Leave(names ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range names {
		t.leaving[n] = true
	}
}

// Leaving reports whether the machine with that name or private address will not come back. It is
// the argument of [Duty.Suspend] and [Duty.Leave].
func (t *Turns) Leaving(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.leaving[name]
}
