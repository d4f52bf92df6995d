package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// watched is a machine with one unit that runs under Restart=always with a pause of one second.
type watched struct {
	start time.Time
	looks int
	// at returns the unit's state at a time after the first observation.
	at  func(time.Duration) Unit
	err error // of the second observation
}

func (m *watched) Name() string { return "worker-0" }

const bootedFor = 1000 * time.Second // at the first observation

func (m *watched) Run(context.Context, remote.Command) (remote.Output, error) {
	m.looks++
	if m.looks == 2 && m.err != nil {
		return remote.Output{}, m.err
	}
	after := time.Since(m.start)
	u := m.at(after)
	answer := []string{answerStart,
		fmt.Sprintf("units Id=a.service\nLoadState=loaded\nActiveState=%s\nSubState=%s\nUnitFileState=enabled\nResult=%s\nNRestarts=%d\nActiveEnterTimestampMonotonic=%d",
			u.ActiveState, u.SubState, u.Result, u.Restarts, u.ActiveEnter),
		"enablement a.service enabled enabled",
		"boot x", "time 1700000000", fmt.Sprintf("uptime %.2f", (bootedFor + after).Seconds()), answerEnd, ""}
	return remote.Output{Stdout: []byte(strings.Join(answer, "\x00"))}, nil
}

// up is a unit that has been running since a time after the first observation.
func up(since time.Duration, restarts int) Unit {
	return Unit{ActiveState: "active", SubState: "running", Result: "success", Restarts: restarts,
		ActiveEnter: uint64((bootedFor + since).Microseconds())}
}

func down(restarts int) Unit {
	return Unit{ActiveState: "activating", SubState: "auto-restart", Result: "exit-code", Restarts: restarts}
}

// loop is a program that exits a fixed time after each start.
func loop(life time.Duration) func(time.Duration) Unit {
	return func(now time.Duration) Unit {
		round := life + time.Second
		n := int(now / round)
		if begun := time.Duration(n) * round; now-begun < life {
			return up(begun, 40+n)
		}
		return down(40 + n)
	}
}

// TestAwait checks that a unit that exited once is no drift and one that exits at every start is,
// at whatever moment it is observed.
func TestAwait(t *testing.T) {
	want := desired.State{Units: []desired.Unit{{Name: "a.service", Enabled: true, Active: true}}}
	for _, tt := range []struct {
		name  string
		at    func(time.Duration) Unit
		words string
		limit time.Duration // how long await may take
	}{
		{"runs", func(time.Duration) Unit { return up(-time.Hour, 0) }, "", 0},
		{"was restarted a while ago", func(time.Duration) Unit { return up(-time.Minute, 3) }, "", 0},
		{"stopped", func(time.Duration) Unit { return Unit{ActiveState: "inactive", SubState: "dead"} }, "stopped, wanted running", 0},
		{"was started by hand a moment ago", func(time.Duration) Unit { return up(0, 0) }, "", 0},
		// A leading manager that loses its lease exits; after the restart it waits for the lease.
		{"lost its lease", func(now time.Duration) Unit {
			if now < 800*time.Millisecond {
				return down(2)
			}
			return up(800*time.Millisecond, 3)
		}, "", 5 * time.Second},
		{"was restarted a moment ago", func(time.Duration) Unit { return up(-time.Second, 3) }, "", 3 * time.Second},
		{"ends at once", loop(100 * time.Millisecond), "failing again and again (exit-code), wanted running", 4 * time.Second},
		{"ends after a moment", loop(1500 * time.Millisecond), "failing again and again (exit-code), wanted running", 7 * time.Second},
		{"ends before it is judged steady", loop(2900 * time.Millisecond), "failing again and again (exit-code), wanted running", 9 * time.Second},
		{"is slow to start", func(now time.Duration) Unit {
			if now < 6*time.Second {
				return Unit{ActiveState: "activating", SubState: "start"}
			}
			return up(6*time.Second, 0)
		}, "", 7 * time.Second},
		{"does not come up", func(time.Duration) Unit { return Unit{ActiveState: "activating", SubState: "start"} },
			"starting, wanted running", settleBudget + settlePoll},
		{"is restarted by somebody", func(now time.Duration) Unit {
			if now < 1500*time.Millisecond {
				return Unit{ActiveState: "deactivating", SubState: "stop-sigterm"}
			}
			return up(1500*time.Millisecond, 0)
		}, "", 3 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &watched{start: time.Now(), at: tt.at}
				obs, err := Observe(t.Context(), m, want, Record{})
				if err != nil {
					t.Fatal(err)
				}
				words := tt.words
				if words != "" {
					words = "unit a.service: " + words
				}
				if got := Words(Diff(want, obs, Record{})); got != words {
					t.Errorf("%q, want %q", got, words)
				}
				if took := time.Since(m.start); took > tt.limit {
					t.Errorf("took %s, %s at most", took, tt.limit)
				}
				if tt.limit == 0 && m.looks != 1 {
					t.Errorf("looked %d times", m.looks)
				}
			})
		})
	}
}

// TestAwaitIsBounded checks that a unit that does not settle is not judged, and that the rest of
// the observation counts.
func TestAwaitIsBounded(t *testing.T) {
	want := desired.State{Units: []desired.Unit{{Name: "a.service", Enabled: true, Active: true}}}
	judge := func(t *testing.T, ctx context.Context, m *watched) {
		t.Helper()
		obs, err := Observe(ctx, m, want, Record{})
		if err != nil || !obs.Units["a.service"].Unsettled {
			t.Errorf("unit = %+v, error = %v", obs.Units["a.service"], err)
		}
		if got := Words(Diff(want, obs, Record{})); got != "" {
			t.Errorf("difference: %s", got)
		}
		more := want
		more.Packages = []string{"web"}
		if got := Words(Diff(more, obs, Record{})); got != "package web: not installed" {
			t.Errorf("difference of something else: %q", got)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		judge(t, t.Context(), &watched{start: time.Now(), at: loop(time.Millisecond), err: errors.New("connection lost")})
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		judge(t, ctx, &watched{start: time.Now(), at: loop(time.Millisecond)})
	})
}

// TestAwaitLeavesOthersAlone checks that units that should not run are not waited for.
func TestAwaitLeavesOthersAlone(t *testing.T) {
	m := &watched{start: time.Now(), at: func(time.Duration) Unit { return down(1) }}
	if _, err := Observe(t.Context(), m, desired.State{Units: []desired.Unit{{Name: "a.service"}}}, Record{}); err != nil || m.looks != 1 {
		t.Errorf("looked %d times, %v", m.looks, err)
	}
}
