package rollout

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
)

// operation is the observation or the change of one role.
type operation struct {
	fleet    *fleet.Fleet
	role     role
	access   *fleet.Access
	machines []*convergence
	// probes are directories to look for besides those of the wanted state.
	probes []desired.Directory
	// probed are files to look for besides those of the wanted state.
	probed []desired.File

	mu     sync.Mutex
	record Record
	kept   []string // machines from which the role was not removed, since they have another claim
}

func (e *Engine) newOperation(want Role, rec Record) (*operation, error) {
	if err := checkRole(want); err != nil {
		return nil, err
	}
	return newOperation(e.Fleet, want.role(), rec)
}

// newOperation computes the wanted state of every machine of the role. It copies the record.
func newOperation(f *fleet.Fleet, r role, rec Record) (*operation, error) {
	o := &operation{fleet: f, role: r, access: f.Access(r.ref), record: rec.clone()}
	for _, t := range r.targets {
		if slices.ContainsFunc(o.machines, func(m *convergence) bool { return m.Name() == t.Node.Name }) {
			return nil, fmt.Errorf("%s: machine %s is given twice", r.name, t.Node.Name)
		}
		want, err := r.machine(t.Node)
		if err != nil {
			return nil, fmt.Errorf("%s on %s: %w", r.name, t.Node.Name, err)
		}
		o.machines = append(o.machines, &convergence{Machine: f.Machine(t), want: want,
			record: o.record.Machines[t.Node.Name].clone()})
	}
	return o, nil
}

// observe observes one machine and computes the changes. It compares certificates and secrets with
// the record.
func (o *operation) observe(ctx context.Context, m *convergence) error {
	m.state = withKeyFiles(m.want, m.record)
	look := m.state
	look.Directories = slices.Concat(look.Directories, o.probes)
	claimed := o.claimed()
	look.Files = slices.Concat(look.Files, claimed.Files, o.probed)
	asked := o.fleet.Now()
	seen, err := host.Observe(ctx, m.Remote, look, m.record.Host)
	if err != nil {
		return err
	}
	m.seen, m.ahead = seen, fleet.ClockLead(seen.Time, asked, o.fleet.Now())
	m.pairs = o.judge(m)
	m.changes = host.Diff(m.state, seen, m.record.Host)
	m.claim = host.Diff(claimed, seen, host.Record{})
	return nil
}

// observeAll observes all machines in parallel. Machines that cannot be reached are marked; any
// other failure is an error.
func (o *operation) observeAll(ctx context.Context) error {
	return fleet.Each(ctx, o.machines, func(ctx context.Context, m *convergence) error {
		err := o.observe(ctx, m)
		m.gone = nil
		if fleet.Unreachable(err) {
			m.gone, err = err, nil
		}
		return err
	})
}

// observeAndFill calls observeAll, then makes the certificates and fetches the secrets that must be
// written, so that changes are what will be applied. It also checks what would otherwise fail later
// with an unclear error.
func (o *operation) observeAndFill(ctx context.Context) error {
	if err := o.observeAll(ctx); err != nil {
		return err
	}
	for _, m := range o.reachable() {
		if err := m.CheckClock(m.ahead); err != nil {
			return err
		}
	}
	if err := fleet.Each(ctx, o.reachable(), o.fill); err != nil {
		return err
	}
	return o.checkReach(ctx)
}

func (o *operation) reachable() []*convergence {
	return slices.DeleteFunc(slices.Clone(o.machines), func(m *convergence) bool { return m.gone != nil })
}

// reached returns the machines that could be reached.
func (o *operation) reached() []*fleet.Machine { return machinesOf(o.reachable()) }

// byName returns the role's machine of that name, nil if there is none.
func (o *operation) byName(name string) *convergence {
	for _, m := range o.machines {
		if m.Name() == name {
			return m
		}
	}
	return nil
}

// skipped returns the error about machines that were skipped, nil if there are none. Machines that
// are off on purpose are not meant.
func (o *operation) skipped() error {
	gone := map[string]error{}
	for _, m := range o.machines {
		if m.gone != nil && !m.Host.Off {
			gone[m.Name()] = m.gone
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return &fleet.SkippedError{Machines: gone}
}

// saveSettled records the machines without changes: they are as wanted.
func (o *operation) saveSettled() {
	for _, m := range o.reachable() {
		if len(m.changes) == 0 {
			m.settle(nil)
			m.record.Host = host.Adopt(m.state, m.seen, m.record.Host)
			o.save(m)
		}
	}
}

// save puts the machine's record into the operation's record.
func (o *operation) save(m *convergence) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.record.Machines[m.Name()] = m.record.clone()
}

// result returns the record as it is now.
func (o *operation) result() Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.record.clone()
}

// forget removes from the record a machine that has left the role.
func (o *operation) forget(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.record.Machines, name)
}

// prepare does what can be done before anything is stopped: it downloads, and rehearses units with
// their new settings.
func (o *operation) prepare(ctx context.Context, plan Plan) error {
	if err := o.prefetch(ctx); err != nil {
		return err
	}
	return o.rehearse(ctx, plan)
}

// prefetch downloads what machines will need and installs packages, before anything is stopped and
// before any deadline starts.
func (o *operation) prefetch(ctx context.Context) error {
	return fleet.Each(ctx, o.reachable(), func(ctx context.Context, m *convergence) error {
		if err := o.installPackages(ctx, m); err != nil {
			return err
		}
		if !slices.ContainsFunc(m.changes, func(c host.Change) bool { return c.Kind == finding.Binary }) {
			return nil
		}
		m.Say("%s: downloading ahead", o.role.name)
		return withAdvice(m.Target, host.Prefetch(ctx, m.Remote, m.state, m.known()))
	})
}
