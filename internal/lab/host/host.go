// Package host changes the settings of the host that machines need, for as long as a lab needs them, and
// writes names that lead into a lab to the file hosts.
//
// It records what it changed, and which labs need it, in one file below /run: a reboot of the host
// ends labs, settings and record together. Labs that start and end at the same time take turns. The
// last one puts the settings back. Kernel modules stay loaded, because nobody can tell who else uses
// them by then; the record lists them.
package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cache"
)

// Changes are what labs changed on the host.
type Changes struct {
	// Labs are the state directories of the labs that need the settings.
	Labs []string `json:"labs"`
	// Settings are put back when the last of the labs ends.
	Settings []Setting `json:"settings"`
	// Controllers of control groups that were enabled below the root group (cgroup v2). They are disabled when
	// the last of the labs ends.
	Controllers []Controller `json:"controllers"`
	// Modules are the kernel modules that a lab loaded. They stay.
	Modules []string `json:"modules"`
}

// Setting is a numeric setting of the kernel that was raised.
type Setting struct {
	Path   string `json:"path"` // such as /proc/sys/fs/inotify/max_user_instances
	Before int    `json:"before"`
	Now    int    `json:"now"`
}

// Controller is a controller of control groups that was enabled.
type Controller struct {
	Path string `json:"path"` // such as /sys/fs/cgroup/cgroup.subtree_control
	Name string `json:"name"` // such as hugetlb
}

// Host is the host's settings and the record of what was changed.
type Host struct {
	dir    string         // of record and lock
	hosts  string         // the file hosts
	raised map[string]int // the least value of each setting, by path
	groups []string       // where the root group of cgroup v2 may be
}

const (
	recordFile = "host.json"
	lockFile   = "host.lock"
	// patience bounds the wait for the lock, which is held for milliseconds.
	patience = 30 * time.Second
	retry    = 5 * time.Millisecond
)

// This is the host on which the process runs.
//
// The kernel counts inotify instances per user, not per machine: root on every machine of every lab
// shares one limit, 128 by default. A worker's containerd, kubelet and pods take a dozen, and
// without one containerd starts without its CRI service.
func This() Host {
	return Host{
		dir: "/run/k8s-lab-host", hosts: "/etc/hosts", raised: map[string]int{"/proc/sys/fs/inotify/max_user_instances": 8192},
		groups: []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"},
	}
}

// Use raises the settings for the lab in a state directory, which exists, and records the kernel
// modules that were loaded for it. It may be called again.
func (h Host) Use(ctx context.Context, lab string, modules []string) error {
	return h.locked(ctx, func(c *Changes) error {
		for path, wanted := range h.raised {
			now, err := read(path)
			if err != nil {
				return err
			}
			if now >= wanted {
				continue
			}
			if at := slices.IndexFunc(c.Settings, func(s Setting) bool { return s.Path == path }); at < 0 {
				c.Settings = append(c.Settings, Setting{Path: path, Before: now, Now: wanted})
			}
			if err := os.WriteFile(path, []byte(strconv.Itoa(wanted)), 0o644); err != nil {
				return fmt.Errorf("raising %s from %d to %d, which the machines need: %w", path, now, wanted, err)
			}
		}
		if err := h.enableControllers(c); err != nil {
			return err
		}
		if !slices.Contains(c.Labs, lab) {
			c.Labs = append(c.Labs, lab)
		}
		for _, m := range modules {
			if !slices.Contains(c.Modules, m) {
				c.Modules = append(c.Modules, m)
			}
		}
		return nil
	})
}

// Release says that a lab needs nothing any more. The last lab puts the settings back.
func (h Host) Release(ctx context.Context, lab string) error {
	return h.locked(ctx, func(c *Changes) error {
		if err := h.putNames(lab, nil); err != nil {
			return err
		}
		c.Labs = slices.DeleteFunc(c.Labs, func(l string) bool { return l == lab })
		if len(c.Labs) > 0 {
			return nil
		}
		for _, s := range c.Settings {
			now, err := read(s.Path)
			if err != nil {
				return err
			}
			if now != s.Now {
				continue // somebody else has set it since
			}
			if err := os.WriteFile(s.Path, []byte(strconv.Itoa(s.Before)), 0o644); err != nil {
				return fmt.Errorf("putting back %s: %w", s.Path, err)
			}
		}
		disableControllers(c.Controllers)
		c.Settings, c.Controllers = nil, nil
		return nil
	})
}

// Turn lets one process at a time start or stop the lab in a state directory, which need not exist.
// It waits for its turn, and calls waiting with the id of the process that has the turn. The turn
// ends when end is called, or when this process ends.
func (h Host) Turn(ctx context.Context, lab string, waiting func(pid string)) (end func(), err error) {
	if err := os.MkdirAll(h.dir, 0o755); err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(lab))
	return cache.Lock(ctx, filepath.Join(h.dir, hex.EncodeToString(sum[:8])+".lock"), waiting)
}

// Changes returns what labs changed on the host and did not put back yet.
func (h Host) Changes() (Changes, error) {
	var c Changes
	if err := file.ReadJSON(filepath.Join(h.dir, recordFile), &c); err != nil {
		return c, fmt.Errorf("reading what labs changed on this host: %w", err)
	}
	return c, nil
}

// locked calls change with the record while no other process uses it. First it drops labs whose
// state directory is gone. It saves the record even after an error.
func (h Host) locked(ctx context.Context, change func(*Changes) error) error {
	if err := os.MkdirAll(h.dir, 0o755); err != nil {
		return fmt.Errorf("record of changes to this host: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	lock := flock.New(filepath.Join(h.dir, lockFile))
	if _, err := lock.TryLockContext(ctx, retry); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Path(), err)
	}
	defer lock.Unlock() //nolint:errcheck // the end of the process unlocks, too
	c, err := h.Changes()
	if err != nil {
		return err
	}
	c.Labs = slices.DeleteFunc(c.Labs, func(dir string) bool {
		_, err := os.Stat(dir)
		return errors.Is(err, fs.ErrNotExist)
	})
	err = change(&c)
	if saved := file.WriteJSON(filepath.Join(h.dir, recordFile), c, 0o644); saved != nil {
		err = errors.Join(err, fmt.Errorf("recording what was changed on this host: %w", saved))
	}
	return err
}

func read(path string) (int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("reading a setting of the host: %w", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, fmt.Errorf("reading a setting of the host, %s: %w", path, err)
	}
	return n, nil
}
