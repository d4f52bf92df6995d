package rollout

import (
	"maps"
	"slices"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
)

// Machine is one machine that is brought to the wanted state: what is wanted, what was recorded
// and what was observed. One goroutine at a time works on it.
type Machine struct {
	*fleet.Machine
	Want   component.Machine
	Record MachineRecord

	State   desired.State // Want, with certificates and secrets as files
	Seen    host.Observation
	pairs   map[string]pairVerdict // by slot name
	Changes []host.Change
	claim   []host.Change // what has to be done to the claim, last of all
	taken   bool          // this operation has claimed it before it looked
	Gone    error         // why the machine could not be reached; nil when it was
	ahead   time.Duration // how far its clock is ahead of ours
}

// MachinesOf returns machines without what is wanted of them, in their order.
func MachinesOf(list []*Machine) []*fleet.Machine {
	out := make([]*fleet.Machine, len(list))
	for i, m := range list {
		out[i] = m.Machine
	}
	return out
}

// Restarts reports whether the changes restart or reload one of the units.
func Restarts(changes []host.Change, units ...string) bool {
	return slices.ContainsFunc(changes, func(c host.Change) bool {
		return slices.ContainsFunc(c.Restarts, func(u string) bool { return slices.Contains(units, u) })
	})
}

// RestartsForeign reports whether changes restart units that are not the role's. They wait for the same gates as
// its own.
func (m *Machine) RestartsForeign(changes []host.Change) bool {
	return slices.ContainsFunc(m.State.Units, func(u desired.Unit) bool { return u.Foreign && Restarts(changes, u.Name) })
}

// Running reports whether a unit was active when the machine was observed.
func (m *Machine) Running(unit string) bool {
	return m.Gone == nil && m.Seen.Units[unit].ActiveState == "active"
}

// known returns the record without what has been changed on the machine since.
func (m *Machine) known() host.Record {
	rec := host.Record{Files: maps.Clone(m.Record.Host.Files)}
	for _, c := range m.Changes {
		delete(rec.Files, c.Target)
	}
	return rec
}
