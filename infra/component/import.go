package component

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/pelletier/go-toml/v2"
	"sigs.k8s.io/yaml"
)

// The Read methods of the specifications are the inverse of Etcd, ControlPlane, Worker and
// LoadBalancer: they read the settings of a role from what is on one machine. A setting is a
// difference from what this package writes without it, so a setting equal to the default is not
// found. Settings of the cluster and releases are read too. Each program's settings are read in the
// file that renders them.

// Traces are the files and programs on a machine from which a role's settings can be read.
type Traces struct {
	Files    []string // paths, and shell patterns
	Programs []string // paths of programs to ask for their release
}

// Found is what was read from one machine.
type Found struct {
	Files    map[string][]byte // contents by path
	Releases map[string]string // releases by path of the program, such as "1.36.4"
}

// NothingFoundError says that nothing of the role is on the machine.
type NothingFoundError struct{ Reason string }

func (e *NothingFoundError) Error() string { return e.Reason }

// release returns the release that a program reported, or a [NothingFoundError].
func (f Found) release(program string) (string, error) {
	if r := f.Releases[program]; r != "" {
		return r, nil
	}
	return "", &NothingFoundError{program + " is not on the machine, or does not report its release: is this the right host?"}
}

// args returns the flags of a unit; none if this package has not written it.
func (f Found) args(unitName string) Args { return argsOf(f.Files[unitPath(unitName)]) }

// argsBeyond returns the flags of a unit that are not among the standard ones, and without values
// the standard ones that the unit lacks.
func (f Found) argsBeyond(unitName string, standard Args) Args {
	out, found := Args{}, f.args(unitName)
	for name, v := range found {
		if !slices.Equal(v, standard[name]) {
			out[name] = v
		}
	}
	for name := range standard {
		if _, ok := found[name]; !ok && len(found) > 0 {
			out[name] = nil
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// yaml decodes a file; a missing one is empty.
func (f Found) yaml(path string, into any) error {
	if err := yaml.Unmarshal(f.Files[path], into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// toml is yaml for TOML.
func (f Found) toml(path string, into any) error {
	if err := toml.Unmarshal(f.Files[path], into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// yamlBeyond returns the fields of a file that differ from the standard ones.
func (f Found) yamlBeyond(path string, standard map[string]any) (map[string]any, error) {
	written, err := yamlFile(path, standard)
	if err != nil {
		return nil, err
	}
	var found, wanted map[string]any
	err = errors.Join(f.yaml(path, &found), Found{Files: map[string][]byte{path: written.Content}}.yaml(path, &wanted))
	return beyond(found, wanted), err
}

// beyond returns what must be merged over standard to get found; nil if they are equal.
func beyond(found, standard map[string]any) map[string]any {
	var out map[string]any
	for k, v := range found {
		below, isMap := v.(map[string]any)
		if was, ok := standard[k].(map[string]any); ok && isMap {
			if b := beyond(below, was); b != nil {
				v = b
			} else {
				continue
			}
		} else if reflect.DeepEqual(v, standard[k]) {
			continue
		}
		if out == nil {
			out = map[string]any{}
		}
		out[k] = v
	}
	return out
}
