package rollout

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote/remotetest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/timing"
)

// observedRole is a role that looks at its machines.
type observedRole struct{ claimedRole }

func (x observedRole) Observe(ctx context.Context, o *Operation) Report { return o.Report(ctx, nil) }

// TestRefreshRoundTrips: a refresh connects to each machine once, and each role looks at it in one
// round trip, however many machines there are.
func TestRefreshRoundTrips(t *testing.T) {
	t.Parallel()
	for _, many := range []int{6, 50} {
		calls := timing.New()
		pool := remote.NewPool(remote.Config{Timing: calls, ConnectTimeout: 5 * time.Minute})
		t.Cleanup(func() { pool.Close() })
		engine := &Engine{Fleet: &fleet.Fleet{Pool: pool}}
		var targets []fleet.Target
		for n := range many {
			m := remotetest.New(t, fmt.Sprintf("worker-%d", n), func(string) (string, int) {
				return "observation 1\x00boot 1\x00time 1700000000\x00uptime 5\x00observation end\x00", 0
			})
			targets = append(targets, fleet.Target{Host: m.Host, Node: component.Node{Name: m.Host.Name}})
		}
		for _, target := range targets {
			pool.Machine(target.Host).Prepare(t.Context())
		}
		var roles sync.WaitGroup
		for range 3 { // as many as look at a controller
			roles.Go(func() {
				report, err := engine.Observe(patience.With(t.Context(), 30), observedRole{claimedRole{targets: targets}}, Record{})
				if err != nil || len(report.Unreachable) > 0 || len(report.Findings) != many {
					t.Errorf("%d machines: %d findings, unreachable %v, %v", many, len(report.Findings), report.Unreachable, err)
				}
			})
		}
		roles.Wait()
		if n := calls.Calls("SSH handshake"); n != many {
			t.Errorf("%d machines: %d handshakes", many, n)
		}
		if n := calls.Calls("SSH look"); n != 3*many {
			t.Errorf("%d machines: %d round trips for three roles", many, n)
		}
	}
}
