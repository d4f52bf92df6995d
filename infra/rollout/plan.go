package rollout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
)

// Plan is the order of a roll-out: one stage after the other, the steps of a stage in parallel.
// Pure functions compute it from what was observed, before anything is changed.
type Plan []Stage

// Stage is a set of steps taken at the same time. Steps that disturb pods on workers are limited to
// [Workers].MaxUnavailable at a time.
type Stage []Step

// Step is what happens to one machine.
type Step struct {
	Machine string
	Action  Action
	// Why is the reason for the step, in words.
	Why string
	// Gate must hold before the step, Then after it. A gate that does not open within its budget
	// ends the roll-out.
	Gate, Then fleet.Gate
}

// Action is a kind of step.
type Action string

// The actions.
const (
	// ActionInstall applies all changes to a machine that serves nothing yet.
	ActionInstall Action = "install"
	// ActionQuiet applies changes that restart nothing.
	ActionQuiet Action = "apply without restart"
	// ActionReload applies changes of lists that units take over while they keep what they have set up.
	ActionReload Action = "reload"
	// ActionRoll applies changes that restart something.
	ActionRoll Action = "apply with restart"
	// ActionRollManagers is ActionRoll for the changes that concern only a controller manager or
	// scheduler.
	ActionRollManagers Action = "apply to managers"
	// ActionDrainRoll is ActionRoll between draining and uncordoning a node.
	ActionDrainRoll Action = "drain, apply, uncordon"
	// ActionJoin makes a machine a new member: learner, start, promote.
	ActionJoin Action = "join"
	// ActionSetAside stops a member and puts its data aside, when others are restored.
	ActionSetAside Action = "set aside"
	// ActionMove starts a member with its data on a machine with another address.
	ActionMove Action = "move"
	// ActionLeave removes from the etcd cluster a member that is no longer wanted or has lost its
	// data.
	ActionLeave Action = "leave"
	// ActionCompact makes etcd forget old values. ActionDefragment gives the space of free pages of
	// one member's database back. ActionDisarm ends the alarm NOSPACE.
	ActionCompact    Action = "compact"
	ActionDefragment Action = "defragment"
	ActionDisarm     Action = "disarm"
	// ActionStageRestore makes the data of a restored member beside those in use.
	ActionStageRestore Action = "make restored data"
	// ActionUseRestored stops a member and puts the restored data in place of its own.
	ActionUseRestored Action = "use restored data"
)

// String returns the plan for people, one line per step.
func (p Plan) String() string {
	var b strings.Builder
	for i, stage := range p {
		for _, s := range stage {
			fmt.Fprintf(&b, "%d. %s\n", i+1, s)
		}
	}
	return b.String()
}

func (s Step) String() string {
	out := fmt.Sprintf("%s: %s", s.Machine, s.Action)
	if s.Why != "" {
		out += " (" + s.Why + ")"
	}
	if s.Gate != fleet.GateNone {
		out += ", when " + string(s.Gate)
	}
	if s.Then != fleet.GateNone {
		out += ", then wait: " + string(s.Then)
	}
	return out
}

// parallel adds the steps as one stage; no steps add no stage.
func (p Plan) parallel(steps ...Step) Plan {
	if len(steps) == 0 {
		return p
	}
	return append(p, steps)
}

// serial adds every step as a stage of its own.
func (p Plan) serial(steps ...Step) Plan {
	for _, s := range steps {
		p = append(p, Stage{s})
	}
	return p
}

// disturbs reports whether a step of the plan stops something that runs. If none does, downloading
// ahead would only verify everything twice.
func (p Plan) disturbs() bool {
	return slices.ContainsFunc(p, func(stage Stage) bool {
		return slices.ContainsFunc(stage, func(s Step) bool { return s.Action.disturbs() })
	})
}

func (a Action) disturbs() bool {
	return a == ActionRoll || a == ActionRollManagers || a == ActionDrainRoll
}

// stopped adds to the error that ended a roll-out the machines that no step has reached.
func stopped(err error, taken, left []Step) error {
	if err == nil {
		return nil
	}
	var spared []string
	for _, s := range left {
		if s.Action.disturbs() && !slices.Contains(names(taken), s.Machine) && !slices.Contains(spared, s.Machine) {
			spared = append(spared, s.Machine)
		}
	}
	if len(spared) == 0 {
		return err
	}
	return fmt.Errorf("%w\nthe roll stopped there; not touched: %s. Remove the cause and apply again: the roll continues from there",
		err, strings.Join(spared, ", "))
}
