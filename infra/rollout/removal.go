package rollout

import (
	"context"
	"errors"
	"fmt"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// remove stops everything of the role on its machines and deletes its files,
// in parallel. Machines that cannot be reached are passed over: they are gone,
// or about to be.
func (e *Engine) remove(ctx context.Context, r role, rec Record) error {
	o, err := e.begin(r, rec)
	if err != nil {
		return err
	}
	errs := EachAll(ctx, o.machines, func(ctx context.Context, m *convergence) error {
		farewell := o.role.farewell
		if farewell == "" {
			farewell = killUnits(m.want.State.Units)
		}
		return o.tidy(ctx, m, farewell)
	})
	var out []error
	for _, name := range sortedKeys(errs) {
		out = append(out, errs[name])
	}
	return errors.Join(out...)
}

// dismiss removes what prior had and the role has no more from its machines.
func (o *operation) dismiss(ctx context.Context, prior role) error {
	prior.targets = leaving(o.role.targets, prior.targets)
	gone, err := o.begin(prior, o.result())
	if err != nil {
		return err
	}
	errs := EachAll(ctx, gone.machines, func(ctx context.Context, m *convergence) error {
		return gone.tidy(ctx, m, gone.role.farewell)
	})
	for _, m := range gone.machines {
		if errs[m.Name()] == nil {
			o.forget(m.Name())
		}
	}
	var out []error
	for _, name := range sortedKeys(errs) {
		out = append(out, fmt.Errorf("removing %s from %s: %w", prior.name, name, errs[name]))
	}
	return errors.Join(out...)
}

// killUnits ends units at once: when all of a role goes, nobody is left to
// whom leaving in order would matter. The stop job keeps them from restarting.
func killUnits(units []desired.Unit) string {
	if len(units) == 0 {
		return ""
	}
	names := ""
	for _, u := range units {
		names += " '" + u.Name + "'"
	}
	return "systemctl stop --no-block --" + names + " 2>/dev/null; systemctl kill -s KILL --" + names + " 2>/dev/null\n"
}

// tidy removes the role from one machine, after a farewell script, passing
// over one that is gone.
func (o *operation) tidy(ctx context.Context, m *convergence, farewell string) error {
	ctx, cancel := context.WithTimeout(ctx, leaveBudget)
	defer cancel()
	m.Say("%s: removing", o.role.name)
	if farewell != "" {
		// What it could not end, Remove complains about where it matters.
		if _, err := m.Remote.Run(ctx, remote.Command{Script: farewell, Sudo: true}); err != nil && !unreachable(err) {
			m.Say("%s: %v", o.role.name, err)
		}
	}
	err := host.Remove(ctx, m.Remote, withKeyFiles(m.want, m.record), o.role.dirs)
	if unreachable(err) {
		m.Say("%s: cannot be reached, passed over: %v", o.role.name, err)
		return nil
	}
	return err
}
