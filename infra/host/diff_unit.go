package host

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// unit compares one unit. Each fault gives one finding. A fault that another finding causes gives
// none.
func (d *differ) unit(want desired.Unit) {
	got := d.got.Units[want.Name]
	self := []string(nil)
	if want.Active {
		self = []string{want.Name}
	}
	if want.Foreign {
		d.foreignUnit(want, got)
		return
	}
	for _, file := range d.overrides(want.Name, got) {
		d.touched[want.Name] = true
		problem := finding.Overridden
		if path.Base(file) == want.Name {
			problem = finding.Replaced
		}
		d.add(finding.Finding{Kind: finding.DropIn, Target: file, Problem: problem, Found: want.Name}, self...)
	}
	add := func(f finding.Finding, restarts []string) {
		f.Kind, f.Target = finding.Unit, want.Name
		d.add(f, restarts...)
	}
	var restarts []string // because of a finding below
	switch got.LoadState {
	case "loaded", "masked":
	case "", "not-found":
		if want.Active || want.Enabled {
			problem := finding.Unknown
			if d.touched[want.Name] {
				problem = finding.NotInstalled
			}
			add(finding.Finding{Problem: problem, Wanted: wantedState(want)}, nil)
		}
		return
	default:
		if !d.touched[want.Name] {
			restarts = self
			add(finding.Finding{Problem: finding.Unloadable, Found: got.LoadState, Wanted: wantedState(want)}, restarts)
		}
	}
	if found, wrong := enablement(want, got); wrong {
		wanted := finding.Enabled
		if !want.Enabled {
			wanted = finding.Disabled
		}
		add(finding.Finding{Problem: finding.Enablement, Found: found, Wanted: wanted}, restarts)
	}
	switch found, cause, wrong := activity(want, got); {
	case wrong:
		wanted := finding.Running
		if !want.Active {
			wanted = finding.Stopped
		}
		add(finding.Finding{Problem: finding.Activity, Found: found, Wanted: wanted, Cause: cause}, restarts)
	case !want.Active || d.touched[want.Name]:
	case got.NeedDaemonReload:
		add(finding.Finding{Problem: finding.Stale}, self)
	case got.RestartPending:
		add(finding.Finding{Problem: finding.RestartPending}, self)
	case got.ReloadPending:
		add(finding.Finding{Problem: finding.ReloadPending}, self)
	case got.CheckFailed != "" && !d.restarting(want.Name):
		add(finding.Finding{Problem: finding.CheckFailed, Cause: got.CheckFailed}, self)
	}
}

// foreignUnit compares a unit that is not the state's. A missing package may bring it.
func (d *differ) foreignUnit(want desired.Unit, got Unit) {
	name := want.Name
	missing := slices.ContainsFunc(d.changes, func(c Change) bool { return c.Kind == finding.Package })
	switch {
	case got.RestartPending:
		d.add(finding.Finding{Kind: finding.Unit, Target: name, Problem: finding.RestartPending}, name)
	case (got.LoadState == "" || got.LoadState == "not-found") && len(want.RestartOn) > 0 && !missing:
		d.add(finding.Finding{Kind: finding.Unit, Target: name, Problem: finding.Unknown, Wanted: finding.Running})
	}
}

// restarting reports whether an earlier finding restarts the unit.
func (d *differ) restarting(unit string) bool {
	return slices.ContainsFunc(d.changes, func(c Change) bool { return slices.Contains(c.Restarts, unit) })
}

func wantedState(u desired.Unit) string {
	switch {
	case u.Enabled && u.Active:
		return finding.EnabledAndRunning
	case u.Active:
		return finding.Running
	default:
		return finding.Enabled
	}
}

// enablement returns the unit's state on disk and whether it is wrong. The states are those of
// "systemctl is-enabled", systemctl(1).
func enablement(want desired.Unit, got Unit) (found string, wrong bool) {
	switch state := got.UnitFileState; {
	case state == "masked" || state == "masked-runtime" || got.LoadState == "masked":
		return finding.Masked, want.Enabled || want.Active
	case want.Enabled:
		switch state {
		case "enabled", "static", "alias", "generated", "transient":
			return state, false // only the first can be enabled
		case "enabled-runtime", "linked-runtime":
			return finding.UntilReboot, true
		default:
			return cmp.Or(state, finding.Disabled), true
		}
	default:
		return finding.Enabled, state == "enabled" || state == "enabled-runtime"
	}
}

// activity returns the unit's state, its cause, and whether it is wrong. The state of an unsettled
// unit is never wrong.
func activity(want desired.Unit, got Unit) (found, cause string, wrong bool) {
	if want.Active && got.crashes() {
		return finding.CrashLooping, got.cause(), true
	}
	if want.Active && got.Undecided {
		return finding.Starting, "", false
	}
	switch got.ActiveState {
	case "active", "reloading", "refreshing":
		return finding.Running, "", !want.Active
	case "failed":
		return finding.Failed, got.cause(), want.Active
	case "activating":
		if got.waits() {
			return finding.AwaitingStart, got.cause(), true
		}
		return finding.Starting, "", true
	case "deactivating":
		return finding.Stopping, "", want.Active
	default:
		return finding.Stopped, "", want.Active
	}
}

// cause is why the unit last exited, with its last error if that is known; empty if it has not exited, or
// exited as it should.
func (u Unit) cause() string {
	switch {
	case u.Result == "success":
		return ""
	case u.Said != "" && !slices.Contains(endedByOthers, u.Result):
		return u.Result + ": " + u.Said
	}
	return u.Result
}

// overrides returns the files that change the unit and are not wanted: drop-ins, and unit files
// that replace ours or the distribution's.
func (d *differ) overrides(unit string, got Unit) []string {
	owned := d.want.Paths()
	for _, r := range d.want.Retired {
		owned = append(owned, r.Paths...) // retired reports what is left of them
	}
	ours := slices.ContainsFunc(owned, func(p string) bool { return path.Base(p) == unit && d.isUnitDir(path.Dir(p)) })
	var out []string
	for _, p := range slices.Sorted(slices.Values(got.DropIns)) {
		switch {
		case slices.Contains(owned, p):
		case !appliesTo(path.Base(path.Dir(p)), unit):
			// Applies to all units of a type ("service.d"), not to this one.
		case !ours && distribution(p):
			// Belongs to the distribution's unit.
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

// appliesTo reports whether a drop-in directory applies to the unit: "a-b.service.d" and
// "a-.service.d" do for a-b.service.
func appliesTo(dir, unit string) bool {
	name := strings.TrimSuffix(dir, ".d")
	prefix, found := strings.CutSuffix(name, "-"+path.Ext(unit))
	return name == unit || found && strings.HasPrefix(unit, prefix+"-")
}

// distribution reports whether the path belongs to packages of the distribution.
func distribution(p string) bool {
	return strings.HasPrefix(p, "/usr/") || strings.HasPrefix(p, "/lib/")
}

// precedes reports whether systemd prefers the unit file at p to the owned one: it is in a
// directory that systemd searches earlier.
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
