package timing

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestPath: two machines are made at the same time, and the slower one is on the path; a wait asks three times; what ends
// early and what is short are not on it.
func TestPath(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := New()
		call := func(what string, took time.Duration, f func(ctx context.Context)) {
			ctx, end := r.Call(t.Context(), what)
			defer end()
			time.Sleep(took)
			f(ctx)
		}
		var group sync.WaitGroup
		for _, seconds := range []time.Duration{4, 10, 7} {
			group.Go(func() {
				call("Terraform ApplyResourceChange k8s_machine", time.Second, func(ctx context.Context) {
					end := r.Start(ctx, "EC2 RunInstances")
					time.Sleep(seconds * time.Second)
					end()
					end = r.Start(ctx, "EC2 DescribeTags")
					time.Sleep(time.Millisecond)
					end()
					group.Go(func() { // goes on for others
						defer r.Start(ctx, "SSH handshake")()
						time.Sleep(time.Second / 2)
					})
				})
			})
		}
		group.Wait()
		time.Sleep(time.Second / 2)
		call("Terraform ApplyResourceChange k8s_worker_pool", 0, func(ctx context.Context) {
			ctx, end := Begin(ctx, "wait: node")
			defer end()
			for range 3 {
				asked := r.Start(ctx, "API GET")
				time.Sleep(time.Second)
				asked()
				asked()
			}
		})
		want := []string{
			"critical path from s to s seconds",
			"Terraform ApplyResourceChange k8s_machine 0.00 11.00 11.00",
			"EC2 RunInstances 1.00 11.00 10.00",
			"Terraform ApplyResourceChange k8s_worker_pool 12.00 15.00 3.00",
			"wait: node 12.00 15.00 3.00",
			"API GET (3 times) 12.00 15.00 3.00",
		}
		lines := strings.Split(strings.TrimSpace(r.Path()), "\n")
		if len(lines) != len(want) {
			t.Fatalf("%d lines:\n%s", len(lines), r.Path())
		}
		for i, line := range lines {
			if got := strings.Join(strings.Fields(line), " "); got != want[i] {
				t.Errorf("line %d is %q, not %q", i, got, want[i])
			}
		}
	})
}
