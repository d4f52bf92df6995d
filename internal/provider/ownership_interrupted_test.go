package provider_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestInterruptedAnywhere kills the first create of every kind at every call, before a state was
// saved. The same configuration goes on without state, owns everything then, and leaves nothing.
func TestInterruptedAnywhere(t *testing.T) {
	t.Parallel()
	for kind, name := range []string{"k8s_network", "k8s_pki", "k8s_machine"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := interrupted(t, kind, 0)
			for at := 1; at <= calls; at++ {
				t.Run(fmt.Sprintf("call %d of %d", at, calls), func(t *testing.T) {
					t.Parallel()
					interrupted(t, kind, at)
				})
			}
		})
	}
}

// cloudFor returns a cloud for one of OwnedCluster.all, with the network that a machine needs.
func cloudFor(t *testing.T, kind int) (c providertest.Cloud, network *providertest.Instance) {
	t.Helper()
	c = providertest.NewCloud(t)
	if kind == 2 {
		network = c.Instance("k8s_network")
		network.Must(providertest.NetworkConfig())
		c = c.Ends(t)
	}
	return c, network
}

// interrupted creates one resource in a process that dies at a call, and again in the next one. It
// returns the number of calls of the first process.
func interrupted(t *testing.T, kind, at int) int {
	t.Helper()
	c, network := cloudFor(t, kind)
	dying, wire := c.Doomed(t, at)
	first := dying.NewCluster()
	victim := first.All()[kind]
	config := first.Config(victim, network)
	said := victim.Attempt(config)
	calls := wire.Count()
	if at == 0 {
		c = dying
	} else {
		// No state was saved. The end of the process settles nothing either, since it was killed.
		if said == "" {
			t.Logf("call %d failed, and the create did not", at)
		}
		c = c.Process(t)
		second := c.NewCluster()
		victim = second.All()[kind]
		if said := victim.Attempt(config); said != "" {
			t.Fatalf("resumed after %d calls: %s", at, said)
		}
	}
	c.Settle()
	c = c.Process(t)
	providertest.Mention(t, c.NewCluster().All()[kind].Attempt(config), "belongs to another state")
	victim = c.Taken(victim)
	victim.Converged(config)
	if said := victim.Dismiss(); len(said.Errors)+len(said.Warnings) > 0 {
		t.Fatalf("%v %v", said.Errors, said.Warnings)
	}
	if network != nil {
		c.Fatal(c.Taken(network).Dismiss().Errors)
	}
	c.Account.Empty()
	return calls
}

// TestAtOnce creates every kind in two states at the same time. At most one state has the object.
// The other state gets an error, or both do; then the next apply of either decides. If one create
// ends before the other one looks, the error comes with the first state's next refresh.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	for kind, name := range []string{"k8s_network", "k8s_pki", "k8s_machine"} {
		for round := range 4 {
			t.Run(fmt.Sprintf("%s %d", name, round), func(t *testing.T) {
				t.Parallel()
				atOnce(t, kind)
			})
		}
	}
}

// TestInTurns creates every kind in two states whose calls take turns: the first create stands
// still before one of its calls, the second one begins and stands still before one of its own, the
// first one ends, and then the second one. Without K8S_KILLS=all it tries some pairs of calls only.
func TestInTurns(t *testing.T) {
	t.Parallel()
	for kind, name := range []string{"k8s_network", "k8s_pki", "k8s_machine"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := interrupted(t, kind, 0)
			step, pairs := 37, 0
			if providertest.EveryKill {
				step = 1
			}
			for pair := 0; pair < calls*calls; pair += step {
				first, second := 1+pair/calls, 1+pair%calls
				pairs++
				t.Run(fmt.Sprintf("calls %d and %d of %d", first, second, calls), func(t *testing.T) {
					t.Parallel()
					inTurns(t, kind, first, second)
				})
			}
			t.Logf("figures: %d pairs of creates of %s in turns", pairs, name)
		})
	}
}

func inTurns(t *testing.T, kind, first, second int) {
	t.Helper()
	compete(t, kind, func(begin [2]func(), ways [2]*providertest.Mortal) {
		firstEnds, secondRests := make(chan struct{}), make(chan struct{})
		rests := sync.OnceFunc(func() { close(secondRests) })
		var g sync.WaitGroup
		ways[1].Before = func(call int) {
			if call == second {
				rests()
				<-firstEnds
			}
		}
		ways[0].Before = func(call int) {
			if call == first {
				g.Go(func() { defer rests(); begin[1]() })
				<-secondRests
			}
		}
		begin[0]()
		close(firstEnds)
		g.Wait()
		if ways[1].Count() == 0 { // the first create had ended before its call
			begin[1]()
		}
	})
}

func atOnce(t *testing.T, kind int) {
	t.Helper()
	compete(t, kind, func(begin [2]func(), _ [2]*providertest.Mortal) {
		var g sync.WaitGroup
		for _, b := range begin {
			g.Go(b)
		}
		g.Wait()
	})
}

// compete creates one resource in two states and checks that one of them has it in the end. run
// begins both creates and returns when both have ended.
func compete(t *testing.T, kind int, run func(begin [2]func(), ways [2]*providertest.Mortal)) {
	t.Helper()
	c, network := cloudFor(t, kind)
	var processes [2]providertest.Cloud
	var ways [2]*providertest.Mortal
	var both [2]*providertest.Instance
	var begin [2]func()
	var said [2]string
	var config providertest.Values
	for n := range processes {
		processes[n], ways[n] = c.Doomed(t, 0)
		cluster := processes[n].NewCluster()
		both[n] = cluster.All()[kind]
		own := cluster.Config(both[n], network)
		begin[n] = func() { said[n] = both[n].Attempt(own) }
		config = cluster.Config(both[n], network)
	}
	run(begin, ways)
	if said[0] == "" && said[1] == "" {
		for n := range both {
			said[n] = c.Process(t).Taken(both[n]).Refreshed()
		}
		if (said[0] == "") == (said[1] == "") {
			t.Fatalf("both have it, or nobody: %q", said)
		}
		loser := slices.IndexFunc(said[:], func(s string) bool { return s != "" })
		providertest.Mention(t, said[loser], "belongs to another state")
		both[loser] = processes[loser].Instance(both[loser].TypeName) // terraform state rm
	}
	for n, s := range said {
		if s != "" && !strings.Contains(s, "belongs to another state") {
			t.Logf("the loser was told: %s", s)
		}
		if s != "" && strings.Contains(s, "belongs to another state") && !both[n].State.IsNull() {
			t.Errorf("the loser has it in its state: %s", s)
		}
		processes[n].Settle()
	}
	owner := -1
	for n := range both {
		p := c.Process(t)
		both[n] = p.Taken(both[n])
		if said[n] == "" {
			// What the loser took at the last moment shows as drift, and the next apply mends it.
			both[n].Refresh()
			both[n].Must(config)
			both[n].Converged(config)
			owner = n
		}
	}
	for n := range both {
		if n == owner {
			continue
		}
		if !both[n].State.IsNull() { // tainted: destroyed first
			c.Fatal(both[n].Dismiss().Errors)
		}
		got := both[n].Attempt(config)
		if owner < 0 && got != "" && !both[n].State.IsNull() { // tainted: the next apply replaces it
			c.Fatal(both[n].Dismiss().Errors)
			got = both[n].Attempt(config)
		}
		switch {
		case owner < 0 && got == "":
			owner = n
		case owner < 0:
			t.Fatalf("nobody else has it: %s", got)
		default:
			providertest.Mention(t, got, "belongs to another state")
		}
		if owner == n {
			both[n].Refresh() // settles
		}
	}
	if d := both[owner].Dismiss(); len(d.Errors)+len(d.Warnings) > 0 {
		t.Fatalf("%v %v", d.Errors, d.Warnings)
	}
	if network != nil {
		c.Fatal(c.Process(t).Taken(network).Dismiss().Errors)
	}
	c.Account.Empty()
}

// TestLateSettle: a process that made everything first and ends last settles nothing that somebody
// else has taken over meanwhile. A third state would take it from them otherwise.
func TestLateSettle(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network := c.Instance("k8s_network")
	network.Must(providertest.NetworkConfig())
	c = c.Ends(t)
	slow, quick := c.Process(t), c.Process(t)
	first, second := slow.NewCluster(), quick.NewCluster()
	for n := range first.All()[1:] {
		for _, o := range []providertest.OwnedCluster{first, second} {
			i := o.All()[n+1]
			i.Must(o.Config(i, network))
		}
	}
	quick.Settle()
	slow.Settle()
	third := c.Process(t).NewCluster()
	for _, i := range third.All()[1:] {
		providertest.Mention(t, i.Attempt(third.Config(i, network)), "belongs to another state")
	}
	after := c.Process(t)
	for _, i := range second.All()[1:] {
		config := second.Config(i, network)
		i = after.Taken(i)
		i.Converged(config)
		c.Fatal(i.Dismiss().Errors)
	}
	c.Fatal(after.Taken(network).Dismiss().Errors)
	c.Account.Empty()
}
