package maintenance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
)

// TestPauseOrder: workers stop first, then the clients of the API servers, then the API servers,
// then etcd with its leader last. Units that do not run are not stopped.
func TestPauseOrder(t *testing.T) {
	t.Parallel()
	worker := []string{component.ContainerdUnit, component.KubeletUnit, component.KubeProxyUnit}
	controller := []string{component.EtcdUnit, component.APIServerUnit, component.ControllerManagerUnit, component.SchedulerUnit}
	for _, tt := range []struct {
		name     string
		machines []pausing
		want     string
	}{
		{"a cluster", []pausing{{"c-0", controller, false}, {"c-1", controller, true}, {"c-2", controller, false}, {"w-0", worker, false}, {"w-1", worker, false}},
			"w-0 kubelet, w-1 kubelet | c-0 kube-scheduler kube-controller-manager, c-1 kube-scheduler kube-controller-manager, c-2 kube-scheduler kube-controller-manager | " +
				"c-0 kube-apiserver, c-1 kube-apiserver, c-2 kube-apiserver | c-0 etcd | c-2 etcd | c-1 etcd"},
		{"interrupted after the API servers", []pausing{{"c-0", []string{component.EtcdUnit}, true}, {"c-1", []string{component.EtcdUnit}, false}, {"w-0", []string{component.ContainerdUnit}, false}},
			"c-1 etcd | c-0 etcd"},
		{"one machine for everything", []pausing{{"m", slices.Concat(controller, worker), true}},
			"m kubelet | m kube-scheduler kube-controller-manager | m kube-apiserver | m etcd"},
		{"nothing runs", []pausing{{"c-0", nil, false}}, ""},
	} {
		var batches []string
		for _, batch := range planPause(tt.machines) {
			var steps []string
			for _, s := range batch {
				steps = append(steps, s.machine+" "+strings.ReplaceAll(strings.Join(s.units, " "), ".service", ""))
			}
			batches = append(batches, strings.Join(steps, ", "))
		}
		if got := strings.Join(batches, " | "); got != tt.want {
			t.Errorf("%s: %s\nwanted %s", tt.name, got, tt.want)
		}
	}
}

// TestPauseAsksAllFirst: a machine that does not answer keeps all of them running.
func TestPauseAsksAllFirst(t *testing.T) {
	t.Parallel()
	var targets []fleet.Target
	for _, n := range []string{"controller-0", "worker-0"} {
		targets = append(targets, fleet.Target{Node: component.Node{Name: n}})
	}
	err := Pause(t.Context(), targets, func(_ context.Context, to fleet.Target) (*Duty, error) {
		if to.Name() == "worker-0" {
			return nil, errors.New("no route to host")
		}
		return &Duty{units: []string{component.EtcdUnit}}, nil // it has no connection: stopping a unit there would panic
	})
	var refused *fleet.GuardError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "it is not known what runs on worker-0 (no route to host)") {
		t.Errorf("it says %v", err)
	}
}

// TestPauseOnce: all machines of a cluster share one pause; a failure is shared by those that wait
// for it, and a start ends it.
func TestPauseOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var clusters Clusters
		turns := clusters.Turns("demo")
		var calls int
		result := errors.New("no answer")
		begun, proceed := make(chan struct{}), make(chan struct{})
		do := func(context.Context) error {
			calls++
			if calls == 1 {
				close(begun)
				<-proceed
				return result
			}
			return nil
		}
		var wg sync.WaitGroup
		errs := make([]error, 3)
		wg.Go(func() { errs[0] = turns.Pause(t.Context(), do) })
		<-begun
		for i := 1; i < 3; i++ {
			wg.Go(func() { errs[i] = turns.Pause(t.Context(), do) })
		}
		time.Sleep(time.Second) // they wait by now
		close(proceed)
		wg.Wait()
		if calls != 1 || slices.ContainsFunc(errs, func(err error) bool { return !errors.Is(err, result) }) {
			t.Fatalf("%d calls, %v", calls, errs)
		}
		for range 2 {
			if err := turns.Pause(t.Context(), do); err != nil || calls != 2 {
				t.Fatalf("%d calls, %v", calls, err)
			}
		}
		turns.Start("worker-0")()
		if err := turns.Pause(t.Context(), do); err != nil || calls != 3 {
			t.Errorf("%d calls, %v", calls, err)
		}
	})
}
