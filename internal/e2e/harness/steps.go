package harness

import "testing"

// Steps returns a function that runs the steps of a test. Steps depend on one another: after a
// failed step no other one is run.
func Steps(t *testing.T) func(name string, run func(*testing.T)) {
	return func(name string, run func(*testing.T)) {
		t.Helper()
		if !t.Run(name, run) {
			t.FailNow()
		}
	}
}
