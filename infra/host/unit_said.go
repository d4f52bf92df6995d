package host

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// Why a unit fails is in its journal: systemd knows only how its process ended. So Observe reads the journal
// of units that fail, and a finding quotes the last error.

const (
	// saidLines is how many lines of a journal are searched for the last error: a Go program that panics
	// prints its stacks after it.
	saidLines = 200
	// saidBytes bounds what is read of one journal.
	saidBytes = 64 << 10
)

// endedByOthers are results of units that others have ended, so that their last error explains nothing.
var endedByOthers = []string{"", "success", "signal", "oom-kill"}

// withErrors asks the machine for the last errors of the units that should run and fail, if there are any. If that
// fails, there is nothing to quote.
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
	var script strings.Builder
	script.WriteString("LC_ALL=C\nexport LC_ALL\n")
	for _, name := range failing {
		// Only what the unit's own processes say, and not what systemd says of them.
		fmt.Fprintf(&script, "journalctl --no-pager --quiet --all -o cat -n %d %s | tail -c %d | tr -d '\\000'; printf '\\000'\n",
			saidLines, quote("_SYSTEMD_UNIT="+name), saidBytes)
	}
	out, err := r.Run(ctx, remote.Command{Script: script.String(), Sudo: true})
	if err != nil {
		return o
	}
	o.Units = maps.Clone(o.Units)
	answers := strings.Split(string(out.Stdout), "\x00")
	for i, name := range failing[:min(len(failing), len(answers))] {
		u := o.Units[name]
		u.Said = lastError(answers[i])
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
