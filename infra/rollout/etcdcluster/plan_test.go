package etcdcluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// wantedMembers reads "name: word, word". The words are up (reachable, with data, running and as
// wanted, unless another word says otherwise), stopped, empty, unreachable, quiet, restart.
func wantedMembers(t *testing.T, lines ...string) []memberFacts {
	t.Helper()
	var out []memberFacts
	for _, line := range lines {
		name, words, _ := strings.Cut(line, ": ")
		w := memberFacts{name: name, peerURL: "https://" + name + ":2380", reachable: true, running: true, data: true}
		for word := range strings.SplitSeq(words, ", ") {
			switch word {
			case "up":
			case "started": // as the settings of its first start say
				w.started = true
			case "stopped":
				w.running, w.changes = false, true
			case "returned", "third", "stale", "foreign": // with data: of member 2, of member 3, of a removed one, of another cluster
				w.running, w.changes, w.restarts = false, true, true
				w.origin = map[string]etcd.Origin{"returned": {Member: 2, Cluster: 1}, "third": {Member: 3, Cluster: 1}, "stale": {Member: 9, Cluster: 1}, "foreign": {Member: 2, Cluster: 7}}[word]
			case "empty":
				w.running, w.data, w.changes, w.restarts = false, false, true, true
			case "unreachable":
				w = memberFacts{name: name, peerURL: w.peerURL}
			case "quiet":
				w.changes = true
			case "restart":
				w.changes, w.restarts = true, true
			case "rules":
				w.changes, w.rules = true, true
			default:
				t.Fatalf("unknown word %q", word)
			}
		}
		out = append(out, w)
	}
	return out
}

// clusterMembers reads "name: word, word". The words are healthy, sick, learner, announced (added,
// never started), unstarted (an initial member that has never started), elsewhere (at another
// address). IDs count from 1.
func clusterMembers(t *testing.T, lines ...string) ([]etcd.Member, map[etcd.ID]bool) {
	t.Helper()
	members, healthy := []etcd.Member{}, map[etcd.ID]bool{}
	for i, line := range lines {
		name, words, _ := strings.Cut(line, ": ")
		m := etcd.Member{ID: etcd.ID(i + 1), Name: name, PeerURLs: []string{"https://" + name + ":2380"}, ClientURLs: []string{"https://" + name + ":2379"}}
		for word := range strings.SplitSeq(words, ", ") {
			switch word {
			case "healthy":
				healthy[m.ID] = true
			case "sick":
			case "learner":
				m.Learner = true
			case "announced":
				m.Name, m.ClientURLs, m.Learner = "", nil, true
			case "unstarted":
				m.ClientURLs = nil
			case "elsewhere":
				m.PeerURLs = []string{"https://192.0.2.1:2380"}
			default:
				t.Fatalf("unknown word %q", word)
			}
		}
		members = append(members, m)
	}
	return members, healthy
}

// outcome returns the plan's text, followed by the error if there is one.
func outcome(p rollout.Plan, err error) string {
	out := p.String()
	if err != nil {
		out += err.Error() + "\n"
	}
	return out
}

func TestPlanEtcd(t *testing.T) {
	three := []string{"a: healthy", "b: healthy", "c: healthy"}
	for _, tt := range []struct {
		name    string
		wanted  []string
		members []string // nil: no member answers
		formed  bool
		want    string
	}{
		{"first start", []string{"a: empty", "b: empty", "c: empty"}, nil, false, `
1. a: install (first start), then wait: healthy
1. b: install (first start), then wait: healthy
1. c: install (first start), then wait: healthy
`},
		{"first start of one", []string{"a: empty"}, nil, false, `
1. a: install (first start), then wait: healthy
`},
		{"first start, interrupted after one had started", []string{"a: empty", "b: stopped", "c: empty"}, nil, false, `
1. a: install (first start), then wait: healthy
1. b: install (first start), then wait: healthy
1. c: install (first start), then wait: healthy
`},
		{"first start, interrupted after two had started and stopped", []string{"a: stopped", "b: stopped", "c: empty"}, nil, false, `
1. a: install (start the members that have data), then wait: serves reads
1. b: install (start the members that have data), then wait: serves reads
`},
		{"first start without one machine", []string{"a: empty", "b: empty", "c: unreachable"}, nil, false, `
1. a: install (first start), then wait: healthy
1. b: install (first start), then wait: healthy
`},
		{"first start without quorum", []string{"a: empty", "b: unreachable", "c: unreachable"}, nil, false, `
refusing to start etcd: 1 of 3 machines can be reached, a quorum is 2 (unreachable: b, c); apply again when they answer
`},
		{"all stopped", []string{"a: stopped", "b: stopped", "c: stopped"}, nil, true, `
1. a: install (start the members that have data), then wait: serves reads
1. b: install (start the members that have data), then wait: serves reads
1. c: install (start the members that have data), then wait: serves reads
`},
		{"two replaced at once", []string{"a: up", "b: empty", "c: empty"}, nil, true, `
refusing to start etcd: the cluster has lost its quorum (members with data: a; without: b, c; unreachable: none); bring the unreachable machines back, or restore the cluster with restore_from of k8s_etcd_cluster; starting empty members in their place would lose data
`},
		{"nothing to do", []string{"a: up", "b: up", "c: up"}, three, true, "\n"},
		{"a member stopped", []string{"a: up", "b: stopped", "c: up"}, []string{"a: healthy", "b: sick", "c: healthy"}, true, `
1. b: install (not running), then wait: healthy
`},
		{"a changed flag", []string{"a: restart", "b: restart", "c: restart"}, three, true, `
1. a: apply with restart, when all others healthy, then wait: healthy
2. b: apply with restart, when all others healthy, then wait: healthy
3. c: apply with restart, when all others healthy, then wait: healthy
`},
		{"the broken one first", []string{"a: restart", "b: quiet", "c: stopped"}, []string{"a: healthy", "b: healthy", "c: sick"}, true, `
1. b: apply without restart
2. c: install (not running), then wait: healthy
3. a: apply with restart, when all others healthy, then wait: healthy
`},
		{"a changed flag while one cannot be reached", []string{"a: restart", "b: quiet", "c: unreachable"}, []string{"a: healthy", "b: healthy", "c: sick"}, true, `
1. b: apply without restart
refusing to restart etcd on a: c cannot be reached, and no second member may be down at the same time; apply again when it answers
`},
		{"a machine replaced", []string{"a: up", "b: empty", "c: up"}, []string{"a: healthy", "b: sick", "c: healthy"}, true, `
1. b: leave (member 2 has lost its data), when the rest has a quorum
2. b: join (in place of member 2), when a quorum is healthy, then wait: healthy
`},
		{"a machine replaced while the flags and rules of others change", []string{"a: restart, rules", "b: empty", "c: restart, rules"}, []string{"a: healthy", "b: sick", "c: healthy"}, true, `
1. a: apply without restart (its rules may shut out a new member)
1. c: apply without restart (its rules may shut out a new member)
2. b: leave (member 2 has lost its data), when the rest has a quorum
3. b: join (in place of member 2), when a quorum is healthy, then wait: healthy
4. a: apply with restart, when all others healthy, then wait: healthy
5. c: apply with restart, when all others healthy, then wait: healthy
`},
		{"a machine replaced while another is down", []string{"a: up", "b: empty", "c: unreachable"}, []string{"a: healthy", "b: sick", "c: sick"}, true, `
refusing to remove etcd member b: 1 of the 2 voters that would remain are healthy, and a quorum is 2; repair or bring back the other members first, and replace one machine at a time
`},
		{"a join interrupted before its start", []string{"a: up", "b: empty", "c: up"}, []string{"a: healthy", "b: announced", "c: healthy"}, true, `
1. b: join (added before, not a full member yet), when a quorum is healthy, then wait: healthy
`},
		{"a join interrupted before its promotion", []string{"a: up", "b: up", "c: up"}, []string{"a: healthy", "b: learner, healthy", "c: healthy"}, true, `
1. b: join (added before, not a full member yet), when a quorum is healthy, then wait: healthy
`},
		{"first start, interrupted before one of three had started", []string{"a: restart", "b: empty", "c: up"}, []string{"a: healthy", "b: unstarted", "c: healthy"}, false, `
1. b: join (added before, not a full member yet), when a quorum is healthy, then wait: healthy
2. a: apply with restart, when all others healthy, then wait: healthy
`},
		{"removed by hand", []string{"a: up", "b: stopped", "c: up"}, []string{"a: healthy", "c: healthy"}, true, `
1. b: join (new member), when a quorum is healthy, then wait: healthy
`},
		{"three to five", []string{"a: up", "b: up", "c: up", "d: empty", "e: empty"}, three, true, `
1. d: join (new member), when a quorum is healthy, then wait: healthy
2. e: join (new member), when a quorum is healthy, then wait: healthy
`},
		{"five to three", []string{"a: up", "b: up", "c: up"}, []string{"a: healthy", "b: healthy", "c: healthy", "d: healthy", "e: healthy"}, true, `
1. d: leave (not wanted any more), when the rest has a quorum
2. e: leave (not wanted any more), when the rest has a quorum
`},
		{"one for another", []string{"a: up", "b: up", "d: empty"}, three, true, `
1. d: join (new member), when a quorum is healthy, then wait: healthy
2. c: leave (not wanted any more), when the rest has a quorum
`},
		{"one for a dead one", []string{"a: up", "b: up", "d: empty"}, []string{"a: healthy", "b: healthy", "c: sick"}, true, `
1. c: leave (not wanted any more), when the rest has a quorum
2. d: join (new member), when a quorum is healthy, then wait: healthy
`},
		{"another address", []string{"a: up", "b: up, restart", "c: up"}, []string{"a: healthy", "b: healthy, elsewhere", "c: healthy"}, true, `
1. b: leave (member 2 listens on https://192.0.2.1:2380, wanted https://b:2380), when the rest has a quorum
2. b: join (with its new address), when a quorum is healthy, then wait: healthy
`},
		{"three to one", []string{"a: up"}, three, true, `
1. b: leave (not wanted any more), when the rest has a quorum
2. c: leave (not wanted any more), when the rest has a quorum
`},
		{"all for others", []string{"d: empty"}, []string{"a: healthy"}, true, `
1. d: join (new member), when a quorum is healthy, then wait: healthy
2. a: leave (not wanted any more), when the rest has a quorum
`},
		{"the living for none", []string{}, []string{"a: healthy"}, true, `
refusing to remove etcd member a: 0 of the 0 voters that would remain are healthy, and a quorum is 1; repair or bring back the other members first, and replace one machine at a time
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := clusterFacts{wanted: wantedMembers(t, tt.wanted...), formed: tt.formed}
			if tt.members != nil {
				f.members, f.healthy = clusterMembers(t, tt.members...)
			}
			if got := "\n" + outcome(planNext(f)); got != tt.want {
				t.Errorf("plan:%s\nwanted:%s", got, tt.want)
			}
		})
	}
}

// TestGuardRelease checks which releases a cluster's members may go to.
func TestGuardRelease(t *testing.T) {
	parse := func(s string) version.Version {
		v, _ := version.Parse(s) // "" is unknown
		return v
	}
	for _, tt := range []struct{ release, storage, want, refusal string }{
		{"3.6.16", "3.6.0", "3.7.3", ""},
		{"3.6.10", "3.6.0", "3.7.3", "refusing to roll etcd to 3.7.3: the member on a: cannot go from 3.6.10 to 3.7.3 in one step: members of 3.7 need the others to be 3.6.11 or later"},
		{"3.7.3", "3.6.0", "3.6.16", ""}, // halfway
		{"3.7.3", "3.6.0", "3.6.10", "members of 3.7 need the others to be 3.6.11 or later"},
		{"3.7.3", "3.7.0", "3.6.16", "cannot go from 3.7.0 back to 3.6.16"},
		{"3.6.16", "3.6.0", "3.6.15", ""},
		{"3.6.16", "3.6.0", "3.8.0", "go to 3.7 first"},
		{"", "", "3.7.3", ""},
	} {
		err := guardRelease(clusterFacts{release: parse(tt.want), wanted: []memberFacts{{name: "a", release: parse(tt.release), storage: parse(tt.storage)}}})
		if (err == nil) != (tt.refusal == "") || err != nil && !strings.Contains(err.Error(), tt.refusal) {
			t.Errorf("from %s with data of %s to %s: %v", tt.release, tt.storage, tt.want, err)
		}
	}
}

// TestPlanEtcdKeepsQuorum tries every combination of three to five machines in every state and
// follows each plan step by step. Members that were healthy must never be fewer than a quorum of
// the voters, and a healthy voter is taken down only when all the others are up.
func TestPlanEtcdKeepsQuorum(t *testing.T) {
	states := []struct{ wanted, member string }{
		{"up", "healthy"}, {"stopped", "sick"}, {"stopped", "sick, elsewhere"}, {"stale", "sick"}, {"restart", "healthy"}, {"empty", "sick"}, {"empty", ""}, {"empty", "unstarted"}, {"empty", "announced"}, {"unreachable", "sick"}, {"", "healthy"}, {"", "sick"},
	}
	plans := 0
	for n := 3; n <= 5; n++ {
		for code := range pow(len(states), n) {
			var wanted, members []string
			for i, c := 0, code; i < n; i, c = i+1, c/len(states) {
				s, name := states[c%len(states)], fmt.Sprintf("m%d", i)
				if s.wanted != "" {
					wanted = append(wanted, name+": "+s.wanted)
				}
				if s.member != "" {
					members = append(members, name+": "+s.member)
				}
			}
			list, healthy := clusterMembers(t, members...)
			if len(healthy) < etcd.Quorum(len(list)) {
				continue // the cluster would not have answered
			}
			f := clusterFacts{wanted: wantedMembers(t, wanted...), members: list, healthy: healthy, formed: true, cluster: 1}
			for i, w := range f.wanted {
				if m, ok := w.member().In(list); ok && w.origin.Member == 0 && w.data && !w.running {
					f.wanted[i].origin = etcd.Origin{Member: m.ID, Cluster: 1}
				}
			}
			p, err := planNext(f)
			var guard *fleet.GuardError
			if err != nil && !errors.As(err, &guard) {
				t.Fatal(err)
			}
			if p == nil {
				continue
			}
			plans++
			follow(t, f, p)
		}
	}
	if plans < 1000 {
		t.Errorf("only %d plans were followed", plans)
	}
}

func follow(t *testing.T, f clusterFacts, p rollout.Plan) {
	t.Helper()
	voters, up := []string{}, map[string]bool{}
	for _, m := range f.members {
		if !m.Learner {
			voters = append(voters, m.Name)
			up[m.Name] = f.healthy[m.ID]
		}
	}
	check := func(step rollout.Step) {
		t.Helper()
		healthy := 0
		for _, v := range voters {
			if up[v] {
				healthy++
			}
		}
		if healthy < etcd.Quorum(len(voters)) {
			t.Fatalf("%d of %d voters are up at %q of the plan\n%sfor %+v", healthy, len(voters), step, p, f)
		}
	}
	for _, batch := range p {
		for _, s := range batch {
			switch s.Action {
			case rollout.ActionQuiet:
			case rollout.ActionInstall, actionMove:
				up[s.Machine] = true
			case rollout.ActionRoll:
				for _, v := range voters {
					if v != s.Machine && !up[v] {
						t.Fatalf("%q takes a member down while %s is down too\n%s", s, v, p)
					}
				}
			case actionLeave:
				voters = slices.DeleteFunc(voters, func(v string) bool { return v == s.Machine })
			case actionJoin:
				if !slices.Contains(voters, s.Machine) {
					voters = append(voters, s.Machine)
				}
				up[s.Machine] = true
			}
			check(s)
		}
	}
}

func pow(base, exponent int) int {
	out := 1
	for range exponent {
		out *= base
	}
	return out
}
