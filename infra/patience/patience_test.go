package patience

import (
	"context"
	"testing"
	"time"
)

func TestOf(t *testing.T) {
	for name, tt := range map[string]struct {
		ctx          context.Context
		budget, want time.Duration
	}{
		"by default":      {t.Context(), 1500 * time.Millisecond, 1500 * time.Millisecond},
		"three times":     {With(t.Context(), 3), 2 * time.Minute, 6 * time.Minute},
		"whole seconds":   {With(t.Context(), 2.2), 1500 * time.Millisecond, 3 * time.Second},
		"never shorter":   {With(t.Context(), 0.1), 2 * time.Minute, 2 * time.Minute},
		"hardly longer":   {With(t.Context(), 1.1), 200 * time.Millisecond, 200 * time.Millisecond},
		"the last counts": {With(With(t.Context(), 3), 1), time.Minute, time.Minute},
	} {
		if got := Of(tt.ctx, tt.budget); got != tt.want {
			t.Errorf("%s: %s, wanted %s", name, got, tt.want)
		}
	}
}

func TestWithin(t *testing.T) {
	ctx, cancel := Within(With(t.Context(), 3), time.Minute)
	defer cancel()
	if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline).Round(time.Minute) != 3*time.Minute {
		t.Errorf("it ends %s", deadline)
	}
}
