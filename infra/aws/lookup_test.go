package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// calls records the calls of a lookup, each of which takes a tenth of a second.
type calls struct {
	mu   sync.Mutex
	keys [][]int
	at   []time.Time
	fail error
}

func (c *calls) describe(ctx context.Context, keys []int) (map[int]string, error) {
	c.mu.Lock()
	c.keys, c.at = append(c.keys, slices.Sorted(slices.Values(keys))), append(c.at, time.Now())
	c.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(100 * time.Millisecond):
	}
	if c.fail != nil {
		return nil, c.fail
	}
	out := map[int]string{}
	for _, k := range keys {
		if k >= 0 {
			out[k] = fmt.Sprint("thing ", k)
		}
	}
	return out, nil
}

// TestLookupShares asks while no call is under way, while one is under way, and several times at
// once.
func TestLookupShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made calls
		l := Lookup[int, string]{describe: made.describe, limit: 3}
		var all sync.WaitGroup
		ask := func(key int) {
			all.Go(func() {
				found, ok, err := l.Ask(t.Context(), key)
				if want := fmt.Sprint("thing ", key); err != nil || ok != (key >= 0) || ok && found != want {
					t.Errorf("%d: %q, %t, %v", key, found, ok, err)
				}
			})
		}
		ask(1)
		time.Sleep(2 * lookupGather)
		for _, key := range []int{1, 2, 3, -4, 5} { // the call for 1 began before
			ask(key)
		}
		all.Wait()
		got := fmt.Sprint(len(made.keys), slices.Sorted(slices.Values(slices.Concat(made.keys[1:]...))))
		if want := "3 [-4 1 2 3 5]"; got != want { // with at most three keys a call
			t.Errorf("calls: %v, want %s", made.keys, want)
		}
	})
}

// TestLookupPace polls for 1 to 200 things, each every two seconds, and counts the calls of a minute:
// at most one for each question, and from 100 things on fewer the more there are.
func TestLookupPace(t *testing.T) {
	for things, most := range map[int]int{1: 31, 10: 10 * 31, 100: 65, 200: 35} {
		synctest.Test(t, func(t *testing.T) {
			var made calls
			l := Lookup[int, string]{describe: made.describe, limit: 200}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var all sync.WaitGroup
			for key := range things {
				all.Go(func() {
					time.Sleep(time.Duration(key) * 9 * time.Millisecond) // they began at different times
					for ctx.Err() == nil {
						_, _, _ = l.Ask(ctx, key)
						time.Sleep(2 * time.Second)
					}
				})
			}
			all.Wait()
			if len(made.keys) > most {
				t.Errorf("%d things: %d calls a minute, want at most %d", things, len(made.keys), most)
			}
		})
	}
}

// TestLookupEnds: a caller that stops waiting gets no answer and does not end the call for others.
// The call ends with the last caller that waits.
func TestLookupEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made calls
		l := Lookup[int, string]{describe: made.describe, limit: 200}
		impatient, leave := context.WithCancelCause(t.Context())
		errGone := errors.New("gone")
		var all sync.WaitGroup
		all.Go(func() {
			if _, _, err := l.Ask(impatient, 1); !errors.Is(err, errGone) {
				t.Errorf("the impatient one: %v", err)
			}
		})
		all.Go(func() {
			if found, ok, err := l.Ask(t.Context(), 3); !ok || err != nil {
				t.Errorf("one who asked at the same time: %q, %v", found, err)
			}
		})
		time.Sleep(lookupGather + time.Millisecond) // the call is under way
		leave(errGone)
		synctest.Wait()
		all.Go(func() {
			if found, ok, err := l.Ask(t.Context(), 2); !ok || err != nil {
				t.Errorf("the next one: %q, %v", found, err)
			}
		})
		all.Wait()
		if want := [][]int{{1, 3}, {2}}; !slices.EqualFunc(made.keys, want, slices.Equal) {
			t.Errorf("calls for %v, want %v", made.keys, want)
		}

		alone, end := context.WithCancelCause(t.Context())
		all.Go(func() {
			if _, _, err := l.Ask(alone, 4); !errors.Is(err, errGone) {
				t.Errorf("one who waits alone: %v", err)
			}
		})
		time.Sleep(50 * time.Millisecond) // the call is under way
		end(errGone)
		all.Wait()
		began := time.Now()
		made.fail = errors.New("refused")
		for key := range 3 {
			all.Go(func() {
				if _, _, err := l.Ask(t.Context(), key); !errors.Is(err, made.fail) {
					t.Errorf("a call that is refused: %v", err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took > time.Second {
			t.Errorf("the answer took %s", took)
		}
	})
}

// TestLookupForgets: what was not found before is asked for again.
func TestLookupForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known := map[int]string{}
		l := Lookup[int, string]{limit: 1, describe: func(context.Context, []int) (map[int]string, error) { return maps.Clone(known), nil }}
		if _, ok, _ := l.Ask(t.Context(), 1); ok {
			t.Error("found before it was there")
		}
		known[1] = "there"
		if found, ok, _ := l.Ask(t.Context(), 1); !ok || found != "there" {
			t.Errorf("found %q", found)
		}
	})
}

// TestLookupHangs: a call without an answer ends, and the next one is made.
func TestLookupHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := true
		l := Lookup[int, string]{limit: 1, describe: func(ctx context.Context, _ []int) (map[int]string, error) {
			if hangs {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return map[int]string{1: "there"}, nil
		}}
		began := time.Now()
		_, _, err := l.Ask(t.Context(), 1)
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer within 15m0s") || took > lookupBudget+time.Second {
			t.Errorf("after %s: %v", took, err)
		}
		hangs = false
		if _, ok, err := l.Ask(t.Context(), 1); !ok || err != nil {
			t.Errorf("the next call: %v", err)
		}
	})
}
