package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
)

// remove stops everything of the role on its machines and deletes its files, in parallel. It skips
// machines that cannot be reached: they no longer exist, or will not for long.
func (o *operation) remove(ctx context.Context) error {
	errs := fleet.EachAll(ctx, o.machines, func(ctx context.Context, m *convergence) error {
		var units []string
		for _, u := range m.want.State.Units {
			units = append(units, u.Name)
		}
		beforeRemove := o.role.beforeRemove
		if beforeRemove == nil && len(units) > 0 {
			// When the whole role is removed, its units need not end gracefully.
			beforeRemove = func(ctx context.Context, m *fleet.Machine) error { return deed.Kill(ctx, m.Remote, units...) }
		}
		return o.removeFrom(ctx, m, beforeRemove)
	})
	var out []error
	for _, name := range slices.Sorted(maps.Keys(errs)) {
		out = append(out, errs[name])
	}
	return errors.Join(out...)
}

// removeLeaving removes the role from machines that are in prior and no longer in the role.
func (o *operation) removeLeaving(ctx context.Context, prior Role) error {
	left := prior.role()
	left.targets = leaving(o.role.targets, left.targets)
	gone, err := newOperation(o.fleet, left, o.result())
	if err != nil {
		return err
	}
	defer gone.access.Close()
	errs := fleet.EachAll(ctx, gone.machines, func(ctx context.Context, m *convergence) error {
		return gone.removeFrom(ctx, m, gone.role.beforeRemove)
	})
	for _, m := range gone.machines {
		if errs[m.Name()] == nil {
			o.forget(m.Name())
		}
	}
	var out []error
	for _, name := range slices.Sorted(maps.Keys(errs)) {
		out = append(out, fmt.Errorf("removing %s from %s: %w", left.name, name, errs[name]))
	}
	return errors.Join(out...)
}

// removeFrom calls beforeRemove and removes the role from one machine. A machine that cannot be
// reached is no error.
func (o *operation) removeFrom(ctx context.Context, m *convergence, beforeRemove func(context.Context, *fleet.Machine) error) error {
	ctx, cancel := context.WithTimeout(ctx, fleet.LeaveBudget)
	defer cancel()
	m.Say("%s: removing", o.role.name)
	if beforeRemove != nil {
		// If it left something running that matters, Remove returns the error.
		if err := beforeRemove(ctx, m.Machine); err != nil && !fleet.Unreachable(err) {
			m.Say("%s: %v", o.role.name, err)
		}
	}
	err := host.Remove(ctx, m.Remote, withKeyFiles(m.want, m.record), o.role.dirs)
	if fleet.Unreachable(err) {
		m.Say("%s: cannot be reached, skipped: %v", o.role.name, err)
		return nil
	}
	return err
}
