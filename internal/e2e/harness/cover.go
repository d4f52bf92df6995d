package harness

import (
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// coverVariable names the directory in which programs leave what they executed, if they were built
// to do so. make soak sets it.
const coverVariable = "GOCOVERDIR"

// shared returns the directory in which suites share the programs. Those that leave what they executed
// do not stay in the repository's bin/.
func (s *Suite) shared() string {
	if dir := os.Getenv(coverVariable); dir != "" {
		return filepath.Join(dir, "bin")
	}
	return filepath.Join(s.Root, "bin")
}

// coverEnv returns the variable for programs that do not inherit it.
func coverEnv() []string {
	if dir := os.Getenv(coverVariable); dir != "" {
		return []string{coverVariable + "=" + dir}
	}
	return nil
}

// CollectCover copies what programs on a machine left in a directory there.
func (c *Cluster) CollectCover(t *testing.T, machine, dir string) {
	t.Helper()
	to := os.Getenv(coverVariable)
	if to == "" {
		return
	}
	packed := c.Sh(t, machine, "tar -C "+dir+" -cz . | base64")
	tar := exec.CommandContext(t.Context(), "tar", "-C", to, "-xz")
	tar.Stdin = base64.NewDecoder(base64.StdEncoding, strings.NewReader(packed))
	if out, err := tar.CombinedOutput(); err != nil {
		t.Errorf("tar: %v\n%s", err, out)
	}
}
