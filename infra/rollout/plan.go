package rollout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
)

// Plan is the order of a roll-out: one stage after the other, the steps of a stage in parallel.
// Pure functions compute it from what was observed, before anything is changed.
type Plan []Batch

// Batch is a set of steps taken at the same time.
type Batch []Step

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

// Action is a kind of step. Roles have some of their own.
type Action struct {
	Name string // for people
	// Disturbs is set if the step stops something that runs.
	Disturbs bool
}

// The actions that several roles have.
var (
	// ActionInstall applies all changes to a machine that serves nothing yet.
	ActionInstall = Action{Name: "install"}
	// ActionQuiet applies changes that restart nothing.
	ActionQuiet = Action{Name: "apply without restart"}
	// ActionRoll applies changes that restart something.
	ActionRoll = Action{Name: "apply with restart", Disturbs: true}
)

func (a Action) String() string { return a.Name }

// String returns the plan for people, one line per step.
func (p Plan) String() string {
	var b strings.Builder
	for i, batch := range p {
		for _, s := range batch {
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

// Parallel adds the steps as one stage; no steps add no stage.
func (p Plan) Parallel(steps ...Step) Plan {
	if len(steps) == 0 {
		return p
	}
	return append(p, steps)
}

// Serial adds every step as a stage of its own.
func (p Plan) Serial(steps ...Step) Plan {
	for _, s := range steps {
		p = append(p, Batch{s})
	}
	return p
}

// Disturbs reports whether a step of the plan stops something that runs.
func (p Plan) Disturbs() bool {
	return p.has(func(s Step) bool { return s.Action.Disturbs })
}

// Starts reports whether a step of the plan starts or restarts something, so that it should be prepared. If none
// does, downloading ahead would only verify everything twice.
func (p Plan) Starts() bool { return p.has(Step.starts) }

func (p Plan) has(is func(Step) bool) bool {
	return slices.ContainsFunc(p, func(batch Batch) bool { return slices.ContainsFunc(batch, is) })
}

func (s Step) starts() bool { return s.Action.Disturbs || s.Action == ActionInstall }

// Machines returns the machine of each step.
func (s Batch) Machines() []string {
	var out []string
	for _, step := range s {
		out = append(out, step.Machine)
	}
	return out
}

// Stopped adds to the error that ended a roll-out the machines that no step has reached.
func Stopped(err error, taken, left []Step) error {
	if err == nil {
		return nil
	}
	var spared []string
	for _, s := range left {
		if s.Action.Disturbs && !slices.Contains(Batch(taken).Machines(), s.Machine) && !slices.Contains(spared, s.Machine) {
			spared = append(spared, s.Machine)
		}
	}
	if len(spared) == 0 {
		return err
	}
	return fmt.Errorf("%w\nthe roll stopped there; not touched: %s. Remove the cause and apply again: the roll continues from there",
		err, strings.Join(spared, ", "))
}
