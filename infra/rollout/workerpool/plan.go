package workerpool

import (
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// The actions that only workers have.
var (
	// actionReload applies changes of lists that units read again while they keep what they have set
	// up.
	actionReload = rollout.Action{Name: "reload"}
	// actionDrainRoll is ActionRoll between draining and uncordoning a node.
	actionDrainRoll = rollout.Action{Name: "drain, apply, uncordon", Disturbs: true}
)

// workerFacts is everything that decides a worker's place in a roll-out.
type workerFacts struct {
	name      string
	reachable bool
	running   bool // its kubelet is active
	unproven  bool // ... and no pod is known to have started since its units did
	unready   bool // ... and its node is not Ready
	reloads   bool // some changes only make units read a list again, such as the list of routes
	changes   bool // there are others
	rolls     bool // ... and some of these lists concern all pods of the node
	drain     bool // ... and some interrupt pods
}

// planWorkers orders the work on the workers: lists such as the list of routes, which also has routes to new
// nodes, all at once; machines whose kubelet does not run, all at once; changes that concern no pods, all at
// once; then the rest, at most Pool.MaxUnavailable at a time. Of these, nodes that are not Ready come first, since the
// gate of all others waits for them, and then nodes on which pods may be unable to start. They have the least to lose.
func planWorkers(workers []workerFacts) rollout.Plan {
	var reloads, first, quiet, rolls []rollout.Step
	rank := map[string]int{}
	for _, w := range workers {
		switch {
		case w.unready:
			rank[w.name] = 0
		case w.unproven:
			rank[w.name] = 1
		default:
			rank[w.name] = 2
		}
		if w.reachable && w.running && w.reloads {
			reloads = append(reloads, rollout.Step{Machine: w.name, Action: actionReload})
		}
		switch {
		case !w.reachable:
		case !w.running && (w.changes || w.reloads):
			first = append(first, rollout.Step{Machine: w.name, Action: rollout.ActionInstall, Why: "kubelet is not running"})
		case !w.changes:
		case w.drain:
			rolls = append(rolls, rollout.Step{Machine: w.name, Action: actionDrainRoll, Gate: fleet.GateOthers, Then: fleet.GateNodeReady})
		case w.rolls:
			rolls = append(rolls, rollout.Step{Machine: w.name, Action: rollout.ActionRoll, Gate: fleet.GateOthers, Then: fleet.GateNodeReady})
		default:
			quiet = append(quiet, rollout.Step{Machine: w.name, Action: rollout.ActionQuiet})
		}
	}
	slices.SortStableFunc(rolls, func(a, b rollout.Step) int { return rank[a.Machine] - rank[b.Machine] })
	return rollout.Plan{}.Parallel(reloads...).Parallel(first...).Parallel(quiet...).Parallel(rolls...)
}
