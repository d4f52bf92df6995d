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
)

// Remove stops everything of the role on its machines and deletes its files, in parallel. The
// record keeps the machines that cannot be reached.
func (o *Operation) Remove(ctx context.Context) error {
	errs := fleet.EachAll(ctx, o.Machines, func(ctx context.Context, m *Machine) error {
		// When the whole role is removed, its units need not end gracefully.
		return o.removeFrom(ctx, m.Machine, withKeyFiles(m.Want, m.Record), o.role.EndFirst == "")
	})
	return o.joined(errs)
}

// RemoveLeaving removes the role from machines that are in Prior and no longer in the role.
func (o *Operation) RemoveLeaving(ctx context.Context) error {
	if o.Prior == nil {
		return nil
	}
	return o.RemoveTargets(ctx, departing(o.role.Targets, o.Prior.Targets))
}

// RemoveTargets removes the role, as it is in Prior, from machines of it that leave.
func (o *Operation) RemoveTargets(ctx context.Context, targets []fleet.Target) error {
	left := *o.Prior
	left.Targets = targets
	gone, err := newOperation(o.Fleet, left, o.Record())
	if err != nil {
		return err
	}
	defer gone.Access.Close()
	for _, m := range gone.Machines {
		if o.ByName(m.Name()) != nil {
			m.Machine = o.Fleet.Machine(m.Former())
		}
	}
	errs := fleet.EachAll(ctx, gone.Machines, func(ctx context.Context, m *Machine) error {
		// Under another name, or another machine took its address.
		if slices.ContainsFunc(o.role.Targets, func(t fleet.Target) bool { return fleet.SameMachine(m.Target, t, o.role.Targets, o.Prior.Targets) }) {
			return nil
		}
		err := gone.removeFrom(ctx, m.Machine, withKeyFiles(m.Want, m.Record), false)
		if fleet.Replaced(err) {
			m.Say("%s: another machine answers in its place, nothing is left to remove", o.role.Name)
			return nil
		}
		return err
	})
	for _, m := range gone.Machines {
		if errs[m.Name()] == nil {
			o.forget(m.Name())
		}
	}
	o.mu.Lock()
	o.record.Left = gone.Record().Left
	o.kept = append(o.kept, gone.kept...)
	o.mu.Unlock()
	return o.joined(errs)
}

// removeLeft removes the role from machines that could not be reached when they left it, as far as
// they can be reached now. Another machine that answers in place of one of them means that it is
// gone for good.
func (o *Operation) removeLeft(ctx context.Context) error {
	return o.joined(o.eachLeft(ctx, func(ctx context.Context, m *fleet.Machine, l Leftover) error {
		o.leave(m.Name(), nil)
		err := o.removeFrom(ctx, m, l.State, false)
		switch {
		case fleet.Replaced(err):
			m.Say("%s: another machine answers in its place, nothing is left to remove", o.role.Name)
			return nil
		case err != nil:
			o.leave(m.Name(), &l)
		}
		return err
	}))
}

// observeLeft reports the machines that could not be reached when they left the role: as findings
// if they answer, since the role must still be removed from them.
func (o *Operation) observeLeft(ctx context.Context, r *Report) {
	ctx, cancel := fleet.Observing(ctx)
	defer cancel()
	silent := o.eachLeft(ctx, func(ctx context.Context, m *fleet.Machine, _ Leftover) error { return m.Remote.Ping(ctx) })
	r.Left = map[string]error{}
	for name := range o.Record().Left {
		switch err := silent[name]; {
		case err == nil:
			r.Find(finding.Finding{Subject: name, Kind: finding.Leftover, Target: o.role.Name, Problem: finding.NotWanted})
		case fleet.Replaced(err):
			o.leave(name, nil)
		default:
			r.Left[name] = err
		}
	}
	r.Record = o.Record()
}

// eachLeft does something with every machine that is left over. A machine that is wanted again is not left
// over. If another machine has its name, it stays left over, unless it is an EC2 instance: then somebody
// else ends it.
func (o *Operation) eachLeft(ctx context.Context, do func(context.Context, *fleet.Machine, Leftover) error) map[string]error {
	var machines []*fleet.Machine
	left := o.Record().Left
	for _, name := range slices.Sorted(maps.Keys(left)) {
		l := left[name]
		if named := o.ByName(name); named != nil || o.isWanted(l.Target) {
			o.leave(name, nil)
			if l.Target.Node.InstanceID != "" || o.isWanted(l.Target) {
				continue
			}
			l.Target = l.Target.Former()
			left[l.Target.Name()] = l
			o.leave(l.Target.Name(), &l)
		}
		machines = append(machines, o.Fleet.Machine(l.Target))
	}
	return fleet.EachAll(ctx, machines, func(ctx context.Context, m *fleet.Machine) error { return do(ctx, m, left[m.Name()]) })
}

// isWanted reports whether a target that is left over is a machine of the role again. Its host key identifies only
// the machine of its name, since other machines may be copies.
func (o *Operation) isWanted(t fleet.Target) bool {
	return slices.ContainsFunc(o.Machines, func(m *Machine) bool {
		return m.SamePlace(t) || m.Name() == t.Name() && fleet.SameMachine(m.Target, t, o.role.Targets)
	})
}

// leave records that a machine is left over, or is no longer if l is nil.
func (o *Operation) leave(name string, l *Leftover) {
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
func (o *Operation) removeFrom(ctx context.Context, m *fleet.Machine, state desired.State, kill bool) error {
	m.Say("%s: removing", o.role.Name)
	err := fleet.Within(ctx, fleet.RemoveBudget, "removal of "+o.role.Name, func(ctx context.Context) error {
		return host.Remove(ctx, m.Remote, host.Removal{State: state, Dirs: o.role.Dirs, First: o.role.EndFirst, Kill: kill,
			ClaimFile: o.role.claimPath(), Claim: o.record.Claim})
	})
	switch {
	case fleet.Unreachable(err):
		o.leaveOver(m, state, err)
		return nil
	case errors.Is(err, host.ErrClaimed):
		m.Say("%s: another state has claimed it, left as it is", o.role.Name)
		o.mu.Lock()
		defer o.mu.Unlock()
		o.kept = append(o.kept, m.Name())
		return nil
	}
	return err
}

// leaveOver records that a machine is left over because it cannot be reached.
func (o *Operation) leaveOver(m *fleet.Machine, state desired.State, why error) {
	m.Say("%s: cannot be reached, left as it is: %v", o.role.Name, why)
	o.leave(m.Name(), &Leftover{Target: m.Target, State: namesOnly(state)})
}

// joined returns the errors of several machines in the order of their names.
func (o *Operation) joined(errs map[string]error) error {
	var out []error
	for _, name := range slices.Sorted(maps.Keys(errs)) {
		out = append(out, fmt.Errorf("removing %s from %s: %w", o.role.Name, name, errs[name]))
	}
	return errors.Join(out...)
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
		if u.Foreign {
			continue
		}
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
