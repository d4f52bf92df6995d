package harness

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Unit is when systemd last stopped and last started a unit, in microseconds of the clock that all
// machines of a lab share, and how often it has restarted the unit automatically since the last
// requested start.
type Unit struct{ Down, Up, Unasked int }

// UnitsScript prints, on a machine, the input of ParseUnits. It waits for a unit that ends, or that
// systemd is about to restart, such as a controller manager that has lost its lease. It asks systemd for
// all units at once, since each call of systemctl costs some milliseconds of a processor.
const UnitsScript = `units="etcd kube-apiserver kube-controller-manager kube-scheduler containerd kubelet kube-proxy haproxy"
for i in 1 2 3 4 5 6 7 8 9 10; do
	shown=$(systemctl show -p Id,ActiveState,ActiveExitTimestampMonotonic,ActiveEnterTimestampMonotonic,NRestarts $units)
	case $shown in *ActiveState=activating*|*ActiveState=deactivating*) sleep 1 ;; *) break ;; esac
done
printf '%s\n' "$shown"`

// ParseUnits returns the running units of a machine, by "machine/unit".
func ParseUnits(machine, text string) map[string]Unit {
	out := map[string]Unit{}
	for unit := range strings.SplitSeq(text, "\n\n") {
		said := map[string]string{}
		for line := range strings.Lines(unit) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			said[name] = value
		}
		switch said["ActiveState"] {
		case "active", "reloading", "refreshing":
			number := func(name string) int {
				n, _ := strconv.Atoi(said[name])
				return n
			}
			out[machine+"/"+strings.TrimSuffix(said["Id"], ".service")] = Unit{
				Down: number("ActiveExitTimestampMonotonic"), Up: number("ActiveEnterTimestampMonotonic"), Unasked: number("NRestarts")}
		}
	}
	return out
}

// Units returns the running units of machines. It asks on their consoles, without the network.
func (s *Suite) Units(t *testing.T, machines ...string) map[string]Unit {
	t.Helper()
	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		out = map[string]Unit{}
	)
	for _, m := range machines {
		wg.Go(func() {
			text, err := s.TryConsole(t.Context(), m, UnitsScript)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(out, ParseUnits(m, text))
		})
	}
	wg.Wait()
	return out
}

// Restarted returns the units that were started between two calls of Units, without those that may
// restart as a consequence of the requested restarts.
func Restarted(before, now map[string]Unit, asked ...string) []string {
	var out []string
	for unit, at := range now {
		if before[unit] != at && !MayFollow(unit, at, asked) {
			out = append(out, unit)
		}
	}
	slices.Sort(out)
	return out
}

// MayFollow reports whether a unit may have been restarted without a request: a controller manager
// or scheduler that leads exits when it cannot renew its lease because the API server beside it is
// slow or stopped. Then systemd restarts it, or the apply that finds it stopped and restores the
// API server.
func MayFollow(unit string, now Unit, asked []string) bool {
	machine, name, _ := strings.Cut(unit, "/")
	manager := name == "kube-controller-manager" || name == "kube-scheduler"
	return manager && !slices.Contains(asked, unit) && (now.Unasked > 0 || slices.Contains(asked, machine+"/kube-apiserver"))
}

// OnlyRestarted checks that exactly these units were restarted since.
func (s *Suite) OnlyRestarted(t *testing.T, before map[string]Unit, machines []string, want ...string) map[string]Unit {
	t.Helper()
	now := s.Units(t, machines...)
	got := Restarted(before, now, want...)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("restarted: %q\nwanted: %q", got, want)
	}
	return now
}

// OneByOne checks that no two of the units were down at the same time, in any order. It returns
// when the first went down and when the last was up again.
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
