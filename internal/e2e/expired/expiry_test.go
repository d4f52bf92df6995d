package expired_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// testExpires gives the cluster a time, which restarts nothing. Then all machines power themselves off. The plan is empty
// and says why nothing runs, and a later time starts the same cluster.
func (w *world) testExpires(t *testing.T) {
	w.right()
	at := func(when time.Time) string { return "-var=expires_at=" + when.UTC().Format(time.RFC3339) }
	units := w.Units(t)
	ends := time.Now().Add(75 * time.Second)
	w.Apply(t, at(ends))
	t.Logf("it was set %s before", time.Until(ends).Round(time.Second))
	if restarted := harness.Restarted(units, w.Units(t)); len(restarted) > 0 {
		t.Errorf("restarted: %q", restarted)
	}
	changes, text, err := w.WS.Plan(t.Context(), at(ends))
	if err != nil || changes {
		t.Errorf("before: changes %t, %v\n%s", changes, err, text)
	}
	if time.Now().After(ends) {
		t.Fatal("the apply and the plan took too long to see them")
	}
	for off := false; !off; time.Sleep(time.Second) {
		off = true
		for name, state := range instances(t) {
			if state == "stopped" && time.Now().Before(ends) {
				t.Errorf("%s stopped before its time", name)
			}
			off = off && state == "stopped"
		}
		if late := time.Since(ends); late > 3*time.Minute {
			t.Fatalf("after %s the instances are %v", late, instances(t))
		}
	}
	t.Logf("figures: all instances had stopped %s after expires_at", time.Since(ends).Round(time.Second))

	start := time.Now()
	changes, text, err = w.WS.Plan(t.Context(), at(ends))
	if err != nil || changes || strings.Count(text, "Warning") != 1 || !strings.Contains(text, "The cluster has expired") {
		t.Errorf("after: changes %t, %v\n%s", changes, err, text)
	}
	t.Logf("the plan of the expired cluster took %s", time.Since(start).Round(100*time.Millisecond))
	_, text, err = w.WS.Plan(t.Context(), at(ends), "-var=kubernetes_version=1.37.1")
	if err == nil || !strings.Contains(text+err.Error(), "a later expires_at") {
		t.Errorf("an upgrade of the expired cluster: %v\n%s", err, text)
	}

	later := at(time.Now().Add(24 * time.Hour))
	w.Apply(t, later)
	w.LearnMachines(t)
	if after := w.identity(t); !reflect.DeepEqual(after, w.before) {
		t.Errorf("it was %+v, it is %+v", w.before, after)
	}
	changes, text, err = w.WS.Plan(t.Context(), later)
	if err != nil || changes {
		t.Errorf("resumed: changes %t, %v\n%s", changes, err, text)
	}
	w.Apply(t) // for the steps that follow
}
