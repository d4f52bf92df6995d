package fault

import "errors"

func (f *Fault) validateKey() error {
	switch {
	case f.Name == "":
		return errors.New("a key fault needs the name of a key: its id, ARN or alias")
	case f.Action != "" || f.Count != 0:
		return errors.New("a key fault has no action and no count: it lasts until it is cleared")
	}
	return nil
}

// UnusableKeys returns the names of the KMS keys that cannot be used.
func (in *Injector) UnusableKeys() (names []string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, f := range in.faults {
		if f.Kind == Key {
			names = append(names, f.Name)
		}
	}
	return names
}
