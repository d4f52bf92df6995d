// Package fault makes the local cloud misbehave on demand, as EC2 does: throttled calls, ids that
// are not visible yet, missing capacity, slow starts, disturbed first boots, and any error code.
//
// It decides when the cloud misbehaves, and has the files that disturb a first boot. It knows no
// service and no state: the services ask it.
package fault

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// Kind is a kind of fault.
type Kind string

// The kinds of faults.
const (
	// Throttle refuses calls with the service's throttling error: every Every-th, or a Fraction of
	// them.
	Throttle Kind = "throttle"
	// Eventual hides each new id from lookups for Milliseconds or for Calls lookups, and as long shows what
	// existed as it was before a change: without a new attachment or route, with the former attribute.
	Eventual Kind = "eventual"
	// Capacity is room for Instances instances, of InstanceType in Zone, by RunInstances or Action. For
	// more there is InsufficientInstanceCapacity.
	Capacity Kind = "capacity"
	// SlowStart keeps launched instances pending for Seconds.
	SlowStart Kind = "slow-start"
	// SlowSnapshot keeps new snapshots, and with them new images, pending for Seconds.
	SlowSnapshot Kind = "slow-snapshot"
	// Fail refuses calls with Code.
	Fail Kind = "fail"
	// ShortSessions lets the sessions that STS issues end after Seconds.
	ShortSessions Kind = "short-sessions"
	// ShortTunnels lets the tunnels of EC2 Instance Connect Endpoints that open end after Seconds.
	ShortTunnels Kind = "short-tunnels"
	// Forget no longer shows instances that were terminated longer than Seconds ago.
	Forget Kind = "forget"
	// Boot disturbs the first boot of instances whose Name tag matches Name, with BootFault.
	Boot Kind = "boot"
	// Zone cuts the availability zone Zone off, as if its network had no power: no packet reaches an
	// instance, a NAT gateway or a load balancer's node of the zone, from outside the zone or from inside. The machines go on,
	// and what is on their own hosts answers them (metadata, names, DHCP), so that they are as they were
	// when the fault is cleared. For new instances the zone has no capacity. That its machines still
	// reached each other would be kinder: half of a cluster could go on there. A zone without power is
	// this fault and a power cut of each machine.
	Zone Kind = "zone"
	// ShortPages ends the pages of answers after Items, as AWS may at any time.
	ShortPages Kind = "short-pages"
	// FreePlan refuses launches of types that an account of AWS's free plan may not have.
	FreePlan Kind = "free-plan"
	// Key makes the KMS key Name unusable, as if it were disabled or deleted.
	Key Kind = "key"
)

// BootFault is what disturbs a machine's first boot. On EC2 such things happen by chance.
type BootFault string

// The faults of a first boot.
const (
	// ListsLocked holds the lock of apt's package lists for Seconds, as apt-daily does.
	ListsLocked BootFault = "apt-lists-locked"
	// DpkgLocked holds the locks of dpkg for Seconds, as unattended-upgrades does.
	DpkgLocked BootFault = "dpkg-locked"
	// HalfInstalled leaves Package half configured, or half unpacked if the image lacks it, as an
	// interrupted dpkg does.
	HalfInstalled BootFault = "package-half-installed"
	// CloudInitHangs keeps cloud-init's final stage from starting, for Seconds or for ever.
	CloudInitHangs BootFault = "cloud-init-hangs"
)

// Fault is one fault. Its JSON form is that of the control endpoint.
type Fault struct {
	ID     int    `json:"id"`
	Kind   Kind   `json:"kind"`
	Action string `json:"action,omitempty"` // action name, may hold * (path.Match); empty means every action
	// Count is how many more times the fault takes effect; 0 means until it is removed.
	Count int `json:"count,omitempty"`

	Every    int     `json:"every,omitempty"`    // throttle: every Nth matching call
	Fraction float64 `json:"fraction,omitempty"` // throttle: this part of the matching calls, 0..1

	Milliseconds int `json:"milliseconds,omitempty"` // eventual: how long a new id stays hidden
	Calls        int `json:"calls,omitempty"`        // eventual: for how many lookups a new id stays hidden

	Items int `json:"items,omitempty"` // short-pages: of a page

	Seconds float64 `json:"seconds,omitempty"` // slow-start: added to the launch; slow-snapshot: added to the snapshot; short-sessions, short-tunnels: their lifetime; forget: how long terminated instances are shown; boot: how long the fault lasts

	BootFault BootFault `json:"fault,omitempty"`   // boot
	Name      string    `json:"name,omitempty"`    // boot: Name tag, may hold * (path.Match); empty means every instance. key: its id, ARN or alias
	Package   string    `json:"package,omitempty"` // boot: of package-half-installed

	Instances    int    `json:"instances,omitempty"`     // capacity: how many may be up, launched before or after; 0 leaves no room
	InstanceType string `json:"instance_type,omitempty"` // capacity: may hold * (path.Match); empty means every type
	Zone         string `json:"zone,omitempty"`          // capacity: may hold * (path.Match); empty means every zone. zone: its name

	Code    string `json:"code,omitempty"`    // fail
	Message string `json:"message,omitempty"` // fail
	Status  int    `json:"status,omitempty"`  // fail: HTTP status, 400 when 0

	seen  int
	since time.Time
}

func (f *Fault) matches(action string) bool {
	if f.Action == "" {
		return true
	}
	ok, err := path.Match(f.Action, action)
	return err == nil && ok
}

func (f *Fault) validate() error {
	if _, err := path.Match(f.Action, ""); err != nil {
		return fmt.Errorf("action pattern %q: %w", f.Action, err)
	}
	switch f.Kind {
	case Throttle:
		if (f.Every > 0) == (f.Fraction > 0) || f.Fraction > 1 {
			return errors.New("a throttle fault needs either every (each Nth call) or fraction (0..1)")
		}
	case Eventual:
		if (f.Milliseconds > 0) == (f.Calls > 0) {
			return errors.New("an eventual fault needs either milliseconds or calls")
		}
	case Capacity:
		f.Action = cmp.Or(f.Action, "RunInstances")
		return f.validateCapacity()
	case SlowStart, SlowSnapshot, ShortSessions, ShortTunnels, Forget:
		if f.Seconds <= 0 {
			return fmt.Errorf("a %s fault needs seconds", f.Kind)
		}
	case Fail:
		if f.Code == "" {
			return errors.New("a fail fault needs a code")
		}
		if f.Status != 0 && (f.Status < 400 || f.Status > 599) {
			return fmt.Errorf("status %d is not an HTTP error status", f.Status)
		}
	case FreePlan:
		f.Action = cmp.Or(f.Action, "RunInstances")
	case ShortPages:
		if f.Items <= 0 {
			return errors.New("a short-pages fault needs items, of a page")
		}
	case Zone:
		return f.validateZone()
	case Key:
		return f.validateKey()
	case Boot:
		if err := f.validateBoot(); err != nil {
			return err
		}
	default:
		return fmt.Errorf("unknown kind of fault %q (throttle, eventual, capacity, slow-start, short-sessions, short-tunnels, short-pages, free-plan, forget, fail, boot, zone, key)", f.Kind)
	}
	if f.Count < 0 {
		return errors.New("count must not be negative")
	}
	return nil
}

// packageName matches names of Debian packages (Debian policy, section 5.6.1).
var packageName = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`)

func (f *Fault) validateBoot() error {
	if _, err := path.Match(f.Name, ""); err != nil {
		return fmt.Errorf("name pattern %q: %w", f.Name, err)
	}
	switch f.BootFault {
	case ListsLocked, DpkgLocked:
		if f.Seconds <= 0 {
			return fmt.Errorf("the fault %s needs seconds", f.BootFault)
		}
	case HalfInstalled:
		if !packageName.MatchString(f.Package) {
			return fmt.Errorf("the fault %s needs the name of a package, not %q", f.BootFault, f.Package)
		}
	case CloudInitHangs:
		if f.Seconds < 0 {
			return fmt.Errorf("the fault %s needs seconds, or none to last for ever", f.BootFault)
		}
	default:
		return fmt.Errorf("unknown fault %q of a boot: want %s, %s, %s or %s", f.BootFault, ListsLocked, DpkgLocked, HalfInstalled, CloudInitHangs)
	}
	return nil
}

// Injector holds the faults in force. It is safe for concurrent use.
type Injector struct {
	mu     sync.Mutex
	rng    *rand.Rand
	lastID int
	faults []*Fault
	hidden map[string]*hiding
}

type hiding struct {
	until time.Time
	calls int
}

// New returns an Injector without faults. seed determines its random choices.
func New(seed uint64) *Injector {
	in := &Injector{hidden: map[string]*hiding{}}
	in.Seed(seed)
	return in
}

// Seed restarts the random choices.
func (in *Injector) Seed(seed uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.rng = rand.New(rand.NewPCG(seed, seed))
}

// Add adds a fault and returns it with its id. now is the account's time.
func (in *Injector) Add(f Fault, now time.Time) (Fault, error) {
	if err := f.validate(); err != nil {
		return Fault{}, err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.lastID++
	f.ID, f.since = in.lastID, now
	in.faults = append(in.faults, &f)
	return f, nil
}

// List returns the faults in force, oldest first.
func (in *Injector) List() []Fault {
	in.mu.Lock()
	defer in.mu.Unlock()
	out := make([]Fault, 0, len(in.faults))
	for _, f := range in.faults {
		out = append(out, *f)
	}
	return out
}

// Remove removes one fault and reports whether it existed.
func (in *Injector) Remove(id int) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	n := len(in.faults)
	in.faults = slices.DeleteFunc(in.faults, func(f *Fault) bool { return f.ID == id })
	return len(in.faults) < n
}

// Clear removes every fault. Ids hidden by one become visible.
func (in *Injector) Clear() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.faults = nil
	clear(in.hidden)
}

// strike counts one effect of f, and removes f after its last.
func (in *Injector) strike(f *Fault) {
	if f.Count == 0 {
		return
	}
	if f.Count--; f.Count == 0 {
		in.faults = slices.DeleteFunc(in.faults, func(g *Fault) bool { return g == f })
	}
}

// Refuse returns the error to refuse a call with, or nil. throttled is the service's throttling
// error.
func (in *Injector) Refuse(action string, throttled *wire.Error) *wire.Error {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, f := range slices.Clone(in.faults) {
		if !f.matches(action) {
			continue
		}
		var refusal *wire.Error
		switch f.Kind {
		case Throttle:
			f.seen++
			if (f.Every > 0 && f.seen%f.Every == 0) || (f.Fraction > 0 && in.rng.Float64() < f.Fraction) {
				refusal = throttled
			}
		case Fail:
			refusal = &wire.Error{Code: f.Code, Message: cmp.Or(f.Message, "The request failed because of an injected fault."), Status: f.Status}
		}
		if refusal != nil {
			in.strike(f)
			return refusal
		}
	}
	return nil
}

// Created tells the injector the ids that an action made, so that an eventual fault can hide them.
func (in *Injector) Created(action string, ids []string, now time.Time) {
	if len(ids) == 0 {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, f := range slices.Clone(in.faults) {
		if f.Kind != Eventual || !f.matches(action) {
			continue
		}
		for _, id := range ids {
			in.hidden[id] = &hiding{until: now.Add(time.Duration(f.Milliseconds) * time.Millisecond), calls: f.Calls}
		}
		in.strike(f)
	}
}

// Hides reports whether an eventual fault is in force for an action.
func (in *Injector) Hides(action string) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.ContainsFunc(in.faults, func(f *Fault) bool { return f.Kind == Eventual && f.matches(action) })
}

// Hidden reports whether a lookup of id must fail, and counts the lookup.
func (in *Injector) Hidden(id string, now time.Time) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	h, ok := in.hidden[id]
	if !ok {
		return false
	}
	if h.calls > 0 {
		h.calls--
		return true
	}
	if now.Before(h.until) {
		return true
	}
	delete(in.hidden, id)
	return false
}

// StartDelay returns how much longer the launch of one instance takes.
func (in *Injector) StartDelay() time.Duration { return in.delay(SlowStart) }

// SnapshotDelay returns how much longer one snapshot takes.
func (in *Injector) SnapshotDelay() time.Duration { return in.delay(SlowSnapshot) }

func (in *Injector) delay(kind Kind) time.Duration {
	in.mu.Lock()
	defer in.mu.Unlock()
	var d time.Duration
	for _, f := range slices.Clone(in.faults) {
		if f.Kind == kind {
			d += time.Duration(f.Seconds * float64(time.Second))
			in.strike(f)
		}
	}
	return d
}

// SessionLifetime returns how long a session of STS lasts that was asked for a lifetime.
func (in *Injector) SessionLifetime(asked time.Duration) time.Duration {
	return in.lifetime(ShortSessions, asked)
}

// TunnelLifetime returns how long a tunnel lasts that was asked for a lifetime.
func (in *Injector) TunnelLifetime(asked time.Duration) time.Duration {
	return in.lifetime(ShortTunnels, asked)
}

func (in *Injector) lifetime(kind Kind, asked time.Duration) time.Duration {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, f := range slices.Clone(in.faults) {
		if f.Kind == kind {
			asked = min(asked, time.Duration(f.Seconds*float64(time.Second)))
			in.strike(f)
		}
	}
	return asked
}

// PageItems returns after how many items the pages of an action's answer end; 0 if nothing shortens them.
func (in *Injector) PageItems(action string) int {
	f, _ := in.struck(ShortPages, action)
	return f.Items
}

// OnFreePlan reports whether the account is of AWS's free plan, for an action.
func (in *Injector) OnFreePlan(action string) bool {
	_, found := in.struck(FreePlan, action)
	return found
}

// struck returns the first fault of a kind for an action, which takes effect now.
func (in *Injector) struck(kind Kind, action string) (Fault, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	i := slices.IndexFunc(in.faults, func(f *Fault) bool { return f.Kind == kind && f.matches(action) })
	if i < 0 {
		return Fault{}, false
	}
	f := in.faults[i]
	in.strike(f)
	return *f, true
}

// TerminatedVisible returns how long a terminated instance is shown that would be shown for d.
func (in *Injector) TerminatedVisible(d time.Duration) time.Duration {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, f := range in.faults {
		if f.Kind == Forget {
			d = min(d, time.Duration(f.Seconds*float64(time.Second)))
		}
	}
	return d
}
