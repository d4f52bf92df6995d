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

// convergence is one machine being brought to what is wanted of it: what is
// wanted, what was recorded and what was seen. Only one goroutine works on it at a time.
type convergence struct {
	*fleet.Machine
	want   component.Machine
	record MachineRecord

	state   desired.State // want, with certificates and secrets as files
	seen    host.Observation
	pairs   map[string]pairVerdict // by slot name
	changes []host.Change
	// bystanders are units that the step in hand does not touch and that may
	// still fail for a while because of it: they are not judged by it.
	bystanders []string
	unproven   bool          // a worker on which no pod is known to have started since its units did
	gone       error         // why it could not be reached; nil when it was
	ahead      time.Duration // its clock's lead over ours
}

// machinesOf returns the machines of convergences.
func machinesOf(list []*convergence) []*fleet.Machine {
	out := make([]*fleet.Machine, len(list))
	for i, m := range list {
		out[i] = m.Machine
	}
	return out
}

// restarts tells whether making the changes restarts or reloads one of the units.
func restarts(changes []host.Change, units ...string) bool {
	return slices.ContainsFunc(changes, func(c host.Change) bool {
		return slices.ContainsFunc(c.Restarts, func(u string) bool { return slices.Contains(units, u) })
	})
}

func (m *convergence) running(unit string) bool {
	return m.gone == nil && m.seen.Units[unit].ActiveState == "active"
}

// known is the record without what has been changed on the machine since.
func (m *convergence) known() host.Record {
	rec := host.Record{Files: maps.Clone(m.record.Host.Files)}
	for _, c := range m.changes {
		delete(rec.Files, c.Target)
	}
	return rec
}
