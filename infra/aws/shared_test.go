package aws

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestShared: which callers get an answer that others have asked for, and which cause a new call.
func TestShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s Shared[int]
		var asked atomic.Int64
		get := func(asker string, changes int64) int {
			n, err := s.Get(t.Context(), "demo", asker, changes, func(context.Context) (int, error) {
				time.Sleep(time.Second)
				return int(asked.Add(1)), nil
			})
			if err != nil {
				t.Error(err)
			}
			return n
		}
		var all sync.WaitGroup
		for _, asker := range []string{"a", "b", "c"} {
			all.Go(func() {
				if n := get(asker, 0); n != 1 {
					t.Errorf("%s, one of the first three callers, got answer %d", asker, n)
				}
			})
		}
		all.Wait()
		for _, tt := range []struct {
			why, asker string
			changes    int64
			after      time.Duration
			want       int
		}{
			{"a caller without the first answer", "d", 0, 0, 1},
			{"a caller that has the first answer", "a", 0, 0, 2},
			{"a caller after that", "b", 0, 0, 2},
			{"something was changed", "c", 1, 0, 3},
			{"it is old", "d", 1, sharedFor, 4},
		} {
			time.Sleep(tt.after)
			if n := get(tt.asker, tt.changes); n != tt.want {
				t.Errorf("%s: got answer %d, wanted %d", tt.why, n, tt.want)
			}
		}
	})
}

// TestSharedInterrupted: a caller that gives up does not end the call for the others. The last one
// ends it, and an error is not kept.
func TestSharedInterrupted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s Shared[int]
		interrupted := false
		ask := func(ctx context.Context) (int, error) {
			select {
			case <-ctx.Done():
				interrupted = true
				return 0, ctx.Err()
			case <-time.After(time.Minute):
				return 1, nil
			}
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		long, cancelLong := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancelLong()
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := s.Get(short, "demo", "a", 0, ask); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the caller without time got %v", err)
			}
		})
		all.Go(func() {
			if n, err := s.Get(long, "demo", "b", 0, ask); n != 1 || err != nil {
				t.Errorf("the caller with time got %d, %v", n, err)
			}
		})
		all.Wait()
		if interrupted {
			t.Error("the question was interrupted although one was waiting")
		}
		alone, cancelAlone := context.WithTimeout(t.Context(), time.Second)
		defer cancelAlone()
		if _, err := s.Get(alone, "demo", "b", 0, ask); err == nil {
			t.Error("no error")
		}
		synctest.Wait()
		if !interrupted || len(s.answers) > 0 {
			t.Errorf("after the last one has ended: interrupted %t, %d answers", interrupted, len(s.answers))
		}
	})
}
