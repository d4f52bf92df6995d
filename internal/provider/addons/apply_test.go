package addons

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"syscall"
	"testing"
)

// TestUnreachable: only a request without an answer says that the API server is gone. A deletion
// that waits for finalizers until the deadline does not say so, nor do requests that the deadline
// interrupts.
func TestUnreachable(t *testing.T) {
	over, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	request := func(err error) error {
		return fmt.Errorf("deleting ConfigMap x/a: %w", &url.Error{Op: "Delete", URL: "https://x:6443", Err: err})
	}
	waiting := fmt.Errorf("waiting for ConfigMap x/b to be gone: %w", context.DeadlineExceeded)
	for _, tt := range []struct {
		name string
		ctx  context.Context
		err  error
		want bool
	}{
		{"refused", t.Context(), request(syscall.ECONNREFUSED), true},
		{"no answer in time", t.Context(), request(context.DeadlineExceeded), true},
		{"an answer", t.Context(), errors.New("forbidden"), false},
		{"finalizers", over, waiting, false},
		{"finalizers and a request that was cut", over, errors.Join(waiting, request(context.DeadlineExceeded)), false},
	} {
		if got := unreachable(tt.ctx, tt.err); got != tt.want {
			t.Errorf("%s: %v, wanted %v", tt.name, got, tt.want)
		}
	}
}
