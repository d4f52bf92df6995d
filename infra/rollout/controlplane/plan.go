package controlplane

import (
	"fmt"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// guardKubernetes refuses a release to which the running API servers cannot go in one step. While
// one of them runs the earlier minor, all can go back, because the objects are stored in a form
// that this server can read. silent are the machines whose API server does not answer.
func guardKubernetes(wanted version.Version, serving []version.Version, silent []string) error {
	if len(serving) == 0 {
		return nil
	}
	oldest := slices.MinFunc(serving, version.Version.Compare)
	err := version.CheckUpgrade(oldest, wanted)
	if err == nil {
		return nil
	}
	refusal := &fleet.GuardError{Refused: "roll the API servers to " + wanted.String(), Reason: err.Error()}
	if wanted.Compare(oldest) < 0 {
		refusal.Advice = "go on to " + slices.MaxFunc(serving, version.Version.Compare).String()
		if len(silent) > 0 {
			refusal.Advice += fmt.Sprintf(", or bring back %s, where the API server does not answer and may still have the earlier release", fleet.List(silent))
		}
	}
	return refusal
}

// actionRollManagers is ActionRoll for the changes that concern only a controller manager or
// scheduler.
var actionRollManagers = rollout.Action{Name: "apply to managers", Disturbs: true}

// actionProve changes nothing: only the gate after it counts.
var actionProve = rollout.Action{Name: "ask again"}

// controllerFacts is everything that decides a controller's place in a roll-out.
type controllerFacts struct {
	name      string
	reachable bool
	serving   bool // its API server's unit is active
	changes   bool // something differs that does not concern only the managers
	restarts  bool // ... and repairing it restarts the API server
	managers  bool // something differs that concerns only the controller manager or the scheduler
	unproven  bool // it is not known whether the load balancer sends clients to it since it was changed
}

// planControlPlane orders the work on the controllers. If no API server runs, all are installed at
// once. Otherwise the controllers whose API server does not run come first: changing them
// interrupts nothing and shows whether the change works. Then come the other API servers, one at a
// time. The controller managers and schedulers come last, one at a time, because they may be older
// than the API servers but never newer.
//
// A roll that stopped because the load balancer does not send clients to a changed API server stops there
// again: that API server is repaired first, or else asked again before the others are changed.
//
// If it returns both a plan and an error, the error is about changes that the plan leaves out.
func planControlPlane(controllers []controllerFacts) (rollout.Plan, error) {
	serving := 0
	for _, c := range controllers {
		if c.serving {
			serving++
		}
	}
	var first, quiet, prove, repairs, rolls, managers []rollout.Step
	var gone []string
	for _, c := range controllers {
		switch {
		case !c.reachable:
			gone = append(gone, c.name)
		case !c.serving && (c.changes || c.managers || serving == 0):
			why := "not serving"
			if serving == 0 {
				why = "none serves yet"
			}
			first = append(first, rollout.Step{Machine: c.name, Action: rollout.ActionInstall, Why: why, Then: fleet.GateSelf})
		default:
			switch {
			case c.restarts && c.unproven:
				repairs = append(repairs, roll(c.name))
			case c.restarts:
				rolls = append(rolls, roll(c.name))
			case c.changes:
				quiet = append(quiet, rollout.Step{Machine: c.name, Action: rollout.ActionQuiet})
			}
			if c.unproven && !c.restarts {
				prove = append(prove, rollout.Step{Machine: c.name, Action: actionProve, Why: "changed before, and not known to be behind the load balancer", Then: fleet.GateSelf})
			}
			if c.managers {
				managers = append(managers, rollout.Step{Machine: c.name, Action: actionRollManagers})
			}
		}
	}
	rolls = slices.Concat(repairs, rolls)
	var refused error
	if len(gone) > 0 && len(rolls) > 0 && serving < 2 {
		refused = &fleet.GuardError{Refused: "restart the API server on " + fleet.List(rollout.Batch(rolls).Machines()),
			Reason: "it is the only one that serves, and " + fleet.List(gone) + " cannot be reached",
			Advice: "apply again when they answer"}
		rolls, managers = nil, nil
	}
	return rollout.Plan{}.Parallel(first...).Parallel(quiet...).Parallel(prove...).Serial(rolls...).Serial(managers...), refused
}

func roll(machine string) rollout.Step {
	return rollout.Step{Machine: machine, Action: rollout.ActionRoll, Gate: fleet.GateOthers, Then: fleet.GateSelf}
}
