package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Resource is one resource in the state.
type Resource struct {
	Address string // such as module.cluster.k8s_machine.worker[0]
	Type    string
	Values  json.RawMessage
}

// Resources returns all resources in the state of the selected workspace, those of modules too, without deposed ones. It reads
// the state's file, which is much faster than a CLI that asks the provider for its schemas first.
func (c *Cluster) Resources(t *testing.T) []Resource {
	t.Helper()
	file := "terraform.tfstate"
	if selected, err := os.ReadFile(filepath.Join(c.WS.Dir, ".terraform", "environment")); err == nil && string(selected) != "default" {
		file = filepath.Join("terraform.tfstate.d", string(selected), file)
	}
	raw, err := os.ReadFile(filepath.Join(c.WS.Dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // nothing was applied yet
	}
	if err != nil {
		t.Fatal(err)
	}
	var state struct {
		Version   int
		Resources []struct {
			Module, Mode, Type, Name string
			Instances                []struct {
				Key        json.RawMessage `json:"index_key"`
				Deposed    string
				Attributes json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(raw, &state); err != nil || state.Version != 4 {
		t.Fatalf("a state of version %d: %v", state.Version, err)
	}
	var all []Resource
	for _, r := range state.Resources {
		address := r.Type + "." + r.Name
		if r.Mode == "data" {
			address = "data." + address
		}
		if r.Module != "" {
			address = r.Module + "." + address
		}
		for _, i := range r.Instances {
			one := Resource{Address: address, Type: r.Type, Values: i.Attributes}
			if len(i.Key) > 0 {
				one.Address = fmt.Sprintf("%s[%s]", address, i.Key)
			}
			if i.Deposed == "" {
				all = append(all, one)
			}
		}
	}
	return all
}
