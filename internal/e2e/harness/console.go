package harness

import (
	"context"
	"fmt"
	"testing"
)

// Console runs a script as root on a machine as from its console, without the network, and fails
// the test on an error. The output combines both streams.
func (s *Suite) Console(t *testing.T, machine, script string) string {
	t.Helper()
	out, err := s.TryConsole(t.Context(), machine, script)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TryConsole is Console, but returns the error, which names the machine and ends with the output.
func (s *Suite) TryConsole(ctx context.Context, machine, script string) (string, error) {
	out, err := s.Lab(ctx, "exec", machine, "--", "sh", "-c", script)
	if err != nil {
		return out, fmt.Errorf("%s: %w\n%s\n%s", machine, err, script, out)
	}
	return out, nil
}
