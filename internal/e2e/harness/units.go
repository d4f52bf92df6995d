package harness

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Unit is when systemd last took a unit down and had it up again, in
// microseconds of the one clock all machines of a lab share.
type Unit struct{ Down, Up int }

// Units returns the units of the machines by "machine/unit". It asks on the
// machines' consoles, not through the network.
func (s *Suite) Units(t *testing.T, machines ...string) map[string]Unit {
	t.Helper()
	const script = `for u in etcd kube-apiserver kube-controller-manager kube-scheduler containerd kubelet kube-proxy haproxy; do
		systemctl is-active -q $u && echo $u $(systemctl show -P ActiveExitTimestampMonotonic $u) $(systemctl show -P ActiveEnterTimestampMonotonic $u); done; true`
	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		out = map[string]Unit{}
	)
	for _, m := range machines {
		wg.Go(func() {
			text, err := s.TryConsole(t.Context(), m, script)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for line := range strings.Lines(text) {
				var (
					name string
					at   Unit
				)
				if n, _ := fmt.Sscan(line, &name, &at.Down, &at.Up); n == 3 {
					out[m+"/"+name] = at
				}
			}
		})
	}
	wg.Wait()
	return out
}

// Restarted lists the units that were started between the two looks.
func Restarted(before, now map[string]Unit) []string {
	var out []string
	for unit, at := range now {
		if before[unit] != at {
			out = append(out, unit)
		}
	}
	slices.Sort(out)
	return out
}

// MayFollow tells whether a unit may have been started again because another
// was: a manager ends when the API server beside it is away for longer than its
// lease lasts.
func MayFollow(unit string, restarted func(unit string) bool) bool {
	machine, name, _ := strings.Cut(unit, "/")
	return (name == "kube-controller-manager" || name == "kube-scheduler") && restarted(machine+"/kube-apiserver")
}

// OnlyRestarted wants exactly these units, and those that may follow, to have
// been started since.
func (s *Suite) OnlyRestarted(t *testing.T, before map[string]Unit, machines []string, want ...string) map[string]Unit {
	t.Helper()
	wanted := func(unit string) bool { return slices.Contains(want, unit) }
	now := s.Units(t, machines...)
	got := slices.DeleteFunc(Restarted(before, now), func(unit string) bool { return !wanted(unit) && MayFollow(unit, wanted) })
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("restarted: %q\nwanted: %q", got, want)
	}
	return now
}

// OneByOne wants the units to have been down at different times, in any order,
// and returns when the first went down and the last was up again.
func OneByOne(t *testing.T, now map[string]Unit, units []string) (first, last int) {
	t.Helper()
	units = slices.Clone(units)
	slices.SortFunc(units, func(a, b string) int { return now[a].Down - now[b].Down })
	for i, u := range units[1:] {
		if now[u].Down < now[units[i]].Up {
			t.Errorf("%s went down at %d, %s was up again only at %d", u, now[u].Down, units[i], now[units[i]].Up)
		}
	}
	return now[units[0]].Down, now[units[len(units)-1]].Up
}

// Numbered returns "name-0" to "name-<n-1>".
func Numbered(name string, n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("%s-%d", name, i))
	}
	return out
}

// On returns "machine/unit" for each of the units on each of the machines.
func On(machines []string, units ...string) []string {
	var out []string
	for _, m := range machines {
		for _, u := range units {
			out = append(out, m+"/"+u)
		}
	}
	return out
}
