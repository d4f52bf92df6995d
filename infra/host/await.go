package host

import (
	"context"
	"maps"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// A unit that systemd has just started says nothing about the next minute: a
// program that ended once, because what it depends on was slow, looks at that
// moment like one that ends at every start. So such units are looked at again.
const (
	// patience bounds how long units are looked at before they are judged.
	patience = 10 * time.Second
	// lookAgain is the pause between two looks.
	lookAgain = time.Second
	// steadyAfter is how long a unit that systemd had to restart must have been
	// up to count as running: bad arguments end a program within a second.
	steadyAfter = 3 * time.Second
	// crashLoop is how many automatic restarts during one observation make a
	// unit one that fails again and again. One restart is systemd's cure at work.
	crashLoop = 2
)

func (u Unit) crashes() bool { return u.Again >= crashLoop }

// waits tells whether the unit has ended and systemd is about to start it again.
func (u Unit) waits() bool {
	return u.SubState == "auto-restart" || u.SubState == "auto-restart-queued"
}

// unsettled names the units that are wanted running and of which it cannot be
// told yet whether they will be.
func (o Observation) unsettled(want desired.State) []string {
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

// with is the observation with what a later look found of its units.
func (o Observation) with(later Observation) Observation {
	units := map[string]Unit{}
	for name, u := range o.Units {
		now := later.Units[name]
		// systemd counts from nought again when somebody starts the unit by hand.
		now.Again = u.Again + max(now.Restarts-u.Restarts, 0)
		if now.Again > 0 && now.Result == "success" {
			now.Result = u.Result // what it ended with, which a start clears
		}
		units[name] = now
	}
	o.Units, o.BootID, o.Time, o.uptime = units, later.BootID, later.Time, later.uptime
	return o
}

// await looks at the units again while some of them are unsettled, for as long
// as patience lasts. A machine on which all is well is not asked again. When
// ctx ends or a later look fails, the last good look counts, and those units
// are marked as Unsettled.
func (l layout) await(ctx context.Context, r Runner, want desired.State, obs Observation) Observation {
	units := desired.State{Units: want.Units}
	names := unitNames(units)
	script := l.preamble() + l.observeScript(units, Record{})
	for end := time.Now().Add(patience); len(obs.unsettled(want)) > 0 && time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return obs.leaveOpen(want)
		case <-time.After(lookAgain):
		}
		out, err := r.Run(ctx, remote.Command{Script: script, Sudo: true})
		if err != nil {
			return obs.leaveOpen(want)
		}
		later, err := parseObservation(out.Stdout, names, Record{})
		if err != nil {
			return obs.leaveOpen(want)
		}
		obs = obs.with(later)
	}
	return obs
}

// leaveOpen is the observation with its unsettled units marked as such.
func (o Observation) leaveOpen(want desired.State) Observation {
	o.Units = maps.Clone(o.Units)
	for _, name := range o.unsettled(want) {
		u := o.Units[name]
		u.Unsettled = true
		o.Units[name] = u
	}
	return o
}
