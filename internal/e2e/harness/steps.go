package harness

import "testing"

// Steps returns a function that runs the steps of a test, which depend on one
// another: the first that fails is the last.
func Steps(t *testing.T) func(name string, run func(*testing.T)) {
	return func(name string, run func(*testing.T)) {
		t.Helper()
		if !t.Run(name, run) {
			t.FailNow()
		}
	}
}
