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
	return append(names, retiredUnits(s)...)
}

func retiredUnits(s desired.State) (names []string) {
	for _, r := range s.Retired {
		if r.Unit != "" {
			names = append(names, r.Unit)
		}
	}
	return names
}

// unitsOnly returns retired units without their paths.
func unitsOnly(all []desired.Retired) []desired.Retired {
	var out []desired.Retired
	for _, unit := range retiredUnits(desired.State{Retired: all}) {
		out = append(out, desired.Retired{Unit: unit})
	}
	return out
}

// retired adds one finding if the unit runs, or if anything of it is left. Of files alone it adds one for each
// that is left.
func (d *differ) retired(want desired.Retired) {
	if want.Unit == "" {
		for _, p := range want.Paths {
			if _, ok := d.got.Files[p]; ok {
				restarts := slices.DeleteFunc(slices.Clone(want.Restarts), func(u string) bool { return d.got.Units[u].LoadState != "loaded" })
				d.add(finding.Finding{Kind: finding.File, Target: p, Problem: finding.NotWanted}, append(d.restarts(p), restarts...)...)
			}
		}
		return
	}
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
