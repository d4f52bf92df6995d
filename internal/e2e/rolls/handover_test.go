package rolls_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/maintenance"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// leader returns the controller whose etcd member is the leader, and the ids of all members.
func (w *world) leader(t *testing.T) (leader string, ids map[string]uint64) {
	t.Helper()
	ids = map[string]uint64{}
	harness.Eventually(t, time.Minute, "a leader of etcd", func() error {
		for _, c := range controllers {
			var answer []struct {
				Status struct {
					Header struct {
						Member uint64 `json:"member_id"`
					} `json:"header"`
					Leader uint64 `json:"leader"`
				} `json:"Status"`
			}
			out, err := w.TrySh(t.Context(), c, harness.Etcdctl+"endpoint status --write-out=json")
			if err != nil {
				return err
			}
			if err := json.Unmarshal([]byte(out), &answer); err != nil {
				return err
			}
			s := answer[0].Status
			if ids[c] = s.Header.Member; s.Leader == s.Header.Member {
				leader = c
			}
		}
		if leader == "" {
			return errors.New("nobody leads")
		}
		return nil
	})
	return leader, ids
}

// fleet returns a fleet with its own connections to the controllers.
func (w *world) fleet(t *testing.T) (*fleet.Fleet, map[string]fleet.Target) {
	t.Helper()
	key, err := os.ReadFile(suite.SSH)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet.Fleet{
		Pool: remote.NewPool(remote.Config{Signers: []ssh.Signer{signer}}),
		Progress: func(machine, message string) {
			t.Logf("%s %s: %s", time.Now().Format("15:04:05.000"), machine, message)
		},
	}
	t.Cleanup(func() { _ = f.Pool.Close() })
	targets := map[string]fleet.Target{}
	for _, c := range controllers {
		targets[c] = fleet.Target{
			Host: remote.Host{Name: c, Address: w.Addresses[c], User: "admin", HostKeys: []string{w.HostKeys[c]}},
			Node: component.Node{Name: c},
		}
	}
	return f, targets
}

// handOver transfers the leadership from the leader's machine to another one.
func handOver(ctx context.Context, f *fleet.Fleet, targets map[string]fleet.Target, leader string) error {
	d, err := maintenance.Find(ctx, f, targets[leader])
	if err != nil {
		return err
	}
	d.SetControllers(func(context.Context) ([]fleet.Target, error) {
		var all []fleet.Target
		for _, c := range controllers {
			all = append(all, targets[c])
		}
		return all, nil
	})
	return d.MoveLeader(ctx, func(string) bool { return false })
}

// testHandOvers transfers etcd's leadership under traffic: K8S_HANDOVERS times, and for comparison
// as often with etcdctl, which does not hold the API servers.
func (w *world) testHandOvers(t *testing.T) {
	times, asked := 3, os.Getenv("K8S_HANDOVERS")
	if asked != "" {
		var err error
		if times, err = strconv.Atoi(asked); err != nil {
			t.Fatal(err)
		}
	}
	f, targets := w.fleet(t)
	var unheld []time.Time // times at which the engine announced that a write may be lost
	say := f.Progress
	f.Progress = func(machine, message string) {
		say(machine, message)
		if strings.Contains(message, "a write in progress may be lost") {
			unheld = append(unheld, time.Now())
		}
	}
	var figures []string
	for _, x := range w.handOvers(t, times, func(leader string, _ map[string]uint64) {
		if err := handOver(t.Context(), f, targets, leader); err != nil {
			t.Error(err)
		}
	}) {
		x.Unbroken(t, unheld...)
		figures = append(figures, x.Figures())
	}
	if len(unheld) == times || asked != "" && len(unheld) > times/2 {
		t.Errorf("%d of %d hand-overs held nobody", len(unheld), times)
	}
	if asked == "" {
		return
	}
	if !t.Failed() {
		t.Logf("figures: %d hand-overs, %d held nobody, under %s", times, len(unheld), strings.Join(figures, " and "))
	}
	failures := 0
	for _, x := range w.handOvers(t, times, func(leader string, ids map[string]uint64) {
		next := controllers[(slices.Index(controllers, leader)+1)%len(controllers)]
		w.etcdctl(t, leader, fmt.Sprintf("move-leader %x", ids[next]))
	}) {
		failures += x.Failures(t)
	}
	t.Logf("figures: %d by etcdctl: %d requests failed", times, failures)
}

// handOvers transfers the leadership repeatedly while four clients write.
func (w *world) handOvers(t *testing.T, times int, move func(leader string, ids map[string]uint64)) (all []*harness.Traffic) {
	t.Helper()
	for range 4 {
		all = append(all, w.Traffic(t, w.Kubeconfig))
	}
	moved := 0
	for range times {
		was, ids := w.leader(t)
		move(was, ids)
		if now, _ := w.leader(t); now != was {
			moved++
		}
		time.Sleep(200 * time.Millisecond)
	}
	if moved == 0 {
		t.Error("the leadership never moved")
	}
	return all
}

// testOrphanedHold cuts a transfer off from all machines while their API servers are held. They
// must continue without it.
func (w *world) testOrphanedHold(t *testing.T) {
	was := suite.Units(t, machines...)
	leader, _ := w.leader(t)
	f, targets := w.fleet(t)
	seen := make(chan error, 1)
	suite.Console(t, controllers[0], "rm -f /run/watching")
	const state = `pid=$(systemctl show -P MainPID kube-apiserver); state() { cut -d' ' -f3 /proc/$pid/stat; }; `
	go func() {
		_, err := suite.TryConsole(t.Context(), controllers[0], state+`touch /run/watching; for i in $(seq 3000); do [ "$(state)" != T ] || exit 0; sleep 0.01; done; exit 1`)
		seen <- err
	}()
	suite.Console(t, controllers[0], "for i in $(seq 600); do [ ! -e /run/watching ] || exit 0; sleep 0.1; done; exit 1")
	ended := make(chan error, 1)
	go func() { ended <- handOver(t.Context(), f, targets, leader) }()
	if err := <-seen; err != nil {
		t.Fatalf("no API server was held: %v", err)
	}
	_ = f.Pool.Close()
	t.Logf("cut off: %v", <-ended)
	began := time.Now()
	for _, c := range controllers {
		if out, err := suite.TryConsole(t.Context(), c, state+`for i in $(seq 300); do [ "$(state)" != T ] && exit 0; sleep 0.01; done; state; exit 1`); err != nil {
			t.Errorf("%s is held still: %v %s", c, err, out)
		}
	}
	t.Logf("all went on within %s", time.Since(began).Round(time.Millisecond))
	harness.Eventually(t, 10*time.Second, "no unit left behind", func() error {
		for _, c := range controllers {
			if out := w.Sh(t, c, "systemctl list-units --all --no-legend 'k8s-hold*'"); out != "" {
				return fmt.Errorf("%s: %s", c, out)
			}
		}
		return nil
	})
	wantRestarted(t, was)
	w.Kubectl(t, "create", "configmap", "after-orphaned-hold")
}
