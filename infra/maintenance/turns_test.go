package maintenance

import (
	"context"
	"testing"
	"time"
)

// TestTurns checks that one machine of a cluster goes down at a time, none while another is being
// started, and that other clusters do not wait.
func TestTurns(t *testing.T) {
	var c Clusters
	turns := c.Turns("demo")
	if c.Turns("demo") != turns {
		t.Fatal("the same cluster has other turns")
	}
	refused := func(what string, of *Turns) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if done, err := of.Take(ctx); err == nil {
			done()
			t.Errorf("%s: it got the turn", what)
		}
	}
	take := func(of *Turns) func() {
		t.Helper()
		done, err := of.Take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return done
	}

	done := take(turns)
	refused("while another is down", turns)
	take(c.Turns("other"))()
	done()
	done() // a second call does nothing
	take(turns)()

	started := turns.Start("controller-0")
	refused("while another is being started", turns)
	started()
	take(turns)()

	turns.Leave("worker-0", "10.240.0.20")
	if !turns.Leaving("worker-0") || !turns.Leaving("10.240.0.20") || turns.Leaving("worker-1") {
		t.Error("who is leaving is not remembered")
	}
}
