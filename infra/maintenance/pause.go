package maintenance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
)

// podGrace is how long containers may take to end before their machine is stopped. It is the
// default of a pod's terminationGracePeriodSeconds.
const podGrace = 30 * time.Second

// Pause makes all machines of a cluster ready for being stopped together: it ends the pods, stops
// the API servers, and then the etcd members, the leader last. Units stay enabled, so they start
// when their machine boots. Nothing is stopped before every machine has said what runs there. find
// finds that out, as [Find] does.
//
// What is stopped already is left alone. After an error nothing is started again: the next call
// continues.
func Pause(ctx context.Context, targets []fleet.Target, find func(context.Context, fleet.Target) (*Duty, error)) error {
	var mu sync.Mutex
	duties := map[string]*Duty{}
	errs := fleet.EachAll(ctx, targets, func(ctx context.Context, t fleet.Target) error {
		d, err := find(ctx, t)
		mu.Lock()
		defer mu.Unlock()
		duties[t.Name()] = d
		return err
	})
	if len(errs) > 0 {
		return &fleet.GuardError{Refused: "pause the cluster",
			Reason: fmt.Sprintf("it is not known what runs on %s (%v)", fleet.List(slices.Sorted(maps.Keys(errs))), errors.Join(slices.Collect(maps.Values(errs))...)),
			Advice: "nothing was stopped: repair it and apply again, or stop its instance yourself; a stopped machine need not answer"}
	}
	var machines []pausing
	for _, name := range slices.Sorted(maps.Keys(duties)) {
		machines = append(machines, pausing{name: name, units: duties[name].units, leads: duties[name].leads(ctx)})
	}
	for _, batch := range planPause(machines) {
		if err := fleet.Each(ctx, batch, func(ctx context.Context, s pauseStep) error { return duties[s.machine].pause(ctx, s.units) }); err != nil {
			return err
		}
	}
	return nil
}

// pausing is a machine of a cluster that is paused.
type pausing struct {
	name  string
	units []string // that are active
	leads bool     // its etcd member is the leader
}

// pauseStep stops units on one machine, one after the other.
type pauseStep struct {
	machine string
	units   []string
}

// planPause returns the stages of a pause. The steps of a stage are taken at the same time. It is
// pure.
func planPause(machines []pausing) [][]pauseStep {
	var out [][]pauseStep
	batch := func(of []pausing, units ...string) {
		var steps []pauseStep
		for _, m := range of {
			active := slices.DeleteFunc(slices.Clone(units), func(u string) bool { return !slices.Contains(m.units, u) })
			if len(active) > 0 {
				steps = append(steps, pauseStep{m.name, active})
			}
		}
		if len(steps) > 0 {
			out = append(out, steps)
		}
	}
	batch(machines, component.KubeletUnit)
	batch(machines, component.SchedulerUnit, component.ControllerManagerUnit)
	batch(machines, component.APIServerUnit)
	for _, leads := range []bool{false, true} {
		for _, m := range machines {
			if m.leads == leads {
				batch([]pausing{m}, component.EtcdUnit)
			}
		}
	}
	return out
}

// leads reports whether the machine's etcd member says that it is the leader.
func (d *Duty) leads(ctx context.Context) bool {
	if !d.does(component.EtcdUnit) {
		return false
	}
	c, err := d.etcd()
	if err != nil {
		return false
	}
	defer c.Close()
	s, err := c.Status(ctx)
	return err == nil && s.Leader == s.ID
}

// pause stops units for a pause.
func (d *Duty) pause(ctx context.Context, units []string) error {
	for _, u := range units {
		if u != component.KubeletUnit {
			if err := d.m.Stop(ctx, "pause", u); err != nil {
				return err
			}
			continue
		}
		d.m.Say("pause: ending the pods")
		err := fleet.Within(ctx, podGrace+fleet.GateBudget, "end of the pods", func(ctx context.Context) error {
			return deed.AskPodsToEnd(ctx, d.m.Remote, u, podGrace)
		})
		if err != nil {
			return d.m.UnitError(ctx, "end the pods", u, err)
		}
	}
	return nil
}
