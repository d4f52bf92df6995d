package provider

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// mortal is the way of one process to AWS. The process dies at one of its calls: the call takes
// effect, and nothing after it. 0 is never.
type mortal struct {
	mu     sync.Mutex
	calls  []string
	before func(call int) // runs before a call arrives
	dieAt  int
	url    string
	die    context.CancelFunc
}

func (m *mortal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	m.mu.Lock()
	m.calls = append(m.calls, string(body))
	number := len(m.calls)
	m.mu.Unlock()
	if m.before != nil {
		m.before(number)
	}
	dead := m.dieAt > 0 && number >= m.dieAt
	if !dead || number == m.dieAt {
		out, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, m.url+r.URL.RequestURI(), bytes.NewReader(body))
		if err != nil {
			panic(err)
		}
		out.Header, out.Host = r.Header.Clone(), r.Host
		resp, err := http.DefaultClient.Do(out)
		if err != nil {
			panic(err)
		}
		defer resp.Body.Close()
		if !dead {
			for k, v := range resp.Header {
				w.Header()[k] = v
			}
			w.WriteHeader(resp.StatusCode)
			_, _ = io.Copy(w, resp.Body)
			return
		}
	}
	m.die()
	w.WriteHeader(http.StatusBadRequest) // the SDK does not repeat it
	_, _ = io.WriteString(w, "<Response><Errors><Error><Code>Killed</Code><Message>killed</Message></Error></Errors></Response>")
}

func (m *mortal) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.calls)
}

// doomed starts a process that dies at one of its calls.
func (c cloud) doomed(t *testing.T, dieAt int) (cloud, *mortal) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	m := &mortal{dieAt: dieAt, url: c.account.URL, die: cancel}
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	next := c.processAt(t, server.URL)
	next.ctx = ctx
	return next, m
}

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

// cloudFor returns a cloud for one of ownedCluster.all, with the network that a machine needs.
func cloudFor(t *testing.T, kind int) (c cloud, network *instance) {
	t.Helper()
	c = newCloud(t)
	if kind == 2 {
		network = c.instance("k8s_network")
		network.must(networkConfig())
		c = c.ends(t)
	}
	return c, network
}

// interrupted creates one resource in a process that dies at a call, and again in the next one. It
// returns the number of calls of the first process.
func interrupted(t *testing.T, kind, at int) int {
	t.Helper()
	c, network := cloudFor(t, kind)
	dying, wire := c.doomed(t, at)
	first := dying.newCluster()
	victim := first.all()[kind]
	config := first.config(victim, network)
	said := victim.attempt(config)
	calls := wire.count()
	if at == 0 {
		c = dying
	} else {
		// No state was saved. The end of the process settles nothing either, since it was killed.
		if said == "" {
			t.Logf("call %d failed, and the create did not", at)
		}
		c = c.process(t)
		second := c.newCluster()
		victim = second.all()[kind]
		if said := victim.attempt(config); said != "" {
			t.Fatalf("resumed after %d calls: %s", at, said)
		}
	}
	c.provider.Settle(t.Context())
	c = c.process(t)
	mention(t, c.newCluster().all()[kind].attempt(config), "is another's")
	victim = c.taken(victim)
	victim.settled(config)
	if said := victim.dismiss(); len(said.errors)+len(said.warnings) > 0 {
		t.Fatalf("%v %v", said.errors, said.warnings)
	}
	if network != nil {
		c.fatal(c.taken(network).dismiss().errors)
	}
	c.account.Empty()
	return calls
}

// TestAtOnce creates every kind in two states at the same time. At most one has it. The other one
// is told so, or both are; then the next apply of either decides. If one create has ended before
// the other one looked, its next refresh is told.
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
			if everyKill {
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
	compete(t, kind, func(begin [2]func(), ways [2]*mortal) {
		firstEnds, secondRests := make(chan struct{}), make(chan struct{})
		rests := sync.OnceFunc(func() { close(secondRests) })
		var g sync.WaitGroup
		ways[1].before = func(call int) {
			if call == second {
				rests()
				<-firstEnds
			}
		}
		ways[0].before = func(call int) {
			if call == first {
				g.Go(func() { defer rests(); begin[1]() })
				<-secondRests
			}
		}
		begin[0]()
		close(firstEnds)
		g.Wait()
		if ways[1].count() == 0 { // the first create had ended before its call
			begin[1]()
		}
	})
}

func atOnce(t *testing.T, kind int) {
	t.Helper()
	compete(t, kind, func(begin [2]func(), _ [2]*mortal) {
		var g sync.WaitGroup
		for _, b := range begin {
			g.Go(b)
		}
		g.Wait()
	})
}

// compete creates one resource in two states and checks that one of them has it in the end. run
// begins both creates and returns when both have ended.
func compete(t *testing.T, kind int, run func(begin [2]func(), ways [2]*mortal)) {
	t.Helper()
	c, network := cloudFor(t, kind)
	var processes [2]cloud
	var ways [2]*mortal
	var both [2]*instance
	var begin [2]func()
	var said [2]string
	var config values
	for n := range processes {
		processes[n], ways[n] = c.doomed(t, 0)
		cluster := processes[n].newCluster()
		both[n] = cluster.all()[kind]
		own := cluster.config(both[n], network)
		begin[n] = func() { said[n] = both[n].attempt(own) }
		config = cluster.config(both[n], network)
	}
	run(begin, ways)
	if said[0] == "" && said[1] == "" {
		for n := range both {
			said[n] = c.process(t).taken(both[n]).refreshed()
		}
		if (said[0] == "") == (said[1] == "") {
			t.Fatalf("both have it, or nobody: %q", said)
		}
		loser := slices.IndexFunc(said[:], func(s string) bool { return s != "" })
		mention(t, said[loser], "is another's")
		both[loser] = processes[loser].instance(both[loser].typeName) // terraform state rm
	}
	for n, s := range said {
		if s != "" && !strings.Contains(s, "is another's") {
			t.Logf("the loser was told: %s", s)
		}
		if s != "" && strings.Contains(s, "is another's") && !both[n].state.IsNull() {
			t.Errorf("the loser has it in its state: %s", s)
		}
		processes[n].provider.Settle(t.Context())
	}
	owner := -1
	for n := range both {
		p := c.process(t)
		both[n] = p.taken(both[n])
		if said[n] == "" {
			// What the loser took at the last moment shows as drift, and the next apply mends it.
			both[n].refresh()
			both[n].must(config)
			both[n].settled(config)
			owner = n
		}
	}
	for n := range both {
		if n == owner {
			continue
		}
		if !both[n].state.IsNull() { // tainted: destroyed first
			c.fatal(both[n].dismiss().errors)
		}
		got := both[n].attempt(config)
		if owner < 0 && got != "" && !both[n].state.IsNull() { // tainted: the next apply replaces it
			c.fatal(both[n].dismiss().errors)
			got = both[n].attempt(config)
		}
		switch {
		case owner < 0 && got == "":
			owner = n
		case owner < 0:
			t.Fatalf("nobody else has it: %s", got)
		default:
			mention(t, got, "is another's")
		}
		if owner == n {
			both[n].refresh() // settles
		}
	}
	if d := both[owner].dismiss(); len(d.errors)+len(d.warnings) > 0 {
		t.Fatalf("%v %v", d.errors, d.warnings)
	}
	if network != nil {
		c.fatal(c.process(t).taken(network).dismiss().errors)
	}
	c.account.Empty()
}

// TestLateSettle: a process that made everything first and ends last settles nothing that somebody
// else has taken over meanwhile. A third state would take it from them otherwise.
func TestLateSettle(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network := c.instance("k8s_network")
	network.must(networkConfig())
	c = c.ends(t)
	slow, quick := c.process(t), c.process(t)
	first, second := slow.newCluster(), quick.newCluster()
	for n := range first.all()[1:] {
		for _, o := range []ownedCluster{first, second} {
			i := o.all()[n+1]
			i.must(o.config(i, network))
		}
	}
	quick.provider.Settle(t.Context())
	slow.provider.Settle(t.Context())
	third := c.process(t).newCluster()
	for _, i := range third.all()[1:] {
		mention(t, i.attempt(third.config(i, network)), "is another's")
	}
	after := c.process(t)
	for _, i := range second.all()[1:] {
		config := second.config(i, network)
		i = after.taken(i)
		i.settled(config)
		c.fatal(i.dismiss().errors)
	}
	c.fatal(after.taken(network).dismiss().errors)
	c.account.Empty()
}
