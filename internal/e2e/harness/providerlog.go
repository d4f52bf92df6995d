package harness

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// providerLog is where the provider writes down what it does in all workspaces.
func (s *Suite) providerLog() string { return filepath.Join(s.Dir, "provider.log") }

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

// announced returns when the provider said that a write may be lost.
func (s *Suite) announced(t *testing.T) (times []time.Time) {
	t.Helper()
	b, err := os.ReadFile(s.providerLog())
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		if !strings.Contains(line, "a write under way may be lost") {
			continue
		}
		stamp, _, _ := strings.Cut(line, " ")
		at, err := time.Parse("2006-01-02T15:04:05.000Z0700", stamp)
		if err != nil {
			t.Errorf("the provider's log: %v", err)
			continue
		}
		times = append(times, at)
	}
	return times
}
