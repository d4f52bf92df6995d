package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupParent is the control group, in every hierarchy, above those of all labs.
const cgroupParent = "k8s-lab"

// A hierarchy is one mounted tree of control groups. A cgroup v2 host has one, a v1 host one for
// each controller, and a hybrid host both kinds.
type hierarchy struct {
	mount string
	v2    bool
}

// hierarchies lists the mounted hierarchies, from /proc/self/mountinfo (proc(5)).
func hierarchies() ([]hierarchy, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var found []hierarchy
	for line := range strings.Lines(string(mounts)) {
		mount, rest, ok := strings.Cut(line, " - ")
		if !ok {
			continue
		}
		kind, _, _ := strings.Cut(rest, " ")
		fields := strings.Fields(mount)
		if kind != "cgroup" && kind != "cgroup2" || len(fields) < 5 {
			continue
		}
		h := hierarchy{mount: fields[4], v2: kind == "cgroup2"}
		if !slices.Contains(found, h) {
			found = append(found, h)
		}
	}
	if len(found) == 0 {
		return nil, errors.New("no control group hierarchy is mounted")
	}
	return found, nil
}

// create makes the group at the relative path, ready to hold processes. On v2 every controller of
// the root is available in it.
func (h hierarchy) create(path string) error {
	dir := h.mount
	for _, name := range strings.Split(path, "/") {
		if h.v2 {
			if err := delegate(dir); err != nil {
				return err
			}
		}
		parent := dir
		dir = filepath.Join(dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if h.v2 {
			continue
		}
		// A v1 cpuset group accepts no process until these are set.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(parent, file))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, file), value, 0)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// delegate makes the controllers of a v2 group available to its child groups.
func delegate(dir string) error {
	controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, c := range strings.Fields(string(controllers)) {
		// A controller may be unavailable (cpu, if there are real-time processes). The others are
		// enabled one by one.
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0)
	}
	return nil
}

// cgroups is one control group and all below it, in every hierarchy.
type cgroups struct {
	in   []hierarchy
	path string
}

func (g cgroups) dirs() []string {
	dirs := make([]string, len(g.in))
	for i, h := range g.in {
		dirs[i] = filepath.Join(h.mount, g.path)
	}
	return dirs
}

// below returns the groups of that name below g.
func (g cgroups) below(name string) cgroups { return cgroups{in: g.in, path: g.path + "/" + name} }

func (g cgroups) create() error {
	for _, h := range g.in {
		if err := h.create(g.path); err != nil {
			return fmt.Errorf("control group: %w", err)
		}
	}
	return nil
}

// destroy kills every process in the groups and removes them with all groups below. It returns when
// none is left, or when ctx ends.
func (g cgroups) destroy(ctx context.Context) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		var last error
		for _, dir := range g.dirs() {
			if err := removeGroup(dir); err != nil {
				last = err
				killGroup(dir)
			}
		}
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("control group: %w (%w)", last, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// remaining lists the groups that exist.
func (g cgroups) remaining() []string {
	return slices.DeleteFunc(g.dirs(), func(dir string) bool {
		_, err := os.Stat(dir)
		return errors.Is(err, fs.ErrNotExist)
	})
}

// walkGroups calls f for dir and each group below it, with the IDs of the processes that are in the group itself.
func walkGroups(dir string, f func(path string, pids []string)) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // the group has been removed
		}
		pids, _ := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		f(path, strings.Fields(string(pids)))
		return nil
	})
}

// killGroup sends SIGKILL to every process in and below dir, frozen ones included.
func killGroup(dir string) {
	if os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0) == nil {
		return
	}
	walkGroups(dir, func(path string, pids []string) {
		for _, field := range pids {
			if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		// Only the freezer hierarchy has this file. A frozen process dies when it is thawed.
		if f, err := os.OpenFile(filepath.Join(path, "freezer.state"), os.O_WRONLY, 0); err == nil {
			_, _ = f.WriteString("THAWED")
			_ = f.Close()
		}
	})
}

// removeGroup removes dir and the groups below it, deepest first.
func removeGroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeGroup(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	// os.Remove would return the error of its second attempt, unlink.
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	return nil
}

// freezers have the files that let the processes of a group stand still, and where the kernel says that they do: one
// for v2, and one for v1's freezer hierarchy (Documentation/admin-guide/cgroup-v2.rst and
// cgroup-v1/freezer-subsystem.rst).
var freezers = []struct{ file, freeze, thaw, state, frozen string }{
	{"cgroup.freeze", "1", "0", "cgroup.events", "frozen 1"},
	{"freezer.state", "FROZEN", "THAWED", "freezer.state", "FROZEN"},
}

// freezeTimeout bounds the wait until processes stand still, which takes milliseconds on an idle host. A process
// that waits for a disk stands still only once the disk has answered.
const freezeTimeout = time.Minute

// still calls f while no process of the groups runs.
func (g cgroups) still(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, freezeTimeout, errors.New("its processes do not stand still"))
	defer cancel()
	defer g.thaw()
	for _, dir := range g.dirs() {
		for _, z := range freezers {
			if !exists(filepath.Join(dir, z.file)) {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, z.file), []byte(z.freeze), 0); err != nil {
				return err
			}
			for {
				state, err := os.ReadFile(filepath.Join(dir, z.state))
				if err != nil {
					return err
				}
				if strings.Contains(string(state), z.frozen) {
					return f()
				}
				select {
				case <-ctx.Done():
					return fmt.Errorf("%w: %s", context.Cause(ctx), unfrozen(dir))
				case <-time.After(time.Millisecond):
				}
			}
		}
	}
	return errors.New("the host has no freezer of control groups")
}

// unfrozen names the processes of a group and its children that the freezer does not hold, each with the kernel's
// function in which it waits. A process that waited for something else when it was stopped may be among them.
func unfrozen(dir string) string {
	var out []string
	walkGroups(dir, func(_ string, pids []string) {
		for _, pid := range pids {
			name, _ := os.ReadFile(filepath.Join("/proc", pid, "comm"))
			if where, _ := os.ReadFile(filepath.Join("/proc", pid, "wchan")); !strings.Contains(string(where), "refrigerator") && !strings.Contains(string(where), "freez") {
				out = append(out, fmt.Sprintf("%s (%s, %s)", strings.TrimSpace(string(name)), pid, where))
			}
		}
	})
	return strings.Join(out, ", ")
}

// thaw lets the processes of the groups run.
func (g cgroups) thaw() {
	for _, dir := range g.dirs() {
		for _, z := range freezers {
			if name := filepath.Join(dir, z.file); exists(name) {
				_ = os.WriteFile(name, []byte(z.thaw), 0) // the group has ended if it fails
			}
		}
	}
}
