package harness

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

const clockOffset = "K8S_E2E_CLOCK_OFFSET="

// MovableClock builds a provider whose clock can be moved. Workspaces created from now on use it.
func (s *Suite) MovableClock(t *testing.T) {
	t.Helper()
	s.provider = filepath.Join(s.Bin, "movedclock")
	if err := workspace.Build(t.Context(), s.Root, s.Bin, "./internal/e2e/movedclock"); err != nil {
		t.Fatal(err)
	}
}

// MoveClock moves the clock of a workspace's provider, see MovableClock. The machines' clocks stay
// right.
func MoveClock(ws *workspace.Workspace, offset time.Duration) {
	ws.Env = append(slices.DeleteFunc(slices.Clone(ws.Env), func(kv string) bool { return strings.HasPrefix(kv, clockOffset) }),
		clockOffset+offset.String())
}
