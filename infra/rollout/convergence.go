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

// convergence is one machine that is brought to the wanted state: what is wanted, what was recorded
// and what was observed. One goroutine at a time works on it.
type convergence struct {
	*fleet.Machine
	want   component.Machine
	record MachineRecord

	state   desired.State // want, with certificates and secrets as files
	seen    host.Observation
	pairs   map[string]pairVerdict // by slot name
	changes []host.Change
	claim   []host.Change // what has to be done to the claim, last of all
	// bystanders are units that the current step does not change but may cause to fail for a while.
	// Their state is not checked after the step.
	bystanders []string
	ready      bool          // a worker whose node was Ready when the operation began
	unproven   bool          // a worker on which no pod is known to have started since its units started
	gone       error         // why the machine could not be reached; nil when it was
	ahead      time.Duration // how far its clock is ahead of ours
}

// machinesOf returns the machines of convergences, in their order.
func machinesOf(list []*convergence) []*fleet.Machine {
	out := make([]*fleet.Machine, len(list))
	for i, m := range list {
		out[i] = m.Machine
	}
	return out
}

// restarts reports whether the changes restart or reload one of the units.
func restarts(changes []host.Change, units ...string) bool {
	return slices.ContainsFunc(changes, func(c host.Change) bool {
		return slices.ContainsFunc(c.Restarts, func(u string) bool { return slices.Contains(units, u) })
	})
}

func (m *convergence) running(unit string) bool {
	return m.gone == nil && m.seen.Units[unit].ActiveState == "active"
}

// known returns the record without what has been changed on the machine since.
func (m *convergence) known() host.Record {
	rec := host.Record{Files: maps.Clone(m.record.Host.Files)}
	for _, c := range m.changes {
		delete(rec.Files, c.Target)
	}
	return rec
}
