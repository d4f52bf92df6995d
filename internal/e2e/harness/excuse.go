package harness

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A request may fail for a reason that does not count against what is tested: on a busy computer
// etcd may hold an unplanned election, and the load balancer may take an API server for dead. Each
// such failure must be confirmed, by the journals of the machines, or by the provider, which
// announces when it cannot rule out that a write is lost.

// excuse removes the failures that are confirmed.
func (x *Traffic) excuse(t *testing.T, announced ...time.Time) {
	t.Helper()
	if len(x.failed) > 0 {
		announced = append(announced, x.cluster.suite.announced(t)...)
	}
	x.failed = slices.DeleteFunc(x.failed, func(f failure) bool {
		why := x.cluster.excuse(t, f, announced)
		if why != "" {
			x.excused++
			t.Logf("%s\nis excused: %s", f, why)
		}
		return why != ""
	})
}

var (
	// lostInElection is what etcd answers to a write during a change of its leader.
	lostInElection = []string{"etcdserver: request timed out", "raft proposal dropped", "etcdserver: leader changed"}
	// cut is what a client reports if its connection ends before the answer arrives.
	cut = []string{"EOF", "connection reset by peer", "http2: client connection lost"}
)

func (f failure) says(any []string) bool {
	return slices.ContainsFunc(any, func(words string) bool { return strings.Contains(f.err.Error(), words) })
}

// Patiently is Kubectl with a standard input, for a step that only prepares or looks: for a minute it tries again after a failure
// that may have such a reason, without its confirmation. A command may have had its effect nevertheless, so it must
// succeed also the second time.
func (c *Cluster) Patiently(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Second) {
		out, err := c.suite.Kubectl(t.Context(), c.Kubeconfig, strings.NewReader(stdin), args...)
		if err == nil {
			return out
		}
		if f := (failure{err: err}); time.Since(began) > time.Minute || !f.says(lostInElection) && !f.says(cut) {
			t.Fatal(err)
		}
		t.Logf("tried again: %v", err)
	}
}

// underWay reports whether the request was under way at a time, or in the second after it.
func (f failure) underWay(at time.Time) bool {
	return f.began.Before(at.Add(time.Second)) && f.began.Add(f.took).After(at)
}

// excuse returns the confirmed reason for a failed request, "" if there is none.
func (c *Cluster) excuse(t *testing.T, f failure, announced []time.Time) string {
	t.Helper()
	switch {
	case f.says(lostInElection) && slices.ContainsFunc(announced, f.underWay):
		return "it was announced that it may be lost"
	case f.says(lostInElection):
		return strings.Join(c.unaskedElections(t, f.began.Add(-2*time.Second), f.began.Add(f.took)), "\n")
	case f.says(cut):
		return c.journal(t, "lb-0", "haproxy", f.began.Add(-time.Second), f.began.Add(f.took), "is DOWN, reason: Layer[46] timeout")
	default:
		return ""
	}
}

// journal returns the lines of a unit's journal that match a grep pattern, "" for a machine that no
// longer exists.
func (c *Cluster) journal(t *testing.T, machine, unit string, from, to time.Time, pattern string) string {
	t.Helper()
	out, err := c.suite.TryConsole(t.Context(), machine, fmt.Sprintf(
		"journalctl --unit %s --no-pager --output short-precise --since @%d --until @%d | grep -E '%s' || :", unit, from.Unix(), to.Unix()+1, pattern))
	if err != nil {
		return ""
	}
	return out
}

// unaskedElections returns the journal lines of etcd members that found themselves without a
// leader: such a member first asks the others whether they would vote for it, and logs that, but
// not when the leadership is transferred to it. An election is no excuse if the leader was being
// stopped, since it should have transferred its leadership.
func (c *Cluster) unaskedElections(t *testing.T, from, to time.Time) (found []string) {
	t.Helper()
	for machine := range c.Addresses {
		out := c.journal(t, machine, "etcd", from, to, "became pre-candidate|closing etcd server|local server is not leader")
		if strings.Contains(out, "closing etcd server") && !strings.Contains(out, "local server is not leader") {
			return nil
		}
		if strings.Contains(out, "became pre-candidate") {
			found = append(found, machine+": "+out)
		}
	}
	return found
}
