package fleet

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestUntilNone checks that a gate that stays closed reports what the last complete round found.
func TestUntilNone(t *testing.T) {
	cut := []string{"cut short"}
	for _, tt := range []struct {
		name   string
		rounds [][]string // nil: the round does not end before the deadline
		want   []string
		opens  bool
	}{
		{"open at once", [][]string{{}}, nil, true},
		{"opens", [][]string{{"a", "b"}, {"b"}, {}}, nil, true},
		{"stays shut", [][]string{{"a", "b"}, {"b"}, nil}, []string{"b"}, false},
		{"the only round is cut short", [][]string{nil}, cut, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := 0
				last, err := UntilNone(t.Context(), time.Second, "everybody", func(ctx context.Context) []string {
					found := tt.rounds[i]
					if i++; found == nil {
						<-ctx.Done()
						return cut
					}
					return found
				})
				if i != len(tt.rounds) || !slices.Equal(last, tt.want) {
					t.Errorf("after %d rounds of %d: %q, wanted %q", i, len(tt.rounds), last, tt.want)
				}
				if tt.opens != (err == nil) || err != nil && (!errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "everybody: not within 1s")) {
					t.Errorf("error: %v", err)
				}
			})
		})
	}
	t.Run("the caller gives up", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := UntilNone(ctx, time.Minute, "everybody", func(context.Context) []string {
			cancel()
			return []string{"a"}
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error: %v", err)
		}
	})
}
