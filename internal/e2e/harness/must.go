package harness

import "testing"

// Must returns the result of a call that has to succeed: Must[T](t)(f()).
func Must[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
