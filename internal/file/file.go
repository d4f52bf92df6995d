// Package file replaces whole files, and takes their names as people write them.
//
// It does not interpret their content and takes no locks: of two writers at the same time, the last
// one wins.
package file

import (
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
)

// AtHome returns a name with the home directory in place of a leading ~, as a shell does where nothing is quoted.
// It leaves the homes of others to the shell.
func AtHome(name, home string) string {
	if rest, ok := strings.CutPrefix(name, "~"); ok && home != "" && (rest == "" || rest[0] == '/') {
		return home + rest
	}
	return name
}

// Replace writes data to the named file and sets its mode to perm, whatever the mode was. A reader
// finds either the old content or the new, even after a power failure. The temporary file is in the
// same directory; its name is the file's with a dot before it and digits after it. Only a process
// that is killed leaves it behind. Errors are those of the os package.
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
