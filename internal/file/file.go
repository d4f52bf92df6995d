// Package file replaces files as a whole.
//
// It knows nothing of what is in them, and takes no locks: of two writers at the same time, the
// last one wins.
package file

import (
	"io/fs"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Replace writes data to the named file, which has mode perm afterwards, whatever its mode was. A
// reader finds either the old content or the new, also after a loss of power. The temporary file
// lies in the same directory, under the file's name with a dot before it and digits behind it; only
// a process that is killed leaves it there. Errors are those of the os package.
func Replace(name string, data []byte, perm fs.FileMode) error {
	f, err := renameio.NewPendingFile(name, renameio.WithTempDir(filepath.Dir(name)), renameio.WithStaticPermissions(perm))
	if err != nil {
		return err
	}
	defer f.Cleanup() //nolint:errcheck // after a failure, which is returned
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}
