package host

import (
	"context"
	"maps"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// Why a unit fails is in its journal: systemd knows only how its process ended. So Observe reads the journal
// of units that fail, and a finding quotes the last error.

// endedByOthers are results of units that others have ended, so that their last error explains nothing.
var endedByOthers = []string{"", "success", "signal", "oom-kill"}

// withErrors asks the machine for the last errors of the units that should run and fail, if there are any.
func (o Observation) withErrors(ctx context.Context, r Runner, want desired.State) Observation {
	var failing []string
	for _, w := range want.Units {
		if _, _, wrong := activity(w, o.Units[w.Name]); wrong && w.Active && !slices.Contains(endedByOthers, o.Units[w.Name].Result) {
			failing = append(failing, w.Name)
		}
	}
	if len(failing) == 0 {
		return o
	}
	said := lastErrors(ctx, r, failing)
	o.Units = maps.Clone(o.Units)
	for i, name := range failing[:min(len(failing), len(said))] {
		u := o.Units[name]
		u.Said = said[i]
		o.Units[name] = u
	}
	return o
}

// FailingUnits returns a finding for each of the units that a machine has and that fails, with its last error.
func FailingUnits(ctx context.Context, r Runner, units ...string) ([]finding.Finding, error) {
	var want desired.State
	for _, name := range units {
		want.Units = append(want.Units, desired.Unit{Name: name, Active: true})
	}
	seen, err := Observe(ctx, r, want, Record{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(Findings(Diff(want, seen, Record{})), func(f finding.Finding) bool { return f.Problem != finding.Activity || f.Cause == "" }), nil
}
