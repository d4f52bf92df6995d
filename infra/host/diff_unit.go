package host

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

// unit compares one unit. Each thing that is wrong gives one line, and a
// consequence of something listed already gives none.
func (d *differ) unit(want desired.Unit) {
	got := d.got.Units[want.Name]
	self := []string(nil)
	if want.Active {
		self = []string{want.Name}
	}
	for _, file := range d.overrides(want.Name, got) {
		d.touched[want.Name] = true
		what := "not wanted, changes "
		if path.Base(file) == want.Name {
			what = "not wanted, takes the place of "
		}
		d.add(Change{Kind: KindDropIn, Target: file, What: what + want.Name, Restarts: self})
	}
	change := Change{Kind: KindUnit, Target: want.Name}
	switch got.LoadState {
	case "loaded", "masked":
	case "", "not-found":
		if want.Active || want.Enabled {
			change.Found, change.Wanted = "unknown to systemd", wantedWords(want)
			if d.touched[want.Name] {
				change.Found = "not installed"
			}
			d.add(change)
		}
		return
	default:
		if !d.touched[want.Name] {
			change.Found, change.Wanted = "cannot be loaded ("+got.LoadState+")", wantedWords(want)
			change.Restarts = self
			d.add(change)
		}
	}
	if found, wrong := enablement(want, got); wrong {
		change := change
		change.Found, change.Wanted = found, "enabled"
		if !want.Enabled {
			change.Wanted = "disabled"
		}
		d.add(change)
	}
	switch found, wrong := activity(want, got); {
	case wrong:
		change := change
		change.Found, change.Wanted = found, "running"
		if !want.Active {
			change.Wanted = "stopped"
		}
		d.add(change)
	case !want.Active || d.touched[want.Name]:
	case got.NeedDaemonReload:
		change.What, change.Restarts = "systemd has not loaded its files as they are on disk (needs daemon-reload)", self
		d.add(change)
	case got.RestartPending:
		change.What, change.Restarts = whatRestart, self
		d.add(change)
	case got.ReloadPending:
		change.What, change.Restarts = whatReload, self
		d.add(change)
	case got.CheckFailed != "" && !d.restarting(want.Name):
		change.What, change.Restarts = got.CheckFailed, self
		d.add(change)
	}
}

// restarting says whether something listed already restarts the unit.
func (d *differ) restarting(unit string) bool {
	return slices.ContainsFunc(d.changes, func(c Change) bool { return slices.Contains(c.Restarts, unit) })
}

func wantedWords(u desired.Unit) string {
	switch {
	case u.Enabled && u.Active:
		return "enabled and running"
	case u.Active:
		return "running"
	default:
		return "enabled"
	}
}

// enablement returns what was found of the unit's state on disk, and whether
// it is not what is wanted. The states are those of systemctl(1), is-enabled.
func enablement(want desired.Unit, got Unit) (found string, wrong bool) {
	switch state := got.UnitFileState; {
	case state == "masked" || state == "masked-runtime" || got.LoadState == "masked":
		return "masked", want.Enabled || want.Active
	case want.Enabled:
		switch state {
		case "enabled", "static", "alias", "generated", "transient":
			return state, false // those but the first cannot be enabled
		case "enabled-runtime", "linked-runtime":
			return "enabled until the next boot only", true
		default:
			return cmp.Or(state, "disabled"), true
		}
	default:
		return "enabled", state == "enabled" || state == "enabled-runtime"
	}
}

// activity returns what the unit was found doing, and whether it is not what is wanted.
// Of one that could not be seen to settle, nothing is held to be wrong.
func activity(want desired.Unit, got Unit) (found string, wrong bool) {
	if want.Active && got.Unsettled {
		return "starting", false
	}
	if want.Active && got.crashes() {
		return "failing again and again" + cause(got), true
	}
	switch got.ActiveState {
	case "active", "reloading", "refreshing":
		return "running", !want.Active
	case "failed":
		return "failed" + cause(got), want.Active
	case "activating":
		if got.waits() {
			return "waiting for its next start" + cause(got), true
		}
		return "starting", true
	case "deactivating":
		return "stopping", want.Active
	default:
		return "stopped", want.Active
	}
}

func cause(got Unit) string {
	if got.Result == "" || got.Result == "success" {
		return ""
	}
	return " (" + got.Result + ")"
}

// overrides lists the files that change the unit and are not wanted: drop-ins,
// and a whole unit file that takes the place of ours or of the distribution's.
func (d *differ) overrides(unit string, got Unit) []string {
	owned := d.want.Paths()
	ours := slices.ContainsFunc(owned, func(p string) bool { return path.Base(p) == unit && d.isUnitDir(path.Dir(p)) })
	var out []string
	for _, p := range slices.Sorted(slices.Values(got.DropIns)) {
		switch {
		case slices.Contains(owned, p):
		case !aimedAt(path.Base(path.Dir(p)), unit):
			// For every unit of a type ("service.d"): not about this one.
		case !ours && distribution(p):
			// Comes with the distribution's unit.
		default:
			out = append(out, p)
		}
	}
	p := got.FragmentPath
	if got.LoadState != "masked" && !slices.Contains(owned, p) && d.isUnitDir(path.Dir(p)) {
		if ours && d.precedes(p, owned, unit) || !ours && !distribution(p) {
			out = append(out, p)
		}
	}
	return slices.Compact(out)
}

// aimedAt says whether a drop-in directory is meant for the unit: "a-b.service.d"
// or "a-.service.d" for a-b.service.
func aimedAt(dir, unit string) bool {
	name := strings.TrimSuffix(dir, ".d")
	prefix, found := strings.CutSuffix(name, "-"+path.Ext(unit))
	return name == unit || found && strings.HasPrefix(unit, prefix+"-")
}

// distribution says whether the path is one only packages should write to.
func distribution(p string) bool {
	return strings.HasPrefix(p, "/usr/") || strings.HasPrefix(p, "/lib/")
}

// precedes says whether the unit file at p hides the owned one for systemd: it
// lies in a directory searched earlier.
func (d *differ) precedes(p string, owned []string, unit string) bool {
	for _, o := range owned {
		if path.Base(o) == unit {
			if i := slices.Index(d.foreign, path.Dir(o)); i >= 0 {
				return slices.Index(d.foreign, path.Dir(p)) < i
			}
		}
	}
	return false
}
