// Package cache manages the directory that all labs of a computer share. It locks its parts,
// records which lab uses which directories, and removes directories that a later version has
// superseded and no lab uses.
//
// It does not know what the directories hold or how they are made, and imports no other package of
// the lab.
package cache

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
)

// DefaultDir returns the default cache: $K8S_LAB_CACHE, or k8s-lab in the user's cache directory,
// or /var/cache/k8s-lab for a process without a home directory.
func DefaultDir() string {
	if dir := os.Getenv("K8S_LAB_CACHE"); dir != "" {
		return dir
	}
	if dir, err := os.UserCacheDir(); err == nil {
		return filepath.Join(dir, "k8s-lab")
	}
	return "/var/cache/k8s-lab"
}

// usersDir holds one file for each lab that uses the cache.
const usersDir = "labs"

// user is the content of one file in usersDir.
type user struct {
	StateDir string   `json:"state_dir"`
	Dirs     []string `json:"dirs"`
}

// Use records that the lab in stateDir uses directories of the cache, in addition to those recorded
// before. They need not exist yet. It waits for a running Prune.
func Use(cacheDir, stateDir string, dirs ...string) error {
	return locked(cacheDir, func() error {
		name := userFile(cacheDir, stateDir)
		u, err := readUser(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		u.StateDir = stateDir
		u.Dirs = append(u.Dirs, dirs...)
		slices.Sort(u.Dirs)
		u.Dirs = slices.Compact(u.Dirs)
		raw, err := json.Marshal(u)
		if err != nil {
			return err
		}
		return file.Replace(name, raw, 0o644)
	})
}

// Release records that there is no lab in stateDir any more.
func Release(cacheDir, stateDir string) error {
	err := os.Remove(userFile(cacheDir, stateDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Prune calls remove with every directory that a lab uses. Until remove returns, Use waits. A lab
// whose state directory is gone uses nothing.
func Prune(cacheDir string, remove func(used []string) error) error {
	return locked(cacheDir, func() error {
		files, err := filepath.Glob(filepath.Join(cacheDir, usersDir, "*.json"))
		if err != nil {
			return err
		}
		var used []string
		for _, name := range files {
			u, err := readUser(name)
			if err != nil {
				return err
			}
			if _, err := os.Stat(u.StateDir); errors.Is(err, fs.ErrNotExist) {
				if err := os.Remove(name); err != nil {
					return err
				}
				continue
			}
			used = append(used, u.Dirs...)
		}
		return remove(used)
	})
}

// Sweep removes the directories in dir and returns the removed ones. It spares a directory if a
// path in keep leads to it or to something in it. It renames a directory before it removes it, so
// that an interrupted Sweep leaves no directory that looks complete; the next Sweep removes the
// rest. Hidden directories count as unfinished and are removed too. The caller keeps others from
// adding to dir.
func Sweep(dir string, keep []string) (removed []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var kept []fs.FileInfo
	for _, path := range keep {
		for at := path; ; at = filepath.Dir(at) {
			if info, err := os.Stat(at); err == nil {
				kept = append(kept, info)
			}
			if at == filepath.Dir(at) {
				break
			}
		}
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := os.Lstat(path)
		if err != nil {
			return removed, err
		}
		if !info.IsDir() || slices.ContainsFunc(kept, func(k fs.FileInfo) bool { return os.SameFile(k, info) }) {
			continue
		}
		doomed := path
		if !strings.HasPrefix(e.Name(), ".") {
			doomed = filepath.Join(dir, "."+e.Name()+".superseded")
			if err := os.Rename(path, doomed); err != nil {
				return removed, err
			}
			removed = append(removed, path)
		}
		if err := os.RemoveAll(doomed); err != nil {
			return removed, err
		}
	}
	return removed, nil
}

func userFile(cacheDir, stateDir string) string {
	sum := sha256.Sum256([]byte(stateDir))
	return filepath.Join(cacheDir, usersDir, hex.EncodeToString(sum[:8])+".json")
}

func readUser(name string) (user, error) {
	var u user
	raw, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(raw, &u)
	}
	if err != nil {
		return user{}, fmt.Errorf("who uses the cache: %w", err)
	}
	return u, nil
}

// locked runs f while it holds the lock of the users' directory. This is not the lock that is held
// for minutes while the cache is filled.
func locked(cacheDir string, f func() error) error {
	dir := filepath.Join(cacheDir, usersDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	l := newLock(filepath.Join(dir, ".lock"))
	if err := l.Lock(); err != nil {
		return fmt.Errorf("locking %s: %w", l.Path(), err)
	}
	defer l.Unlock() //nolint:errcheck // the end of the process unlocks, too
	return f()
}
