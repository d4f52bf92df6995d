package timing

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// step is something that took time, with what it did meanwhile.
type step struct {
	recorder   *Recorder
	name       string
	begin, end time.Time
	steps      []*step // that have ended
}

type key struct{}

// Call is Start of a call that consists of others: these begin in the context that it returns.
func (r *Recorder) Call(ctx context.Context, name string) (context.Context, func()) {
	if r == nil {
		return ctx, func() {}
	}
	ctx, over := r.begin(ctx, name, &r.steps)
	return ctx, r.start(name, over)
}

// Begin notes the begin of a part of the step that the context belongs to: a wait, or what is done with one machine. It returns the context of
// the part, and a function that notes its end.
func Begin(ctx context.Context, name string) (context.Context, func()) {
	s, ok := ctx.Value(key{}).(*step)
	if !ok {
		return ctx, func() {}
	}
	return s.recorder.begin(ctx, name, &s.steps)
}

func (r *Recorder) begin(ctx context.Context, name string, to *[]*step) (context.Context, func()) {
	s := &step{recorder: r, name: name, begin: time.Now()}
	return context.WithValue(ctx, key{}, s), func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		s.end = time.Now()
		*to = append(*to, s)
	}
}

// Path returns the critical path of the calls of Call: the call that ended last, before it the one that ended last before that
// began, and so on, each with its own path. A line has the seconds from the first begin to the begin and the end of a step, and how long it took. Steps of less than a
// hundredth of the whole are left out. It is empty if there were no calls.
func (r *Recorder) Path() string {
	if r == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	chain := path(r.steps, time.Now())
	if len(chain) == 0 {
		return ""
	}
	begin := chain[0].begin
	whole := chain[len(chain)-1].end.Sub(begin)
	var b strings.Builder
	fmt.Fprintf(&b, "%-64s %7s %9s %9s\n", "critical path", "from s", "to s", "seconds")
	write(&b, chain, begin, whole/100, "")
	return b.String()
}

// path returns the steps on the critical path to a time, in their order. What ends later was begun for others.
func path(steps []*step, until time.Time) (chain []*step) {
	for _, s := range slices.SortedFunc(slices.Values(steps), func(x, y *step) int { return y.end.Compare(x.end) }) {
		if !s.end.After(until) {
			chain, until = append(chain, s), s.begin
		}
	}
	slices.Reverse(chain)
	return chain
}

// write writes a chain. Steps of the same name after one another are a line: an answer that is asked for again and again.
func write(b *strings.Builder, chain []*step, begin time.Time, least time.Duration, indent string) {
	for len(chain) > 0 {
		n := 1
		var took time.Duration
		for took = chain[0].end.Sub(chain[0].begin); n < len(chain) && chain[n].name == chain[0].name && len(chain[n].steps) == 0; n++ {
			took += chain[n].end.Sub(chain[n].begin)
		}
		if took >= least {
			name := indent + chain[0].name
			if n > 1 {
				name += fmt.Sprintf(" (%d times)", n)
			}
			fmt.Fprintf(b, "%-64s %7.2f %9.2f %9.2f\n", name, chain[0].begin.Sub(begin).Seconds(), chain[n-1].end.Sub(begin).Seconds(), took.Seconds())
			write(b, path(chain[0].steps, chain[0].end), begin, least, indent+"  ")
		}
		chain = chain[n:]
	}
}
