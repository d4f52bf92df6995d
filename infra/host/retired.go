package host

import (
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// observedUnits returns the names of the units that are observed: those wanted, and those that must be
// gone.
func observedUnits(s desired.State) []string {
	names := unitNames(s)
	for _, r := range s.Retired {
		names = append(names, r.Unit)
	}
	return names
}

// unitsOnly returns retired units without their paths.
func unitsOnly(all []desired.Retired) []desired.Retired {
	var out []desired.Retired
	for _, r := range all {
		out = append(out, desired.Retired{Unit: r.Unit})
	}
	return out
}

// retired adds one finding if the unit runs, or if anything of it is left.
func (d *differ) retired(want desired.Retired) {
	found, _, runs := activity(desired.Unit{}, d.got.Units[want.Unit])
	left := slices.ContainsFunc(want.Paths, func(p string) bool { _, ok := d.got.Files[p]; return ok })
	if runs || left {
		d.add(finding.Finding{Kind: finding.Unit, Target: want.Unit, Problem: finding.NotWanted, Found: found}, want.Restarts...)
	}
}

// retire adds the calls that end units and delete their files. The units are disabled first, so
// that none starts at the next boot if the script is interrupted.
func (p plan) retire(s *script) {
	for _, r := range p.retired {
		s.call("retire", append([]string{r.Unit, r.Cleanup}, r.Paths...)...)
	}
}
