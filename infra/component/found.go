package component

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/pelletier/go-toml/v2"
	"sigs.k8s.io/yaml"
)

// The Read methods of the specifications are the opposite of Etcd, ControlPlane,
// Worker and LoadBalancer: they tell, from what is on one machine, the settings it
// was made with. A setting is what differs from what this package writes without
// it, so a setting that says what is so anyway leaves no trace. What a
// specification does not say of the cluster and of releases is read too. Each
// program's settings are read beside where they are written.

// Traces are where on a machine the settings of a role can be read.
type Traces struct {
	Files    []string // paths, and patterns of the shell
	Programs []string // paths of programs that are asked for their release
}

// Found is what was read of one machine.
type Found struct {
	Files    map[string][]byte // contents by path
	Releases map[string]string // releases by path of the program, such as "1.36.4"
}

// NothingFoundError says that a machine has nothing of the role that is read.
type NothingFoundError struct{ Reason string }

func (e *NothingFoundError) Error() string { return e.Reason }

// release returns what a program tells of itself, or else a [NothingFoundError].
func (f Found) release(program string) (string, error) {
	if r := f.Releases[program]; r != "" {
		return r, nil
	}
	return "", &NothingFoundError{program + " is not on the machine, or does not tell its release: is this the right host?"}
}

// args returns the flags of a unit; none when it is not one of this package's.
func (f Found) args(unitName string) Args { return argsOf(f.Files[unitPath(unitName)]) }

// argsBeyond returns the flags of a unit that it does not have by itself.
func (f Found) argsBeyond(unitName string, standard Args) Args {
	var out Args
	for name, v := range f.args(unitName) {
		if slices.Equal(v, standard[name]) {
			continue
		}
		if out == nil {
			out = Args{}
		}
		out[name] = v
	}
	return out
}

// yaml reads a file into a value; one that is not there is empty.
func (f Found) yaml(path string, into any) error {
	if err := yaml.Unmarshal(f.Files[path], into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// toml is yaml for the other format.
func (f Found) toml(path string, into any) error {
	if err := toml.Unmarshal(f.Files[path], into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// yamlBeyond returns the fields of a file that it does not have by itself.
func (f Found) yamlBeyond(path string, standard map[string]any) (map[string]any, error) {
	written, err := yamlFile(path, standard)
	if err != nil {
		return nil, err
	}
	var found, wanted map[string]any
	err = errors.Join(f.yaml(path, &found), Found{Files: map[string][]byte{path: written.Content}}.yaml(path, &wanted))
	return beyond(found, wanted), err
}

// beyond returns what must be merged over standard to get found; nil when they
// are the same.
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
