package fault

import (
	"errors"
	"fmt"
	"path"
	"slices"
)

func (f *Fault) validateCapacity() error {
	for _, pattern := range []string{f.InstanceType, f.Zone} {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("pattern %q: %w", pattern, err)
		}
	}
	switch {
	case f.Instances < 0:
		return errors.New("instances must not be negative")
	case f.Count < 0:
		return errors.New("count must not be negative")
	}
	return nil
}

// Room returns how many of the wanted instances of a type may be started in a zone by an action: at
// least least of them, or none. up returns the number of instances that are up, of the types and zones
// that match accepts.
func (in *Injector) Room(action, instanceType, zone string, least, wanted int, up func(match func(instanceType, zone string) bool) int) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, f := range slices.Clone(in.faults) {
		if f.Kind == Zone && f.Zone == zone {
			return 0
		}
		if f.Kind != Capacity || !f.matches(action) || !f.covers(instanceType, zone) {
			continue
		}
		free := max(0, f.Instances-up(f.covers))
		if free < wanted {
			in.strike(f)
		}
		if free < least {
			return 0
		}
		wanted = min(wanted, free)
	}
	return wanted
}

// covers reports whether a capacity fault is about a type in a zone.
func (f *Fault) covers(instanceType, zone string) bool {
	for _, p := range []struct{ pattern, value string }{{f.InstanceType, instanceType}, {f.Zone, zone}} {
		if ok, _ := path.Match(p.pattern, p.value); p.pattern != "" && !ok {
			return false
		}
	}
	return true
}
