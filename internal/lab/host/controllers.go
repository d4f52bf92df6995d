package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// enableControllers enables all controllers of control groups below the root group, since machines want all,
// and records which it enabled. On a host with cgroup v1 only there is nothing to do.
func (h Host) enableControllers(c *Changes) error {
	for _, root := range h.groups {
		available, err := words(filepath.Join(root, "cgroup.controllers"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		path := filepath.Join(root, "cgroup.subtree_control")
		before, err := words(path)
		if err != nil {
			return err
		}
		for _, name := range available {
			if slices.Contains(before, name) {
				continue
			}
			// A controller may be unavailable (cpu, if there are real-time processes).
			if os.WriteFile(path, []byte("+"+name), 0o644) == nil {
				c.Controllers = append(c.Controllers, Controller{path, name})
			}
		}
	}
	return nil
}

// disableControllers disables controllers. The kernel refuses to disable a controller that another
// program's group has enabled for its own children, so such a controller stays. Limits that other
// programs have set meanwhile on groups directly below the root group are lost.
func disableControllers(enabled []Controller) {
	for _, c := range enabled {
		_ = os.WriteFile(c.Path, []byte("-"+c.Name), 0o644)
	}
}

func words(path string) ([]string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("control groups of the host: %w", err)
	}
	return strings.Fields(string(raw)), nil
}
