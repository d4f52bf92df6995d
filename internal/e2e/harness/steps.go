package harness

import (
	"os"
	"testing"
)

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

// Long skips a test, or a step on which no other one depends, for which make test has no room. make soak
// runs it, in the parts that set K8S_E2E_LONG=1.
func Long(t *testing.T) {
	t.Helper()
	if !WithLong() {
		t.Skip("make soak runs it")
	}
}

// WithLong says whether the tests run that Long skips.
func WithLong() bool { return os.Getenv("K8S_E2E_LONG") != "" }
