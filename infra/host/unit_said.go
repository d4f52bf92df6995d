package host

import (
	"cmp"
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

// withErrors asks the machine how the units have last ended that should run and fail, if there are any, and for their last
// errors.
func (o Observation) withErrors(ctx context.Context, r Runner, want desired.State) Observation {
	var failing []string
	for _, w := range want.Units {
		u := o.Units[w.Name]
		if _, _, wrong := activity(w, u); wrong && w.Active && (u.crashes() || !slices.Contains(endedByOthers, u.Result)) {
			failing = append(failing, w.Name)
		}
	}
	if len(failing) == 0 {
		return o
	}
	found := endings(ctx, r, failing)
	o.Units = maps.Clone(o.Units)
	for i, name := range failing[:min(len(failing), len(found))] {
		u := o.Units[name]
		if u.crashes() { // each start clears it
			u.Result = cmp.Or(found[i].result, u.Result)
		}
		u.Said = found[i].said
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
	return slices.DeleteFunc(Findings(Diff(want, seen, Record{})), func(f finding.Finding) bool {
		return f.Problem != finding.Activity || f.Cause == "" && f.Found != finding.CrashLooping
	}), nil
}

// LastFailure returns the result with which a unit has last failed, and its last error. It is empty if the unit has
// not failed, or if the machine does not say.
func LastFailure(ctx context.Context, r Runner, unit string) string {
	found := endings(ctx, r, []string{unit})
	if len(found) == 0 {
		return ""
	}
	return Unit{Result: found[0].result, Said: found[0].said}.cause()
}
