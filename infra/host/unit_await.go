package host

import (
	"context"
	"maps"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// The state of a unit that systemd has just started does not show whether the unit will keep
// running: a program that exited once because a dependency was slow looks like one that exits at
// every start. So such units are observed again.
const (
	// decideBudget bounds how long units are observed before their state counts.
	decideBudget = 10 * time.Second
	// decidePoll is the pause between two observations.
	decidePoll = time.Second
	// steadyAfter is how long a unit that systemd restarted must be up to count as running: bad
	// arguments end a program within a second.
	steadyAfter = 3 * time.Second
	// crashLoop is how many automatic restarts during one observation count as a crash loop. One
	// restart is normal recovery.
	crashLoop = 2
)

func (u Unit) crashes() bool { return u.Again >= crashLoop }

// waits reports whether the unit has exited and systemd is about to restart it.
func (u Unit) waits() bool {
	return u.SubState == "auto-restart" || u.SubState == "auto-restart-queued"
}

// undecided returns the units that should run, if it is not clear yet whether they keep running.
func (o Observation) undecided(want desired.State) []string {
	var out []string
	for _, w := range want.Units {
		u := o.Units[w.Name]
		fresh := u.Restarts > 0 && o.uptime < u.ActiveEnter+uint64(steadyAfter.Microseconds())
		passing := u.ActiveState == "activating" || u.ActiveState == "deactivating"
		if w.Active && !u.crashes() && (passing || u.ActiveState == "active" && fresh) {
			out = append(out, w.Name)
		}
	}
	return out
}

// with returns the observation with its units as observed later.
func (o Observation) with(later Observation) Observation {
	units := map[string]Unit{}
	for name, u := range o.Units {
		now := later.Units[name]
		// systemd resets the counter when somebody starts the unit by hand.
		now.Again = u.Again + max(now.Restarts-u.Restarts, 0)
		if now.Again > 0 && now.Result == "success" {
			now.Result = u.Result // a start clears it
		}
		units[name] = now
	}
	o.Units, o.BootID, o.Time, o.uptime = units, later.BootID, later.Time, later.uptime
	return o
}

// await observes the units again while some of them are unsettled, for at most decideBudget. If
// none is, it does not ask the machine. If ctx ends or a later observation fails, the last
// successful one counts, with those units marked as Unsettled.
func (l layout) await(ctx context.Context, r Runner, want desired.State, obs Observation) Observation {
	units := desired.State{Units: want.Units, Retired: unitsOnly(want.Retired)}
	names := observedUnits(units)
	script := l.preamble() + l.observeScript(units, Record{})
	for end := time.Now().Add(patience.Of(ctx, decideBudget)); len(obs.undecided(want)) > 0 && time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return obs.markUndecided(want)
		case <-time.After(decidePoll):
		}
		out, err := r.Run(ctx, remote.Command{Script: script, Sudo: true})
		if err != nil {
			return obs.markUndecided(want)
		}
		later, err := parseObservation(out.Stdout, names, Record{})
		if err != nil {
			return obs.markUndecided(want)
		}
		obs = obs.with(later)
	}
	return obs
}

// markUndecided returns the observation with its unsettled units marked as such.
func (o Observation) markUndecided(want desired.State) Observation {
	o.Units = maps.Clone(o.Units)
	for _, name := range o.undecided(want) {
		u := o.Units[name]
		u.Undecided = true
		o.Units[name] = u
	}
	return o
}
