package provider

import (
	"context"
	"testing"
	"time"
)

// TestClusterTurns: one machine of a cluster at a time, none while another is
// being started, and other clusters do not wait.
func TestClusterTurns(t *testing.T) {
	var d providerData
	turns := d.turns("demo")
	if d.turns("demo") != turns {
		t.Fatal("the same cluster has other turns")
	}
	refused := func(what string, of *clusterTurns) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if done, err := of.take(ctx); err == nil {
			done()
			t.Errorf("%s: it got the turn", what)
		}
	}
	take := func(of *clusterTurns) func() {
		t.Helper()
		done, err := of.take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return done
	}

	done := take(turns)
	refused("while another is down", turns)
	take(d.turns("other"))()
	done()
	done() // a second time is nothing
	take(turns)()

	started := turns.start("controller-0")
	refused("while another is being started", turns)
	started()
	take(turns)()

	turns.leave("worker-0", "10.240.0.20")
	if !turns.isLeaving("worker-0") || !turns.isLeaving("10.240.0.20") || turns.isLeaving("worker-1") {
		t.Error("who is leaving is not remembered")
	}
}
