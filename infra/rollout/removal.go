package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// remove stops everything of the role on its machines and deletes its files, in parallel. The
// record keeps the machines that cannot be reached.
func (o *operation) remove(ctx context.Context) error {
	errs := fleet.EachAll(ctx, o.machines, func(ctx context.Context, m *convergence) error {
		// When the whole role is removed, its units need not end gracefully.
		return o.removeFrom(ctx, m.Machine, withKeyFiles(m.want, m.record), o.role.endFirst == "")
	})
	return o.joined(errs)
}

// removeLeaving removes the role from machines that are in prior and no longer in the role.
func (o *operation) removeLeaving(ctx context.Context, prior Role) error {
	return o.removeTargets(ctx, prior, departing(o.role.targets, prior.role().targets))
}

// removeTargets removes the role, as it is in prior, from machines that leave it.
func (o *operation) removeTargets(ctx context.Context, prior Role, targets []fleet.Target) error {
	left := prior.role()
	left.targets = targets
	gone, err := newOperation(o.fleet, left, o.result())
	if err != nil {
		return err
	}
	defer gone.access.Close()
	for _, m := range gone.machines {
		if o.byName(m.Name()) != nil {
			m.Machine = o.fleet.Machine(m.Former())
		}
	}
	before := prior.role().targets
	errs := fleet.EachAll(ctx, gone.machines, func(ctx context.Context, m *convergence) error {
		// Under another name, or another machine took its address.
		if slices.ContainsFunc(o.role.targets, func(t fleet.Target) bool { return fleet.SameMachine(m.Target, t, o.role.targets, before) }) {
			return nil
		}
		err := gone.removeFrom(ctx, m.Machine, withKeyFiles(m.want, m.record), false)
		if replaced(err) {
			m.Say("%s: another machine answers in its place, nothing is left to remove", o.role.name)
			return nil
		}
		return err
	})
	for _, m := range gone.machines {
		if errs[m.Name()] == nil {
			o.forget(m.Name())
		}
	}
	o.mu.Lock()
	o.record.Left = gone.result().Left
	o.kept = append(o.kept, gone.kept...)
	o.mu.Unlock()
	return o.joined(errs)
}

// removeLeft removes the role from machines that could not be reached when they left it, as far as
// they can be reached now. Another machine that answers in place of one of them means that it is
// gone for good.
func (o *operation) removeLeft(ctx context.Context) error {
	return o.joined(o.eachLeft(ctx, func(ctx context.Context, m *fleet.Machine, l Leftover) error {
		o.leave(m.Name(), nil)
		err := o.removeFrom(ctx, m, l.State, false)
		switch {
		case replaced(err):
			m.Say("%s: another machine answers in its place, nothing is left to remove", o.role.name)
			return nil
		case err != nil:
			o.leave(m.Name(), &l)
		}
		return err
	}))
}

// observeLeft reports the machines that could not be reached when they left the role: as findings
// if they answer, since the role must still be removed from them.
func (o *operation) observeLeft(ctx context.Context, r *Report) {
	ctx, cancel := fleet.Observing(ctx)
	defer cancel()
	silent := o.eachLeft(ctx, func(ctx context.Context, m *fleet.Machine, _ Leftover) error { return m.Remote.Ping(ctx) })
	r.Left = map[string]error{}
	for name := range o.result().Left {
		switch err := silent[name]; {
		case err == nil:
			r.find(finding.Finding{Subject: name, Kind: finding.Leftover, Target: o.role.name, Problem: finding.NotWanted})
		case replaced(err):
			o.leave(name, nil)
		default:
			r.Left[name] = err
		}
	}
	r.Record = o.result()
}

// eachLeft does something with every machine that is left over. One that is wanted again is none. If another
// machine has its name, it stays left over, unless it has an ID: then its end is somebody else's.
func (o *operation) eachLeft(ctx context.Context, do func(context.Context, *fleet.Machine, Leftover) error) map[string]error {
	var machines []*fleet.Machine
	left := o.result().Left
	for _, name := range slices.Sorted(maps.Keys(left)) {
		l := left[name]
		if named := o.byName(name); named != nil || o.isWanted(l.Target) {
			o.leave(name, nil)
			if l.Target.ID != "" || o.isWanted(l.Target) {
				continue
			}
			l.Target = l.Target.Former()
			left[l.Target.Name()] = l
			o.leave(l.Target.Name(), &l)
		}
		machines = append(machines, o.fleet.Machine(l.Target))
	}
	return fleet.EachAll(ctx, machines, func(ctx context.Context, m *fleet.Machine) error { return do(ctx, m, left[m.Name()]) })
}

// isWanted reports whether a target that is left over is a machine of the role again. Its key tells only that of the
// machine of its name, since others may be copies.
func (o *operation) isWanted(t fleet.Target) bool {
	return slices.ContainsFunc(o.machines, func(m *convergence) bool {
		return m.SamePlace(t) || m.Name() == t.Name() && fleet.SameMachine(m.Target, t, o.role.targets)
	})
}

// leave records that a machine is left over, or is no longer if l is nil.
func (o *operation) leave(name string, l *Leftover) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if l == nil {
		delete(o.record.Left, name)
		return
	}
	if o.record.Left == nil {
		o.record.Left = map[string]Leftover{}
	}
	o.record.Left[name] = *l
}

// removeFrom removes from one machine what state names, in one round trip; kill ends the units at
// once. A machine that cannot be reached is no error: it is recorded as left over. One with another
// claim is kept.
func (o *operation) removeFrom(ctx context.Context, m *fleet.Machine, state desired.State, kill bool) error {
	m.Say("%s: removing", o.role.name)
	err := fleet.Within(ctx, fleet.RemoveBudget, "removal of "+o.role.name, func(ctx context.Context) error {
		return host.Remove(ctx, m.Remote, host.Removal{State: state, Dirs: o.role.dirs, First: o.role.endFirst, Kill: kill,
			ClaimFile: o.role.claimPath(), Claim: o.record.Claim})
	})
	switch {
	case fleet.Unreachable(err):
		o.leaveOver(m, state, err)
		return nil
	case errors.Is(err, host.ErrClaimed):
		m.Say("%s: it has another claim, left as it is", o.role.name)
		o.mu.Lock()
		defer o.mu.Unlock()
		o.kept = append(o.kept, m.Name())
		return nil
	}
	return err
}

// leaveOver records that a machine is left over because it cannot be reached.
func (o *operation) leaveOver(m *fleet.Machine, state desired.State, why error) {
	m.Say("%s: cannot be reached, left as it is: %v", o.role.name, why)
	o.leave(m.Name(), &Leftover{Target: m.Target, State: namesOnly(state)})
}

// joined returns the errors of several machines in the order of their names.
func (o *operation) joined(errs map[string]error) error {
	var out []error
	for _, name := range slices.Sorted(maps.Keys(errs)) {
		out = append(out, fmt.Errorf("removing %s from %s: %w", o.role.name, name, errs[name]))
	}
	return errors.Join(out...)
}

// replaced reports whether another machine answers in place of the one that was asked.
func replaced(err error) bool {
	var foreign *remote.HostKeyError
	return errors.As(err, &foreign)
}

// namesOnly returns what host.Remove needs of a state: names without contents.
func namesOnly(s desired.State) desired.State {
	out := desired.State{Modules: s.Modules}
	for _, f := range s.Files {
		out.Files = append(out.Files, desired.File{Path: f.Path})
	}
	for _, b := range s.Binaries {
		out.Binaries = append(out.Binaries, desired.Binary{Name: b.Name, URL: b.URL, SHA256: b.SHA256, Installs: b.Installs})
	}
	for _, u := range s.Units {
		out.Units = append(out.Units, desired.Unit{Name: u.Name, Undoes: u.Undoes})
	}
	for _, r := range s.Retired {
		out.Retired = append(out.Retired, desired.Retired{Unit: r.Unit, Paths: r.Paths})
	}
	for key := range s.Sysctls {
		if out.Sysctls == nil {
			out.Sysctls = map[string]string{}
		}
		out.Sysctls[key] = ""
	}
	return out
}
