package fleet

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// TestErrors checks the text of errors.
func TestErrors(t *testing.T) {
	h := remote.Host{Name: "controller-1", Address: "192.0.2.7", User: "admin"}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&StepError{Machine: "controller-1", Step: "wait for the API server", Err: errors.New("not within 2m0s"), Unit: component.APIServerUnit,
			Journal: "line 1\nline 2\n", Next: Target{Host: h}.JournalCommand(component.APIServerUnit)},
			`machine controller-1: wait for the API server: not within 2m0s
last lines of the journal of kube-apiserver.service:
line 1
line 2
next: ssh admin@192.0.2.7 sudo journalctl --unit kube-apiserver.service --lines 50 --no-pager`},
		{&GuardError{Refused: "remove etcd member a", Reason: "no quorum"}, "refusing to remove etcd member a: no quorum"},
		{&SkippedError{Machines: map[string]error{"b": errors.New("b: no answer"), "a": errors.New("a: no answer")}},
			"left as they are, because they could not be reached: a, b; apply again when they answer:\na: no answer\nb: no answer"},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("%T:\n%s\nwanted:\n%s", tt.err, got, tt.want)
		}
	}
	through := remote.Host{Address: "10.0.0.1", Port: 2222, User: "ubuntu", Bastion: &remote.Host{Address: "192.0.2.1", User: "jump"}}
	if got, want := (Target{Host: through}).SSH("id"), "ssh -J jump@192.0.2.1 -p 2222 ubuntu@10.0.0.1 id"; got != want {
		t.Errorf("%q, wanted %q", got, want)
	}
}

func TestWithin(t *testing.T) {
	err := Within(t.Context(), time.Millisecond, "the thing", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	if err == nil || !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "the thing: not within 1ms") {
		t.Errorf("error = %v", err)
	}
	own := errors.New("own")
	if err := Within(t.Context(), time.Minute, "the thing", func(context.Context) error { return own }); err != own { //nolint:errorlint // the very same
		t.Errorf("error = %v, wanted it untouched", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	err = Within(ended, time.Minute, "the thing", func(ctx context.Context) error { return ctx.Err() })
	if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "not within") {
		t.Errorf("error = %v: the caller's cancellation is not our patience", err)
	}
}
