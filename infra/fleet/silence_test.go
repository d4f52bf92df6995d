package fleet_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet/fleettest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// TestSilentAPIServerIsAskedOnce plans many resources of a cluster whose API server takes connections
// and does not answer.
func TestSilentAPIServerIsAskedOnce(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	var serves atomic.Bool
	servers := fleettest.NewAPIServers(t, func(w http.ResponseWriter, r *http.Request) {
		if serves.Load() {
			fleettest.Serves(w, r)
			return
		}
		asked.Add(1)
		fleettest.Hangs(w, r)
	})
	f := *servers.Fleet
	f.Silence = &fleet.Silence{}
	// Each resource has an access of its own.
	ask := func(ctx context.Context) error {
		access := f.Access(servers.API.PKI)
		defer access.Close()
		_, err := fleet.AskAPI(ctx, access, servers.API.Endpoint, func(ctx context.Context, c *kube.Client) (string, error) {
			raw, err := c.Typed().Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Raw()
			return string(raw), err
		})
		return err
	}
	begin := time.Now()
	errs := make([]error, 8)
	var wait sync.WaitGroup
	for i := range errs[:4] { // what Terraform reads at the same time, and what it reads afterwards
		wait.Go(func() { errs[i] = ask(t.Context()) })
	}
	wait.Wait()
	for i := range errs[4:] {
		errs[4+i] = ask(t.Context())
	}
	took := time.Since(begin)
	for _, err := range errs {
		if !kube.Unanswered(err) || err.Error() != errs[0].Error() {
			t.Errorf("%v, and the first one got %v", err, errs[0])
		}
	}
	// One question has three attempts.
	if n := asked.Load(); n < 1 || n > 3 || took > 2*fleet.ProbeBudget {
		t.Errorf("%d attempts for %d resources in %s", n, len(errs), took)
	}
	// After a change it may answer, and is asked.
	serves.Store(true)
	if err := ask(t.Context()); err == nil {
		t.Error("it was asked although nothing has changed")
	}
	f.Silence.Forget()
	if err := ask(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSilence(t *testing.T) {
	unanswered := &kube.NotReadyError{Endpoint: "https://a"}
	refused := errors.New("forbidden")
	type call struct {
		err   error
		takes time.Duration
	}
	run := func(ctx context.Context, s *fleet.Silence, c call, asked *int) error {
		return fleet.AskSilence(ctx, s, "demo", "https://a", func() error {
			*asked++
			time.Sleep(c.takes)
			return c.err
		})
	}
	for _, tt := range []struct {
		name string
		then func(t *testing.T, s *fleet.Silence, asked *int)
	}{
		{"an answer that is an error is an answer", func(t *testing.T, s *fleet.Silence, asked *int) {
			for range 2 {
				if err := run(t.Context(), s, call{err: refused}, asked); !errors.Is(err, refused) {
					t.Error(err)
				}
			}
			if *asked != 2 {
				t.Errorf("asked %d times", *asked)
			}
		}},
		{"callers that know of it do not wait for each other", func(t *testing.T, s *fleet.Silence, asked *int) {
			_ = run(t.Context(), s, call{}, asked)
			begin := time.Now()
			var wait sync.WaitGroup
			for range 3 {
				wait.Go(func() { _ = run(t.Context(), s, call{takes: time.Second}, new(int)) })
			}
			wait.Wait()
			if took := time.Since(begin); took != time.Second {
				t.Errorf("it took %s", took)
			}
		}},
		{"a more patient caller asks", func(t *testing.T, s *fleet.Silence, asked *int) {
			_ = run(t.Context(), s, call{err: unanswered}, asked)
			_ = run(t.Context(), s, call{err: unanswered}, asked)
			if *asked != 1 {
				t.Errorf("asked %d times", *asked)
			}
			if err := run(patience.With(t.Context(), 2), s, call{}, asked); err != nil || *asked != 2 {
				t.Errorf("asked %d times: %v", *asked, err)
			}
		}},
		{"a question that is given up says nothing", func(t *testing.T, s *fleet.Silence, asked *int) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_ = run(ctx, s, call{err: unanswered, takes: 2 * time.Second}, asked)
			if err := run(t.Context(), s, call{}, asked); err != nil || *asked != 2 {
				t.Errorf("asked %d times: %v", *asked, err)
			}
		}},
		{"what is asked while something changes is not remembered", func(t *testing.T, s *fleet.Silence, asked *int) {
			var wait sync.WaitGroup
			wait.Go(func() { _ = run(t.Context(), s, call{err: unanswered, takes: 2 * time.Second}, asked) })
			time.Sleep(time.Second)
			s.Forget()
			wait.Wait()
			if err := run(t.Context(), s, call{}, asked); err != nil || *asked != 2 {
				t.Errorf("asked %d times: %v", *asked, err)
			}
		}},
		{"a panic lets the others ask", func(t *testing.T, s *fleet.Silence, asked *int) {
			func() {
				defer func() { _ = recover() }()
				_ = fleet.AskSilence(t.Context(), s, "demo", "https://a", func() error { panic("bug") })
			}()
			if err := run(t.Context(), s, call{}, asked); err != nil || *asked != 1 {
				t.Errorf("asked %d times: %v", *asked, err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { tt.then(t, &fleet.Silence{}, new(int)) })
		})
	}
}
