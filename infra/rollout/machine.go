package rollout

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

func (e *Engine) now() time.Time {
	if e.Now == nil {
		return time.Now()
	}
	return e.Now()
}

func (e *Engine) random() io.Reader {
	if e.Rand == nil {
		return rand.Reader
	}
	return e.Rand
}

func (e *Engine) say(machine, format string, args ...any) {
	if e.Progress != nil {
		e.Progress(machine, fmt.Sprintf(format, args...))
	}
}

// operation is one role being observed or brought to what is wanted.
type operation struct {
	*Engine
	role     role
	keys     *keyring
	machines []*machine
	// probes are directories to look for besides what is wanted.
	probes []desired.Directory

	mu     sync.Mutex
	record Record
}

// machine is one machine during an operation. Only one goroutine works on a
// machine at a time.
type machine struct {
	Target
	runner *remote.Machine
	want   component.Machine
	record MachineRecord

	state   desired.State // want, with certificates and secrets as files
	seen    host.Observation
	pairs   map[string]pairVerdict // by slot name
	changes []host.Change
	// bystanders are units that the step in hand does not touch and that may
	// still fail for a while because of it: they are not judged by it.
	bystanders []string
	unproven   bool          // a worker on which no pod is known to have started since its units did
	gone       error         // why it could not be reached; nil when it was
	ahead      time.Duration // its clock's lead over ours
}

func (m *machine) name() string { return m.Node.Name }

// begin computes what every machine of the role must look like. The record is copied.
func (e *Engine) begin(r role, rec Record) (*operation, error) {
	o := &operation{Engine: e, role: r, keys: e.keyring(r.ref),
		record: Record{Formed: rec.Formed, Sealed: rec.Sealed, Machines: maps.Clone(rec.Machines)}}
	if o.record.Machines == nil {
		o.record.Machines = map[string]MachineRecord{}
	}
	for _, t := range r.targets {
		if slices.ContainsFunc(o.machines, func(m *machine) bool { return m.name() == t.Node.Name }) {
			return nil, fmt.Errorf("%s: machine %s is given twice", r.name, t.Node.Name)
		}
		want, err := r.machine(t.Node)
		if err != nil {
			return nil, fmt.Errorf("%s on %s: %w", r.name, t.Node.Name, err)
		}
		o.machines = append(o.machines, &machine{Target: t, runner: e.Pool.Machine(t.Host), want: want,
			record: o.record.Machines[t.Node.Name].clone()})
	}
	return o, nil
}

func (r MachineRecord) clone() MachineRecord {
	r.Certificates = maps.Clone(r.Certificates)
	r.Secrets = maps.Clone(r.Secrets)
	if r.Certificates == nil {
		r.Certificates = map[string]PairRecord{}
	}
	if r.Secrets == nil {
		r.Secrets = map[string]SecretRecord{}
	}
	return r
}

// each runs f for the given machines in parallel. The first error cancels the rest.
func each(ctx context.Context, machines []*machine, f func(context.Context, *machine) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelMachines)
	for _, m := range machines {
		group.Go(func() error { return f(ctx, m) })
	}
	return group.Wait()
}

// eachAll runs f for the given machines in parallel, to the end, and returns
// the errors by machine. One machine's trouble is not another's here.
func eachAll(ctx context.Context, machines []*machine, f func(context.Context, *machine) error) map[string]error {
	var (
		mu   sync.Mutex
		errs = map[string]error{}
	)
	_ = each(ctx, machines, func(ctx context.Context, m *machine) error {
		if err := f(ctx, m); err != nil {
			mu.Lock()
			defer mu.Unlock()
			errs[m.name()] = err
		}
		return nil
	})
	return errs
}

// observe looks at one machine and computes what differs from what is wanted,
// judging certificates and secrets by the record.
func (o *operation) observe(ctx context.Context, m *machine) error {
	m.state = withKeyFiles(m.want, m.record)
	look := m.state
	look.Directories = slices.Concat(look.Directories, o.probes)
	asked := o.now()
	seen, err := host.Observe(ctx, m.runner, look, m.record.Host)
	if err != nil {
		return err
	}
	m.seen, m.ahead = seen, off(seen.Time, asked, o.now())
	m.pairs = o.judge(m)
	m.changes = host.Diff(m.state, seen, m.record.Host)
	return nil
}

// look observes all machines in parallel. Machines that cannot be reached are
// marked so; any other trouble is an error.
func (o *operation) look(ctx context.Context) error {
	return each(ctx, o.machines, func(ctx context.Context, m *machine) error {
		err := o.observe(ctx, m)
		m.gone = nil
		if unreachable(err) {
			m.gone, err = err, nil
		}
		return err
	})
}

// lookAndFill is look, followed by making the certificates and fetching the
// secrets that must be written, so that changes are what will be applied. What
// would let it fail in a roundabout way is found out here.
func (o *operation) lookAndFill(ctx context.Context) error {
	if err := o.look(ctx); err != nil {
		return err
	}
	for _, m := range o.reachable() {
		if err := m.checkClock(); err != nil {
			return err
		}
	}
	if err := each(ctx, o.reachable(), o.fill); err != nil {
		return err
	}
	return o.clear(ctx)
}

func (o *operation) reachable() []*machine {
	return slices.DeleteFunc(slices.Clone(o.machines), func(m *machine) bool { return m.gone != nil })
}

// byName returns nil when there is no such machine in the role.
func (o *operation) byName(name string) *machine {
	for _, m := range o.machines {
		if m.name() == name {
			return m
		}
	}
	return nil
}

// left is the error about machines that were passed over, nil when there are none.
func (o *operation) left() error {
	gone := map[string]error{}
	for _, m := range o.machines {
		if m.gone != nil {
			gone[m.name()] = m.gone
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return &LeftError{Machines: gone}
}

// apply makes the given changes to a machine, all of which must be among
// m.changes, and records what was done: also when it failed half-way.
func (o *operation) apply(ctx context.Context, m *machine, changes []host.Change) error {
	if len(changes) > 0 {
		o.say(m.name(), "%s: applying %d changes", o.role.name, len(changes))
	}
	held := slices.DeleteFunc(slices.Clone(m.changes), func(c host.Change) bool {
		return slices.ContainsFunc(changes, func(x host.Change) bool { return x.Kind == c.Kind && x.Target == c.Target })
	})
	state := without(m.state, held)
	state.Units = slices.DeleteFunc(state.Units, func(u desired.Unit) bool { return slices.Contains(m.bystanders, u.Name) })
	rec, err := host.Apply(ctx, m.runner, state, changes, m.record.Host, host.Options{
		Progress: func(s string) { o.say(m.name(), "%s", s) }})
	m.record.Host = keepRecords(rec, m.record.Host, held)
	if err == nil {
		m.settle(changes)
		m.changes = held
	}
	o.save(m)
	return m.withNext(err)
}

// withNext adds to what the engine said of a machine the command to run next.
func (m *machine) withNext(err error) error {
	var failed *host.ApplyError
	if !errors.As(err, &failed) {
		return err
	}
	var command string
	_, url, download := strings.Cut(failed.Step, " from ")
	if _, told, refused := strings.Cut(failed.Err.Error(), "Failed to fetch "); refused && !download { // as apt-get says it
		url, _, _ = strings.Cut(told, " ")
		download = strings.HasPrefix(url, "http") // and not mirror+file:, as on Debian's EC2 images, which curl cannot ask
	}
	packages, install := strings.CutPrefix(failed.Step, "install packages ")
	switch {
	case failed.Unit != "":
		command = journalCommand(m.Host, failed.Unit)
	case failed.Full():
		command = sshCommand(m.Host, "df -h")
	case download:
		command = sshCommand(m.Host, "curl --verbose --head "+url)
	case install:
		command = sshCommand(m.Host, "sudo apt-get install "+packages)
	default:
		return err
	}
	return fmt.Errorf("%w\nnext: %s", err, command)
}

func isPackage(c host.Change) bool { return c.Kind == host.KindPackage }

// installPackages installs what packages the machine lacks, before anything is
// stopped and before any time is counted: others may be at it on the machine.
func (o *operation) installPackages(ctx context.Context, m *machine) error {
	packages := slices.DeleteFunc(slices.Clone(m.changes), func(c host.Change) bool { return !isPackage(c) })
	if len(packages) == 0 {
		return nil
	}
	return o.apply(ctx, m, packages)
}

// without is the state less everything that changes are held back for: what is
// not applied yet must not be verified yet either.
func without(s desired.State, held []host.Change) desired.State {
	targets, units := map[string]bool{}, map[string]bool{}
	for _, c := range held {
		targets[c.Target] = true
		for _, u := range c.Restarts {
			units[u] = true
		}
	}
	s.Directories = slices.DeleteFunc(slices.Clone(s.Directories), func(d desired.Directory) bool { return targets[d.Path] })
	s.Files = slices.DeleteFunc(slices.Clone(s.Files), func(f desired.File) bool { return targets[f.Path] })
	s.Binaries = slices.DeleteFunc(slices.Clone(s.Binaries), func(b desired.Binary) bool {
		return slices.ContainsFunc(b.Installs, func(i desired.Install) bool { return targets[i.Path] })
	})
	s.Units = slices.DeleteFunc(slices.Clone(s.Units), func(u desired.Unit) bool { return units[u.Name] || targets[u.Name] })
	// Of a module or sysctl either the setting or the file that makes it last may be held back.
	s.Modules = slices.DeleteFunc(slices.Clone(s.Modules), func(m string) bool { return targets[m] || targets[host.ModulePath(m)] })
	s.Sysctls = maps.Clone(s.Sysctls)
	maps.DeleteFunc(s.Sysctls, func(key, _ string) bool { return targets[key] || targets[host.SysctlPath(key)] })
	return s
}

// keepRecords puts back the records of what was held back.
func keepRecords(rec, old host.Record, held []host.Change) host.Record {
	for _, c := range held {
		if f, ok := old.Files[c.Target]; ok {
			if rec.Files == nil {
				rec.Files = map[string]host.FileRecord{}
			}
			rec.Files[c.Target] = f
		}
	}
	return rec
}

// applyWithin is apply with a deadline: a unit that neither starts nor fails
// (because it waits for others that never come) must not hold up a person
// until the whole operation's time is over. Downloads must have come before.
func (o *operation) applyWithin(ctx context.Context, m *machine, changes []host.Change, budget time.Duration, unit string) error {
	if err := o.installPackages(ctx, m); err != nil {
		return err
	}
	changes = slices.DeleteFunc(slices.Clone(changes), isPackage)
	err := within(ctx, budget, "start of "+unit, func(ctx context.Context) error { return o.apply(ctx, m, changes) })
	var told *host.ApplyError
	if errors.As(err, &told) && told.Journal != "" || unreachable(err) || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return o.unitError(ctx, m, "apply", unit, err)
}

// stages takes the steps of a plan: stage by stage, the steps of a stage in
// parallel. A step about a machine that is not (or no longer) the role's gets nil.
func (o *operation) stages(ctx context.Context, plan Plan, step func(context.Context, *machine, Step) error) error {
	for i, stage := range plan {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(parallelMachines)
		for _, s := range stage {
			o.say(s.Machine, "%s: %s", o.role.name, s.Action)
			group.Go(func() error { return step(ctx, o.byName(s.Machine), s) })
		}
		if err := group.Wait(); err != nil {
			return stopped(err, slices.Concat(plan[:i+1]...), slices.Concat(plan[i+1:]...))
		}
	}
	return nil
}

// saveSettled records machines on which there was nothing to do: what was
// found there is what is wanted.
func (o *operation) saveSettled() {
	for _, m := range o.reachable() {
		if len(m.changes) == 0 {
			m.settle(nil)
			m.record.Host = host.Adopt(m.state, m.seen, m.record.Host)
			o.save(m)
		}
	}
}

// save puts the machine's record into the operation's.
func (o *operation) save(m *machine) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.record.Machines[m.name()] = m.record.clone()
}

// result is the record as it stands.
func (o *operation) result() Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	return Record{Formed: o.record.Formed, Sealed: o.record.Sealed, Machines: maps.Clone(o.record.Machines)}
}

// forget drops a machine that is no longer part of the role.
func (o *operation) forget(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.record.Machines, name)
}

// restarts tells whether making the changes restarts or reloads one of the units.
func restarts(changes []host.Change, units ...string) bool {
	return slices.ContainsFunc(changes, func(c host.Change) bool {
		return slices.ContainsFunc(c.Restarts, func(u string) bool { return slices.Contains(units, u) })
	})
}

func (m *machine) running(unit string) bool {
	return m.gone == nil && m.seen.Units[unit].ActiveState == "active"
}

// prepare does what can be done before anything is stopped: it downloads, and
// has the new command lines checked.
func (o *operation) prepare(ctx context.Context, plan Plan) error {
	if err := o.prefetch(ctx); err != nil {
		return err
	}
	return o.rehearse(ctx, plan)
}

// known is the record without what has been changed on the machine since.
func (m *machine) known() host.Record {
	rec := host.Record{Files: maps.Clone(m.record.Host.Files)}
	for _, c := range m.changes {
		delete(rec.Files, c.Target)
	}
	return rec
}

// prefetch downloads what machines will need and installs packages, before
// anything is stopped and before any time is counted.
func (o *operation) prefetch(ctx context.Context) error {
	return each(ctx, o.reachable(), func(ctx context.Context, m *machine) error {
		if err := o.installPackages(ctx, m); err != nil {
			return err
		}
		if !slices.ContainsFunc(m.changes, func(c host.Change) bool { return c.Kind == host.KindBinary }) {
			return nil
		}
		o.say(m.name(), "%s: downloading ahead", o.role.name)
		return m.withNext(host.Prefetch(ctx, m.runner, m.state, m.known()))
	})
}
