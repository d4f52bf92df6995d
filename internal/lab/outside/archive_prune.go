package outside

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// abandoned is the age from which an unfinished download counts as left by a process that ended.
const abandoned = 2 * downloadTimeout

// used sets a file's access time, which the file system may not keep by itself.
func (a *Archive) used(f *os.File) {
	if info, err := f.Stat(); err == nil {
		_ = os.Chtimes(f.Name(), a.now(), info.ModTime()) // it may have been removed meanwhile
	}
}

// prune removes the least recently used files until the rest fits into the cache.
func (a *Archive) prune() {
	type cached struct {
		name string
		size int64
		used time.Time
	}
	var files []cached
	var total int64
	err := filepath.WalkDir(a.dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return ignoreGone(err)
		}
		info, err := entry.Info()
		if err != nil {
			return ignoreGone(err)
		}
		if strings.HasPrefix(entry.Name(), ".") {
			// Hidden files are the files that checkedFile names, and unfinished downloads. A
			// download gets upstream's modification time just before it is renamed.
			if !strings.HasSuffix(entry.Name(), checkedSuffix) && a.now().Sub(accessed(info)) > abandoned {
				_ = os.Remove(name)
			}
			return nil
		}
		files = append(files, cached{name, info.Size(), accessed(info)})
		total += info.Size()
		return nil
	})
	if err != nil {
		a.log.Warn("the archive's cache could not be listed", "error", err)
	}
	slices.SortFunc(files, func(f, g cached) int { return f.used.Compare(g.used) })
	for _, f := range files {
		if total <= a.capacity {
			return
		}
		if err := os.Remove(f.name); ignoreGone(err) != nil {
			a.log.Warn("the archive's cache could not be made smaller", "error", err)
			return
		}
		total -= f.size
	}
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another process prunes, too
	}
	return err
}

func accessed(info fs.FileInfo) time.Time {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(stat.Atim.Unix())
	}
	return info.ModTime()
}
