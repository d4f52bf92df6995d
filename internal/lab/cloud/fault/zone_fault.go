package fault

import (
	"errors"
	"time"
)

func (f *Fault) validateZone() error {
	switch {
	case f.Zone == "":
		return errors.New("a zone fault needs the name of a zone")
	case f.Action != "" || f.Count != 0:
		return errors.New("a zone fault has no action and no count: it lasts until it is cleared")
	}
	return nil
}

// ZoneCut returns since when a zone is cut off, and whether it is.
func (in *Injector) ZoneCut(zone string) (since time.Time, cut bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, f := range in.faults { // oldest first
		if f.Kind == Zone && f.Zone == zone {
			return f.since, true
		}
	}
	return time.Time{}, false
}
