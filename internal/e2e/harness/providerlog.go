package harness

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

func (s *Suite) providerLog() string { return filepath.Join(s.Dir, "provider.log") }

// KeepLog has the provider write down, for Logged, what it does in a workspace.
func (s *Suite) KeepLog(ws *workspace.Workspace) {
	ws.Env = append(ws.Env, "TF_LOG_PROVIDER=INFO", "TF_LOG_PATH="+s.providerLog())
}

// Logged tells whether the provider has said this about a machine.
func (s *Suite) Logged(t *testing.T, machine, message string) bool {
	t.Helper()
	b, err := os.ReadFile(s.providerLog())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, message) && strings.Contains(line, "machine="+machine+" ") {
			return true
		}
	}
	return false
}
