package outside

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Effect is what an Archive does instead of serving a file.
type Effect string

// The effects of a fault.
const (
	// Stall accepts the request and sends nothing until the client gives up.
	Stall Effect = "stall"
	// Unavailable answers 503 Service Unavailable.
	Unavailable Effect = "unavailable"
)

// Fault makes an Archive misbehave.
type Fault struct {
	Effect Effect `json:"fault"`
	// Count is how many more requests it affects; 0 means all until it is cleared.
	Count int `json:"count,omitempty"`
	// Source is the only address whose requests it affects; zero means every address.
	Source netip.Addr `json:"source,omitzero"`
}

func (f Fault) validate() error {
	if f.Effect != Stall && f.Effect != Unavailable {
		return fmt.Errorf("unknown fault %q of the archive: want %s or %s", f.Effect, Stall, Unavailable)
	}
	if f.Count < 0 {
		return errors.New("count must not be negative")
	}
	return nil
}

// AddFault adds a fault. It fails on an invalid one.
func (a *Archive) AddFault(f Fault) error {
	if err := f.validate(); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.faults = append(a.faults, f)
	return nil
}

// Faults returns the faults in force, oldest first.
func (a *Archive) Faults() []Fault {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.faults)
}

// ClearFaults removes all faults. Requests that stall already continue to stall.
func (a *Archive) ClearFaults() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.faults = nil
}

// effect returns the effect on a request, empty for none, and counts the request.
func (a *Archive) effect(source netip.Addr) Effect {
	a.mu.Lock()
	defer a.mu.Unlock()
	for n, f := range a.faults {
		if f.Source.IsValid() && f.Source != source {
			continue
		}
		if f.Count > 0 {
			if a.faults[n].Count--; f.Count == 1 {
				a.faults = slices.Delete(a.faults, n, n+1)
			}
		}
		return f.Effect
	}
	return ""
}
