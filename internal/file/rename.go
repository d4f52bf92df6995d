package file

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Rename is [os.Rename] of a file, or of a directory with all that is in it, that others are to find
// whole, even after a power failure. Everything on its file system is written to the disk before, and the new
// name afterwards.
func Rename(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	err = unix.Syncfs(int(f.Fd()))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s to the disk: %w", from, err)
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(to))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
