package harness

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// providerLog is the provider's log of all workspaces.
func (s *Suite) providerLog() string { return filepath.Join(s.Dir, "provider.log") }

// ProviderLog returns the path of the provider's log.
func (s *Suite) ProviderLog() string { return s.providerLog() }

// said returns the lines of the provider's log that contain all these words.
func (s *Suite) said(t *testing.T, words ...string) (lines []string) {
	t.Helper()
	b, err := os.ReadFile(s.providerLog())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	for line := range strings.Lines(string(b)) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			lines = append(lines, line)
		}
	}
	return lines
}

// Logged reports whether the provider has logged a message about a machine.
func (s *Suite) Logged(t *testing.T, machine, message string) bool {
	t.Helper()
	return len(s.said(t, message, "machine="+machine+" ")) > 0
}

// Order returns which machines the provider has logged this about, in the order in which it did.
func (s *Suite) Order(t *testing.T, message string) (machines []string) {
	t.Helper()
	for _, line := range s.said(t, message, "machine=") {
		_, rest, _ := strings.Cut(line, "machine=")
		machines = append(machines, strings.Fields(rest)[0])
	}
	return machines
}

// announced returns the times at which the provider logged that a write may be lost.
func (s *Suite) announced(t *testing.T) (times []time.Time) {
	t.Helper()
	for _, line := range s.said(t, "a write in progress may be lost") {
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
