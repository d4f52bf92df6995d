package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
)

// Apply makes changes to a machine, all of which must be in m.Changes. It records what was done,
// also when it fails halfway. bystanders are units that it does not change but may cause to fail for a
// while. Their state is not checked.
func (o *Operation) Apply(ctx context.Context, m *Machine, changes []host.Change, bystanders ...string) error {
	if len(changes) > 0 {
		m.Say("%s: applying %d changes", o.role.Name, len(changes))
	}
	postponed := slices.DeleteFunc(slices.Clone(m.Changes), func(c host.Change) bool {
		return slices.ContainsFunc(changes, func(x host.Change) bool { return x.Kind == c.Kind && x.Target == c.Target })
	})
	state := without(m.State, postponed)
	state.Units = slices.DeleteFunc(state.Units, func(u desired.Unit) bool { return slices.Contains(bystanders, u.Name) })
	m.notePlacing()
	rec, err := host.Apply(ctx, m.Remote, state, changes, m.Record.Host, host.Options{
		Progress: func(s string) { m.Say("%s", s) }})
	m.Record.Host = keepRecords(rec, m.Record.Host, postponed)
	if err == nil {
		o.recordWritten(m, changes)
		m.Changes = postponed
		m.notePlaced()
	}
	o.save(m)
	return withAdvice(m.Target, err)
}

// withAdvice adds the command to run next to an error of package host.
func withAdvice(t fleet.Target, err error) error {
	var failed *host.ApplyError
	if !errors.As(err, &failed) {
		return err
	}
	var command string
	switch {
	case failed.Unit != "":
		command = t.JournalCommand(failed.Unit)
	case failed.Full():
		command = t.SSH("df -h")
	case failed.Step.URL != "":
		command = t.SSH("curl --verbose --head " + failed.Step.URL)
	case failed.Step.Kind == host.StepPackages:
		command = t.SSH("sudo apt-get install " + failed.Step.Target)
	default:
		return err
	}
	return fmt.Errorf("%w\nnext: %s", err, command)
}

func isPackage(c host.Change) bool { return c.Kind == finding.Package }

// InstallPackages installs missing packages before anything is stopped and before any deadline
// starts, because other processes may hold the package locks.
func (o *Operation) InstallPackages(ctx context.Context, m *Machine, bystanders ...string) error {
	packages := slices.DeleteFunc(slices.Clone(m.Changes), func(c host.Change) bool { return !isPackage(c) })
	if len(packages) == 0 {
		return nil
	}
	return o.Apply(ctx, m, packages, bystanders...)
}

// without returns the state without everything that held changes concern, because a change that is
// not applied yet must not be verified.
func without(s desired.State, postponed []host.Change) desired.State {
	targets, units := map[string]bool{}, map[string]bool{}
	for _, c := range postponed {
		targets[c.Target] = true
		for _, u := range c.Restarts {
			units[u] = true
		}
	}
	s.Directories = slices.DeleteFunc(slices.Clone(s.Directories), func(d desired.Directory) bool { return targets[d.Path] })
	for i, d := range s.Directories {
		s.Directories[i].Exclusive = d.Exclusive && !slices.ContainsFunc(postponed, func(c host.Change) bool { return strings.HasPrefix(c.Target, d.Path+"/") })
	}
	s.Files = slices.DeleteFunc(slices.Clone(s.Files), func(f desired.File) bool { return targets[f.Path] })
	s.Binaries = slices.DeleteFunc(slices.Clone(s.Binaries), func(b desired.Binary) bool {
		return slices.ContainsFunc(b.Installs, func(i desired.Install) bool { return targets[i.Path] })
	})
	s.Units = slices.DeleteFunc(slices.Clone(s.Units), func(u desired.Unit) bool { return units[u.Name] || targets[u.Name] })
	s.Retired = slices.DeleteFunc(slices.Clone(s.Retired), func(r desired.Retired) bool {
		return targets[r.Unit] || r.Unit == "" && slices.ContainsFunc(r.Paths, func(p string) bool { return targets[p] })
	})
	if targets[desired.AuthoritiesPath] && s.Authorities == "" {
		s.AuthorityReaders = nil // they go later
	}
	// Either the setting or the file that makes it permanent may be held back.
	s.Modules = slices.DeleteFunc(slices.Clone(s.Modules), func(m string) bool { return targets[m] || targets[host.ModulePath(m)] })
	s.Sysctls = maps.Clone(s.Sysctls)
	maps.DeleteFunc(s.Sysctls, func(key, _ string) bool { return targets[key] || targets[host.SysctlPath(key)] })
	return s
}

// keepRecords restores the records of what was held back.
func keepRecords(rec, old host.Record, postponed []host.Change) host.Record {
	for _, c := range postponed {
		if f, ok := old.Files[c.Target]; ok {
			if rec.Files == nil {
				rec.Files = map[string]host.FileRecord{}
			}
			rec.Files[c.Target] = f
		}
	}
	return rec
}

// ApplyWithin is Apply with a deadline, so that a unit that neither starts nor fails (because it
// waits for others that never come) does not use up the operation's time. Downloads must be done
// before.
func (o *Operation) ApplyWithin(ctx context.Context, m *Machine, changes []host.Change, budget time.Duration, unit string, bystanders ...string) error {
	if err := o.InstallPackages(ctx, m, bystanders...); err != nil {
		return err
	}
	changes = slices.DeleteFunc(slices.Clone(changes), isPackage)
	err := fleet.Within(ctx, budget, "start of "+unit, func(ctx context.Context) error { return o.Apply(ctx, m, changes, bystanders...) })
	var told *host.ApplyError
	if errors.As(err, &told) && told.Journal != "" || fleet.Unreachable(err) || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return m.UnitError(ctx, "apply", unit, err)
}

// Batches takes the steps of a plan stage by stage, the steps of a stage in parallel. step gets nil
// for a machine that is not in the role.
func (o *Operation) Batches(ctx context.Context, plan Plan, step func(context.Context, *Machine, Step) error) error {
	for i, batch := range plan {
		group, ctx := parallel.WithContext(ctx)
		group.SetLimit(fleet.ParallelMachines)
		for _, s := range batch {
			o.Fleet.Say(s.Machine, "%s: %s", o.role.Name, s.Action)
			group.GoFor("machine "+s.Machine, func() error { return step(ctx, o.ByName(s.Machine), s) })
		}
		if err := group.Wait(); err != nil {
			return Stopped(err, slices.Concat(plan[:i+1]...), slices.Concat(plan[i+1:]...))
		}
	}
	return nil
}

// Prepare does what can be done before anything is stopped, and before any deadline starts: machines install
// packages and download what they will need, and the first of the plan rehearses units with their new settings
// as soon as it has its programs.
func (o *Operation) Prepare(ctx context.Context, plan Plan) error {
	trials, err := o.trials(plan)
	if err != nil {
		return err
	}
	return fleet.Each(ctx, o.Reachable(), func(ctx context.Context, m *Machine) error {
		if err := o.prefetch(ctx, m); err != nil {
			return err
		}
		return o.rehearse(ctx, m, trials[m.Name()])
	})
}

func (o *Operation) prefetch(ctx context.Context, m *Machine) error {
	if err := o.InstallPackages(ctx, m); err != nil {
		return err
	}
	if !slices.ContainsFunc(m.Changes, func(c host.Change) bool { return c.Kind == finding.Binary }) {
		return nil
	}
	m.Say("%s: downloading ahead", o.role.Name)
	return withAdvice(m.Target, host.Prefetch(ctx, m.Remote, m.State, m.known()))
}
