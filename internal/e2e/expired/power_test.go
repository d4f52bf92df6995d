package expired_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// power runs the longer tests of power states, which make soak PART=power sets.
var power = os.Getenv("K8S_POWER") != ""

// testStopped stops one member of etcd, on a machine without an API server: the cluster goes on, a
// plan is empty, and the machine comes back as the same member.
func (w *world) testStopped(t *testing.T) {
	if !power {
		t.Skip("K8S_POWER is not set")
	}
	members := w.Members(t)
	override := "resource \"k8s_machine\" \"controller\" {\n  power_state = count.index == 2 ? \"stopped\" : \"running\"\n}\n"
	if err := w.WS.WriteFile("half_override.tf", override); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	w.Apply(t)
	t.Logf("figures: one machine stopped in %s", time.Since(start).Round(100*time.Millisecond))
	if states := instances(t); states["controller-2"] != "stopped" || states["controller-1"] != "running" {
		t.Errorf("the instances are %v", states)
	}
	changes, text, err := w.WS.Plan(t.Context())
	if err != nil || changes || strings.Contains(text, "Warning") {
		t.Errorf("the plan with a stopped machine: changes %t, %v\n%s", changes, err, text)
	}
	w.Kubectl(t, "create", "configmap", "meanwhile")
	if err := w.WS.WriteFile("half_override.tf", ""); err != nil {
		t.Fatal(err)
	}
	start = time.Now()
	w.Apply(t)
	t.Logf("figures: and started in %s", time.Since(start).Round(100*time.Millisecond))
	w.NoChanges(t)
	if now := w.Members(t); fmt.Sprint(now) != fmt.Sprint(members) {
		t.Errorf("the members were %v, they are %v", members, now)
	}
}

// testPowerKilled kills provider and CLI while they pause the cluster, and while they resume it. The
// next apply goes on.
func (w *world) testPowerKilled(t *testing.T) {
	if !power {
		t.Skip("K8S_POWER is not set")
	}
	before := w.identity(t)
	if err := os.Truncate(suite.ProviderLog(), 0); err != nil {
		t.Fatal(err)
	}
	w.Killed(t, "the API servers stop", func() bool { return len(suite.Order(t, "pause: stopping kube-apiserver.service")) > 0 }, "-var=paused=true")
	if s := states(t); slices.ContainsFunc(s, notRunning) {
		t.Errorf("instances were stopped before etcd: %q", s)
	}
	w.Killed(t, "the first instance stops", func() bool { return slices.ContainsFunc(states(t), notRunning) }, "-var=paused=true")
	start := time.Now()
	w.Apply(t, "-var=paused=true")
	t.Logf("figures: the pause after kills took %s", time.Since(start).Round(100*time.Millisecond))
	if changes, text, err := w.WS.Plan(t.Context(), "-var=paused=true"); err != nil || changes || strings.Contains(text, "Warning") {
		t.Errorf("the plan: changes %t, %v\n%s", changes, err, text)
	}
	w.Killed(t, "all instances run again", func() bool { return !slices.ContainsFunc(states(t), notRunning) }, "-var=paused=false")
	start = time.Now()
	w.Apply(t)
	t.Logf("figures: the resume after a kill took %s", time.Since(start).Round(100*time.Millisecond))
	w.LearnMachines(t)
	if after := w.identity(t); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("it was %+v, it is %+v", before, after)
	}
	w.NoChanges(t)
}

func notRunning(state string) bool { return state != "running" }

func states(t *testing.T) (out []string) {
	t.Helper()
	for _, s := range instances(t) {
		out = append(out, s)
	}
	return out
}
