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
	at      func(time.Duration) Unit
	err     error    // of the second observation
	result  string   // that systemd's journal has
	journal string   // what the unit's processes have said
	asked   []string // scripts that asked for that
}

func (m *watched) Name() string { return "worker-0" }

const bootedFor = 1000 * time.Second // at the first observation

func (m *watched) Run(_ context.Context, c remote.Command) (remote.Output, error) {
	if strings.Contains(c.Script, "journalctl") {
		m.asked = append(m.asked, c.Script)
		return remote.Output{Stdout: []byte(m.result + "\x00" + m.journal + "\x00")}, nil
	}
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

// seenUp is a program that exits every second, and that runs whenever somebody looks.
func seenUp(now time.Duration) Unit { return up(now-100*time.Millisecond, 40+int(now/time.Second)) }

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
		{"is seen only while it runs", seenUp, "failing again and again (exit-code), wanted running", 3 * time.Second},
		{"is slow to start", func(now time.Duration) Unit {
			if now < 6*time.Second {
				return Unit{ActiveState: "activating", SubState: "start"}
			}
			return up(6*time.Second, 0)
		}, "", 7 * time.Second},
		{"does not come up", func(time.Duration) Unit { return Unit{ActiveState: "activating", SubState: "start"} },
			"starting, wanted running", decideBudget + decidePoll},
		{"is restarted by somebody", func(now time.Duration) Unit {
			if now < 1500*time.Millisecond {
				return Unit{ActiveState: "deactivating", SubState: "stop-sigterm"}
			}
			return up(1500*time.Millisecond, 0)
		}, "", 3 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &watched{start: time.Now(), at: tt.at, result: "exit-code\n"}
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

// TestLastErrors checks that a finding about a unit that fails quotes the last error of its journal, as programs
// really write it, and that the journals of others are not asked for.
func TestLastErrors(t *testing.T) {
	want := desired.State{Units: []desired.Unit{{Name: "a.service", Enabled: true, Active: true}}}
	failed := func(result string) func(time.Duration) Unit {
		return func(time.Duration) Unit { return Unit{ActiveState: "failed", SubState: "failed", Result: result} }
	}
	const kubelet = "I1126 22:01:07.100000    4711 server.go:530] \"Kubelet version\" kubeletVersion=\"v1.36.4\"\n" +
		`E1126 22:01:08.200000    4711 kubelet.go:1760] "Failed to start ContainerManager" err="[invalid kernel flag: vm/overcommit_memory, expected value: 1, actual value: 0, invalid kernel flag: kernel/panic, expected value: 10, actual value: 0]"` + "\n"
	for _, tt := range []struct {
		name, journal string
		at            func(time.Duration) Unit
		words         string
		unasked       bool
	}{
		{"kubelet, again and again", kubelet, loop(100 * time.Millisecond),
			"failing again and again (exit-code: [invalid kernel flag: vm/overcommit_memory, expected value: 1, actual value: 0, invalid kernel flag: kernel/panic, expected value: 10, actual value: 0]), wanted running", false},
		{"no form that is known", "Traceback (most recent call last):\n  File \"x.py\", line 1\nValueError: no such thing\n", failed("exit-code"),
			"failed (exit-code: ValueError: no such thing), wanted running", false},
		{"HAProxy", "[ALERT]    (42) : config : parsing [/etc/haproxy/haproxy.cfg:31] : unknown keyword 'srever' in 'backend' section\n" +
			"[ALERT]    (42) : config : Fatal errors found in configuration.\n", failed("exit-code"),
			"failed (exit-code: config : parsing [/etc/haproxy/haproxy.cfg:31] : unknown keyword 'srever' in 'backend' section), wanted running", false},
		{"nft", "/etc/k8s/firewall.nft:3:9-14: Error: syntax error, unexpected string\n        tpc dport 6443 accept\n        ^^^^^^\n", failed("exit-code"),
			"failed (exit-code: /etc/k8s/firewall.nft:3:9-14: Error: syntax error, unexpected string), wanted running", false},
		{"etcd", `{"level":"info","msg":"Running: "}` + "\n" + `{"level":"fatal","msg":"discovery failed","error":"wal: crc mismatch"}` + "\n", failed("exit-code"),
			"failed (exit-code: wal: crc mismatch), wanted running", false},
		{"containerd's panic", "panic: no such snapshotter\n\ngoroutine 1 [running]:\nmain.main()\n\tx.go:1 +0x1\n", failed("exit-code"),
			"failed (exit-code: no such snapshotter), wanted running", false},
		{"control characters", "Error: \x1b[31mred\x1b[0m \u202ebackwards\a\xff\r\n", failed("exit-code"),
			"failed (exit-code: red \\u202ebackwards\\x07?), wanted running", false},
		{"a key", "Error: bad token: abcdefghijklmnop\n", failed("exit-code"), "failed (exit-code: bad token: [redacted]), wanted running", false},
		{"long", "Error: " + strings.Repeat("é", 1000), failed("exit-code"), "failed (exit-code: " + strings.Repeat("é", maxSaid) + "...), wanted running", false},
		{"silent", "", failed("exit-code"), "failed (exit-code), wanted running", false},
		{"killed by somebody", kubelet, failed("signal"), "failed (signal), wanted running", true},
		{"runs", kubelet, func(time.Duration) Unit { return up(-time.Hour, 0) }, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &watched{start: time.Now(), at: tt.at, result: "exit-code\n", journal: tt.journal}
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
				if asked := len(m.asked) > 0; asked == tt.unasked {
					t.Errorf("asked for journals: %q", m.asked)
				}
			})
		})
	}
}

// TestFailingUnits checks that only units that fail are reported, whether they are enabled or not.
func TestFailingUnits(t *testing.T) {
	for _, tt := range []struct {
		name string
		unit Unit
		want string
	}{
		{"runs", up(-time.Hour, 0), ""},
		{"stopped", Unit{ActiveState: "inactive", SubState: "dead", Result: "success"}, ""},
		{"failed", Unit{ActiveState: "failed", SubState: "failed", Result: "exit-code"}, "unit a.service: failed (exit-code: no such flag), wanted running"},
	} {
		m := &watched{start: time.Now(), at: func(time.Duration) Unit { return tt.unit }, journal: "Error: no such flag\n"}
		found, err := FailingUnits(t.Context(), m, "a.service")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range found {
			got = append(got, f.String())
		}
		if strings.Join(got, "; ") != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestLastFailure checks what is told of a unit that runs again: how it has last ended, and why if it was its own doing.
func TestLastFailure(t *testing.T) {
	for _, tt := range []struct{ name, result, want string }{
		{"failed", "exit-code\n", "exit-code: no such flag"},
		{"killed", "oom-kill\n", "oom-kill"},
		{"ended well", "", ""},
	} {
		m := &watched{result: tt.result, journal: "Error: no such flag\n"}
		if got := LastFailure(t.Context(), m, "a.service"); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestAwaitIsBounded checks that a unit that does not settle is not judged, and that the rest of
// the observation counts.
func TestAwaitIsBounded(t *testing.T) {
	want := desired.State{Units: []desired.Unit{{Name: "a.service", Enabled: true, Active: true}}}
	judge := func(t *testing.T, ctx context.Context, m *watched) {
		t.Helper()
		obs, err := Observe(ctx, m, want, Record{})
		if err != nil || !obs.Units["a.service"].Undecided {
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
