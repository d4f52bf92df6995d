package cloudtest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aws/smithy-go"
)

// Code returns the AWS error code of err, "" for nil.
func Code(err error) string {
	if err == nil {
		return ""
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return fmt.Sprintf("not an API error: %v", err)
}

// Refused asserts that err has an AWS error code.
func Refused(t *testing.T, err error, want string) {
	t.Helper()
	if got := Code(err); got != want {
		t.Errorf("got %q, want %q (%v)", got, want, err)
	}
}

// Must returns the result of a call that must succeed.
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

// Eventually fails the test if f is not true within two minutes.
func Eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	end, last := time.Now().Add(2*time.Minute), false
	for ; !f(); time.Sleep(2 * time.Millisecond) {
		if last {
			t.Fatalf("it never came to this: %s", what)
		}
		last = time.Now().After(end)
	}
}
