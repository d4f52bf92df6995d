package harness

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

// Mortal is a provider that can be made to die at a command on a machine.
type Mortal struct{ dir string }

// Mortal builds such a provider. Workspaces created from now on use it.
func (s *Suite) Mortal(t *testing.T) *Mortal {
	t.Helper()
	s.provider = filepath.Join(s.Bin, "mortal")
	if err := workspace.Build(t.Context(), s.Root, s.Bin, "./internal/e2e/mortal"); err != nil {
		t.Fatal(err)
	}
	return &Mortal{t.TempDir()}
}

// Use makes a workspace's provider count its commands.
func (m *Mortal) Use(ws *workspace.Workspace) { ws.Env = append(ws.Env, "K8S_E2E_MORTAL="+m.dir) }

// DieAt starts a new count and lets the provider die before or after its n-th command, counted from
// 1. With 0 it lives.
func (m *Mortal) DieAt(t *testing.T, n int, when string) {
	t.Helper()
	if err := os.Remove(filepath.Join(m.dir, "commands")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.dir, "die"), fmt.Appendf(nil, "%d %s", n, when), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Commands returns the commands of the present count: "controller-0 stop".
func (m *Mortal) Commands(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(m.dir, "commands"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.FieldsFunc(string(b), func(r rune) bool { return r == '\n' })
}
