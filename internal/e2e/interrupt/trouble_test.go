package interrupt_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

// TestTrouble installs a cluster in an EC2 with many faults, cuts machines off from it, and
// destroys it. Meanwhile the provider and the CLI are killed once in each of create, update and
// destroy. Its steps depend on one another.
func TestTrouble(t *testing.T) {
	k := newKiller(t, "trouble")
	k.typical[update], k.typical[destroy] = 8*time.Second, 4*time.Second // on an idle computer
	step := harness.Steps(t)
	step("create although EC2 misbehaves", k.testFaults)
	step("killed while it changes", func(t *testing.T) { k.round(t, update, k.victim()) })
	step("machines cut off", k.cluster.testCutOff)
	step("destroy although EC2 throttles", func(t *testing.T) {
		fault(t, map[string]any{"kind": "throttle", "every": 5})
		k.interrupt(t, destroy, k.victim())
		k.restoreState(t)
		k.cluster.Destroy(t)
	})
	if k.kills != 3 {
		t.Errorf("only %d of create, update and destroy were still going on when they were to be killed", k.kills)
	}
}

// fault adds a fault to the local EC2 until the test ends.
func fault(t *testing.T, f map[string]any) {
	t.Helper()
	if err := suite.Control(t.Context(), "POST", "/_lab/faults", f, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := suite.Control(t.Context(), "DELETE", "/_lab/faults", nil, nil); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
}

// testFaults adds faults: one call in five is throttled, new ids are not visible at once, machines
// start slowly, there is no capacity for one machine, and another one dies while it boots. On the
// machines that need packages, other processes hold the locks of apt and dpkg, a package is half
// installed, cloud-init is slow, and the archive is busy. The first apply reports what failed in
// time, the next one is killed, and the one after that converges.
func (k *killer) testFaults(t *testing.T) {
	c := k.cluster
	fault(t, map[string]any{"kind": "throttle", "every": 5})
	fault(t, map[string]any{"kind": "eventual", "milliseconds": 1500})
	fault(t, map[string]any{"kind": "slow-start", "seconds": 2})
	fault(t, map[string]any{"kind": "capacity", "count": 1})
	for _, f := range []map[string]any{
		{"fault": "apt-lists-locked", "seconds": 3600, "name": "*worker-0"}, // until the provider says that it waits
		{"fault": "package-half-installed", "package": "nftables", "name": "*worker-1"},
		{"fault": "dpkg-locked", "seconds": 3600, "name": "*lb-0"},
		{"fault": "cloud-init-hangs", "seconds": 30, "name": "*lb-0"},
	} {
		f["kind"] = "boot"
		fault(t, f)
	}
	fault(t, map[string]any{"kind": "archive", "fault": "unavailable", "count": 6})
	defer unlockWhenTold(t, "lb-0", "dpkg-locked")()
	defer unlockWhenTold(t, "worker-0", "apt-lists-locked")()

	ended := make(chan error, 1)
	go func() { _, err := c.WS.Apply(t.Context()); ended <- err }()
	start := time.Now()
	var name, id string
	harness.Eventually(t, 2*time.Minute, "a machine boots", func() error {
		for _, i := range ask(t).Instances {
			if i.State == "running" && i.Name != "demo-lb-0" { // which has other faults
				name, id = strings.TrimPrefix(i.Name, "demo-"), i.ID
				return nil
			}
		}
		return errors.New("none is running yet")
	})
	died := time.Now()
	if err := suite.Control(t.Context(), "POST", "/_lab/faults", map[string]any{"kind": "kill", "instance": id, "outcome": "stopped"}, nil); err != nil {
		t.Fatal(err)
	}
	err := <-ended
	t.Logf("the first apply ended after %s, %s after the machine had died", time.Since(start).Round(time.Second), time.Since(died).Round(time.Second))
	harness.Refused(t, err, "machine "+name+" ("+id+")", "stopped", "AWS has no capacity")
	// Terraform finishes what does not depend on the machine, whose time limit is ten minutes.
	if took := time.Since(died); took > 8*time.Minute {
		t.Errorf("the apply went on for %s after the machine had died", took)
	}
	k.interrupt(t, create, k.victim())
	before := look(t, c, false)
	delete(before.identity, "instance demo-"+name+" "+id) // replaced, because its create failed
	k.converge(t, before)
	for _, m := range []string{"lb-0", "worker-0"} {
		if !suite.Logged(t, m, heldLock) {
			t.Errorf("nobody was told that %s had to be waited for", m)
		}
	}
}

// heldLock is the beginning of the message that says for which lock of apt or dpkg the provider
// waits.
const heldLock = "waiting: "

// unlockWhenTold ends a fault of a machine, and of its replacement, once the provider has said that
// it waits. The returned function ends the watch.
func unlockWhenTold(t *testing.T, machine, fault string) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for ctx.Err() == nil {
			if suite.Logged(t, machine, heldLock) {
				_, _ = suite.TryConsole(ctx, machine, "systemctl stop k8s-lab-"+fault+".service") // the machine may not exist at the moment
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
	return func() { cancel(); <-watched }
}

// cutOff makes a machine unreachable, as if its network cable were pulled, until the returned
// function is called.
func cutOff(t *testing.T, machine string) (reconnect func()) {
	t.Helper()
	suite.Console(t, machine, "ip rule add pref 1 blackhole")
	return func() { suite.Console(t, machine, "ip rule del pref 1") }
}

// testCutOff cuts off a worker and a controller. The refresh ends in time, warns once about each,
// and keeps their last known state. A change is then made on the other machines as far as that is
// safe, and the error names the machines that were left, until they are reachable again.
func (c *cluster) testCutOff(t *testing.T) {
	harness.Long(t) // package failures cuts off one machine
	before := look(t, c, true)
	reconnectWorker, reconnectController := cutOff(t, "worker-1"), cutOff(t, "controller-2")

	start := time.Now()
	changes, text, err := c.WS.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	t.Logf("the plan took %s", took.Round(100*time.Millisecond))
	// Each role takes ten seconds to find that machines are unreachable, and asks the remaining
	// members of etcd and API servers.
	if limit := time.Minute + 5*c.quiet; took > limit {
		t.Errorf("a plan without two machines took %s, of %s", took, limit)
	}
	if changes {
		t.Errorf("machines that cannot be reached are planned to be changed:\n%s", text)
	}
	for _, m := range []string{"worker-1", "controller-2"} {
		if n := strings.Count(harness.Flat(text), "Machine "+m+" cannot be reached"); n != 1 {
			t.Errorf("the plan warns %d times of %s:\n%s", n, m, text)
		}
	}
	if strings.Contains(text, "more similar warning") {
		t.Errorf("the plan repeats warnings:\n%s", text)
	}

	c.change(t)
	c.wantLeft(t, "controller-2")
	c.wantChanged(t, "controller-0", "controller-1")
	reconnectController()
	c.wantLeft(t, "worker-1")
	c.wantChanged(t, "controller-2", "worker-0")
	reconnectWorker()
	c.Apply(t)
	c.wantChanged(t, "worker-1")
	after := look(t, c, true)
	after.whole(t)
	after.kept(t, before)
	c.NoChanges(t)
}

// wantLeft applies and checks that the error says that exactly one machine was left.
func (c *cluster) wantLeft(t *testing.T, machine string) {
	t.Helper()
	start := time.Now()
	_, err := c.WS.Apply(t.Context())
	took := time.Since(start)
	var failed *workspace.Error
	if !errors.As(err, &failed) {
		t.Fatalf("an apply without %s says: %v", machine, err)
	}
	t.Logf("the apply without %s took %s", machine, took.Round(100*time.Millisecond))
	if !strings.Contains(failed.Stdout, fmt.Sprintf(`+ "revision-%d.example"`, c.revision)) && !strings.Contains(failed.Stdout, fmt.Sprintf(`-> "%d"`, c.revision)) {
		t.Errorf("what can be planned is not planned:\n%s", failed.Stdout)
	}
	harness.Says(t, failed.Stderr, "left as they are, because they could not be reached: "+machine+";")
	if limit := 2*time.Minute + 10*c.quiet; took > limit {
		t.Errorf("an apply without %s took %s, of %s", machine, took, limit)
	}
}

// wantChanged fails when a machine does not run the current revision.
func (c *cluster) wantChanged(t *testing.T, machines ...string) {
	t.Helper()
	for _, m := range machines {
		script := fmt.Sprintf("grep -q '^maxPods: %d$' /etc/kubernetes/kubelet.yaml", 50+c.revision)
		if strings.HasPrefix(m, "controller-") {
			script = fmt.Sprintf("openssl x509 -noout -text -in /etc/kubernetes/pki/apiserver.crt | grep -q revision-%d.example", c.revision)
		}
		if _, err := suite.TryConsole(t.Context(), m, script); err != nil {
			t.Errorf("not at revision %d: %v", c.revision, err)
		}
	}
}
