package rollout

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
)

// Operation is the observation or the change of one role.
type Operation struct {
	Fleet    *fleet.Fleet
	Access   *fleet.Access // clients and keys, until the operation ends
	Machines []*Machine    // in the order of the role's targets
	// Prior is the role as it was wanted before, nil on creation. Its targets are without the machines
	// that another record has claimed.
	Prior *Definition
	// Probes are directories and files to look at besides those of the wanted state.
	Probes desired.State

	role Definition

	mu     sync.Mutex
	record Record
	kept   []string // machines from which the role was not removed, since another record has claimed them
	// sealed are the hashes that this operation has made, by digest; unsealed says whether a hash with a digest is
	// of it.
	sealed   map[string]string
	unsealed map[string]bool
}

// NewOperation begins an operation on the machines of a role. prior is nil, or the role as it was
// wanted before, of the same type. The caller closes Access at the end.
func NewOperation(f *fleet.Fleet, want, prior Role, rec Record) (*Operation, error) {
	if err := checkRole(want); err != nil {
		return nil, err
	}
	if prior != nil && reflect.TypeOf(prior) != reflect.TypeOf(want) {
		return nil, fmt.Errorf("a %T does not follow a %T", want, prior)
	}
	o, err := newOperation(f, want.Definition(), rec)
	if err == nil && prior != nil {
		before := prior.Definition()
		o.Prior = &before
	}
	return o, err
}

// newOperation computes the wanted state of every machine of the role. It copies the record.
func newOperation(f *fleet.Fleet, r Definition, rec Record) (*Operation, error) {
	o := &Operation{Fleet: f, role: r, Access: f.Access(r.PKI), record: rec.clone()}
	for _, t := range r.Targets {
		if slices.ContainsFunc(o.Machines, func(m *Machine) bool { return m.Name() == t.Node.Name }) {
			return nil, fmt.Errorf("%s: machine %s is given twice", r.Name, t.Node.Name)
		}
		want, err := r.Machine(t.Node)
		if err != nil {
			return nil, fmt.Errorf("%s on %s: %w", r.Name, t.Node.Name, err)
		}
		o.Machines = append(o.Machines, &Machine{Machine: f.Machine(t), Want: want,
			Record: o.record.Machines[t.Node.Name].clone()})
	}
	return o, nil
}

// observe observes one machine and computes the changes. It compares certificates and secrets with
// the record.
func (o *Operation) observe(ctx context.Context, m *Machine) error {
	m.State = withKeyFiles(m.Want, m.Record)
	look := m.State
	look.Directories = slices.Concat(look.Directories, o.Probes.Directories)
	claimed := o.claimed()
	look.Files = slices.Concat(look.Files, claimed.Files, o.Probes.Files)
	asked := o.Fleet.Now()
	seen, err := host.Observe(ctx, m.Remote, look, m.Record.Host)
	if err != nil {
		return err
	}
	m.Seen, m.ahead = seen, fleet.ClockLead(seen.Time, asked, o.Fleet.Now())
	m.pairs = o.judge(m)
	o.judgeGiven(m)
	m.Changes = host.Diff(m.State, seen, m.Record.Host)
	m.claim = host.Diff(claimed, seen, host.Record{})
	return nil
}

// observeAll observes all machines in parallel, as observeOwned. Machines that cannot be reached are marked; any
// other failure is an error.
func (o *Operation) observeAll(ctx context.Context) error {
	return fleet.Each(ctx, o.Machines, func(ctx context.Context, m *Machine) error {
		err := o.observeOwned(ctx, m)
		m.Gone = nil
		if fleet.Unreachable(err) {
			m.Gone, err = err, nil
		}
		return err
	})
}

// awaitBoot waits until a machine has booted that is to be changed, and observes it again if it had not. An instance of EC2
// that the role does not know yet answered when it was made a moment ago, so it may just be rebooting. The record of a machine
// that arrives is that of another one of the same name.
func (o *Operation) awaitBoot(ctx context.Context, m *Machine) error {
	_, known := o.record.Machines[m.Name()]
	known = known && !o.arrives(m)
	if m.Gone != nil && (known || m.Node.InstanceID == "" || m.Host.Off) || m.Gone == nil && len(m.Changes) == 0 {
		return nil
	}
	waited, err := host.AwaitBoot(ctx, m.Remote, func(s string) { m.Say("%s", s) })
	if err == nil && waited {
		m.Gone = nil
		err = o.observeOwned(ctx, m)
	}
	if fleet.Unreachable(err) {
		m.Gone, err = err, nil
	}
	return withAdvice(m.Target, err)
}

// Survey observes all machines once they have booted, then makes the certificates and fetches the secrets that must be
// written, so that Changes are what will be applied. Machines that cannot be reached are no error; Gone
// says why. A clock that is wrong is an error, since it would fail later with an unclear one, and so is an sshd
// that does not forward what the role will ask.
func (o *Operation) Survey(ctx context.Context) error {
	if err := o.observeAll(ctx); err != nil {
		return err
	}
	if err := fleet.Each(ctx, o.Machines, o.awaitBoot); err != nil {
		return err
	}
	for _, m := range o.Reachable() {
		if err := m.CheckClock(m.ahead); err != nil {
			return err
		}
	}
	if err := fleet.Each(ctx, o.Reachable(), o.checkForwarding); err != nil {
		return err
	}
	return fleet.Each(ctx, o.Reachable(), o.fill)
}

// SurveyMachine is Survey of one machine, which answers.
func (o *Operation) SurveyMachine(ctx context.Context, m *Machine) error {
	if err := o.observeOwned(ctx, m); err != nil {
		return err
	}
	return o.fill(ctx, m)
}

// Reachable returns the machines that could be reached.
func (o *Operation) Reachable() []*Machine {
	return slices.DeleteFunc(slices.Clone(o.Machines), func(m *Machine) bool { return m.Gone != nil })
}

// Reached returns the machines that could be reached, without what is wanted of them.
func (o *Operation) Reached() []*fleet.Machine { return MachinesOf(o.Reachable()) }

// ByName returns the role's machine of that name, nil if there is none.
func (o *Operation) ByName(name string) *Machine {
	for _, m := range o.Machines {
		if m.Name() == name {
			return m
		}
	}
	return nil
}

// Skipped returns the error about machines that were skipped, nil if there are none. Machines that
// are off on purpose are not meant.
func (o *Operation) Skipped() error {
	gone := map[string]error{}
	for _, m := range o.Machines {
		if m.Gone != nil && !m.Host.Off {
			gone[m.Name()] = m.Gone
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return &fleet.SkippedError{Machines: gone}
}

// SaveUnchanged records the machines without changes: they are as wanted.
func (o *Operation) SaveUnchanged() {
	for _, m := range o.Reachable() {
		if len(m.Changes) == 0 {
			o.recordWritten(m, nil)
			m.notePlaced()
			m.Record.Host = host.Adopt(m.State, m.Seen, m.Record.Host)
			o.save(m)
		}
	}
}

// save puts the machine's record into the operation's record.
func (o *Operation) save(m *Machine) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.record.Machines[m.Name()] = m.Record.clone()
}

// Note changes the record.
func (o *Operation) Note(change func(*Record)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change(&o.record)
}

// Kept returns the names of the machines from which the role was not removed, since another record
// has claimed them.
func (o *Operation) Kept() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.kept)
}

// Record returns the record as it is now.
func (o *Operation) Record() Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.record.clone()
}

// forget removes from the record a machine that has left the role.
func (o *Operation) forget(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.record.Machines, name)
}

// claimed is the wanted state of the claim on every machine; empty without a claim.
func (o *Operation) claimed() desired.State {
	if o.record.Claim == "" {
		return desired.State{}
	}
	return desired.State{Files: []desired.File{{Path: o.role.claimPath(), Mode: 0o644, Content: []byte(o.record.Claim + "\n")}}}
}
