package etcdcluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// The actions that only etcd has.
var (
	// actionJoin makes a machine a new member: learner, start, promote.
	actionJoin = rollout.Action{Name: "join"}
	// actionSetAside stops a member and puts its data aside, when others are restored.
	actionSetAside = rollout.Action{Name: "set aside"}
	// actionMove starts a member with its data on a machine with another address.
	actionMove = rollout.Action{Name: "move"}
	// actionLeave removes from the etcd cluster a member that is no longer wanted or has lost its
	// data.
	actionLeave = rollout.Action{Name: "leave"}
	// actionCompact makes etcd forget old values. actionDefragment gives the space of free pages of
	// one member's database back. actionDisarm ends the alarm NOSPACE.
	actionCompact    = rollout.Action{Name: "compact"}
	actionDefragment = rollout.Action{Name: "defragment"}
	actionDisarm     = rollout.Action{Name: "disarm"}
	// actionMakeRestored makes the data of a restored member beside those in use.
	actionMakeRestored = rollout.Action{Name: "make restored data"}
	// actionUseRestored stops a member and puts the restored data in place of its own.
	actionUseRestored = rollout.Action{Name: "use restored data"}
)

// planNext computes the next stages. If no member answers, the plan only gets a cluster that
// answers. If there is an alarm, the plan only ends it. The rest is planned afterwards.
func planNext(f clusterFacts) (rollout.Plan, error) {
	switch {
	case f.members == nil:
		return planStart(f)
	case len(f.alarms) > 0:
		return planAlarm(f)
	}
	return planChange(f)
}

// planStart plans the start of a cluster of which no member answers. All members start at once,
// because a member's start completes only with a quorum.
func planStart(f clusterFacts) (rollout.Plan, error) {
	var withData, without, unreachable []string
	for _, w := range f.wanted {
		switch {
		case !w.reachable:
			unreachable = append(unreachable, w.name)
		case w.data:
			withData = append(withData, w.name)
		default:
			without = append(without, w.name)
		}
	}
	if err := guardStarted(f, withData, without); err != nil {
		return nil, err
	}
	n := len(f.wanted)
	// An alarm outlasts a restart, and can only be ended when the members run.
	starting, then := withData, fleet.GateServes
	why := "start the members that have data"
	if !f.formed && len(withData) < etcd.Quorum(n) {
		// No cluster has ever answered, and the members with data are too few to have formed one:
		// the first start was interrupted.
		starting, why, then = append(starting, without...), "first start", fleet.GateSelf
	}
	if len(starting) < etcd.Quorum(n) {
		if f.formed {
			return nil, &fleet.GuardError{Refused: "start etcd",
				Reason: fmt.Sprintf("the cluster has lost its quorum (members with data: %s; without: %s; unreachable: %s)",
					fleet.List(withData), fleet.List(without), fleet.List(unreachable)),
				Advice: "bring the unreachable machines back, or restore the cluster " + f.restoreWith() + "; starting empty members in their place would lose data"}
		}
		return nil, &fleet.GuardError{Refused: "start etcd",
			Reason: fmt.Sprintf("%d of %d machines can be reached, a quorum is %d (unreachable: %s)", len(starting), n, etcd.Quorum(n), fleet.List(unreachable)),
			Advice: "apply again when they answer"}
	}
	slices.Sort(starting)
	var steps []rollout.Step
	for _, name := range starting {
		steps = append(steps, rollout.Step{Machine: name, Action: rollout.ActionInstall, Why: why, Then: then})
	}
	return rollout.Plan{}.Parallel(steps...), nil
}

// restoreWith says how to ask for a restore.
func (f clusterFacts) restoreWith() string {
	if f.restored {
		return "with another trigger, snapshot or member in restore_from of k8s_etcd_cluster (the present one is done, and is not done again)"
	}
	return "with restore_from of k8s_etcd_cluster"
}

// guardStarted refuses to form a new cluster where a machine has been a member of one: no record says
// so if the Terraform state was lost.
func guardStarted(f clusterFacts, withData, without []string) error {
	var started, source []string
	for _, w := range f.wanted {
		if w.started {
			started = append(started, w.name)
			if w.data {
				source = append(source, w.name)
			}
		}
	}
	if f.formed || len(started) == 0 || len(withData) >= etcd.Quorum(len(f.wanted)) || len(without) == 0 {
		return nil
	}
	been, empty, restore := "has been a member", "has", "from a snapshot"
	if len(started) > 1 {
		been = "have been members"
	}
	if len(without) > 1 {
		empty = "have"
	}
	if len(source) > 0 {
		restore = fmt.Sprintf("= { member = %q }, or from a snapshot", source[0])
	}
	return &fleet.GuardError{Refused: "start a new cluster of etcd",
		Reason: fmt.Sprintf("%s %s of an existing cluster, as the file %s there says, and %s %s no data", fleet.List(started), been, component.EtcdBootstrapEnv, fleet.List(without), empty),
		Advice: fmt.Sprintf("if it is the same cluster, and the Terraform state was lost, list the machines of all its members in hosts, or import it; if they are gone, restore the cluster with restore_from %s; "+
			"if nobody needs the data, remove %s from hosts, or stop etcd and delete %s and %s there", restore, fleet.List(started), component.EtcdBootstrapEnv, memberDir)}
}

// planChange orders the work on a cluster that answers:
//
//   - changes that restart nothing, on members that restart later the rules of their packet filters;
//   - removing dead members, repairs, members that return with their data, and joins that make the
//     cluster whole again;
//   - changes with a restart, one at a time;
//   - joins of new members;
//   - defragmentation, one member at a time;
//   - removing healthy members that are not wanted, last, so that the cluster is
//     never smaller than it has to be.
//
// If it returns both a plan and an error, the error is about changes that the plan leaves out. The
// plan itself is safe and is carried out before the error is reported.
func planChange(f clusterFacts) (rollout.Plan, error) {
	if err := guardRelease(f); err != nil {
		return nil, err
	}
	if err := guardForeign(f); err != nil {
		return nil, err
	}
	if err := guardQuota(f); err != nil {
		return nil, err
	}
	var (
		quiet, repairs, rolls, joins []rollout.Step // repairs include joins that make the cluster whole again
		deadOut, livingOut           []removal
		unreachable                  []string
	)
	wanted := map[etcd.ID]bool{}
	for _, w := range f.wanted {
		m, listed := w.member().In(f.members)
		wanted[m.ID] = wanted[m.ID] || listed
		join := func(why string) rollout.Step {
			return rollout.Step{Machine: w.name, Action: actionJoin, Why: why, Gate: fleet.GateQuorum, Then: fleet.GateSelf}
		}
		switch {
		case !w.reachable:
			unreachable = append(unreachable, w.name)
		case listed && m.Started() && !w.data:
			deadOut = append(deadOut, removal{m, w.name, "member " + m.ID.String() + " has lost its data"})
			repairs = append(repairs, join("in place of member "+m.ID.String()))
		case listed && m.Started() && otherMembers(w.origin, m.ID):
			deadOut = append(deadOut, removal{m, w.name, fmt.Sprintf("member %s has lost its data: the data on the machine belong to member %s", m.ID, w.origin.Member)})
			repairs = append(repairs, join("in place of member "+m.ID.String()))
		case listed && m.Started() && !m.Learner && w.origin.Member == m.ID && !slices.Contains(m.PeerURLs, w.peerURL):
			repairs = append(repairs, rollout.Step{Machine: w.name, Action: actionMove, Gate: fleet.GateQuorum, Then: fleet.GateSelf,
				Why: fmt.Sprintf("member %s has its data, and listened on %s before", m.ID, strings.Join(m.PeerURLs, ","))})
		case listed && !slices.Contains(m.PeerURLs, w.peerURL):
			deadOut = append(deadOut, removal{m, w.name, fmt.Sprintf("member %s listens on %s, wanted %s", m.ID, strings.Join(m.PeerURLs, ","), w.peerURL)})
			repairs = append(repairs, join("with its new address"))
		case !listed:
			joins = append(joins, join("new member"))
		case m.Learner || !m.Started():
			repairs = append(repairs, join("added before, not a full member yet"))
		case w.changes && !w.running:
			repairs = append(repairs, rollout.Step{Machine: w.name, Action: rollout.ActionInstall, Why: w.notRunning(m.ID), Then: fleet.GateSelf})
		case w.restarts:
			if w.rules {
				quiet = append(quiet, rollout.Step{Machine: w.name, Action: rollout.ActionQuiet, Why: "its rules may shut out a new member"})
			}
			rolls = append(rolls, rollout.Step{Machine: w.name, Action: rollout.ActionRoll, Gate: fleet.GateOthers, Then: fleet.GateSelf})
		case w.changes:
			quiet = append(quiet, rollout.Step{Machine: w.name, Action: rollout.ActionQuiet})
		}
	}
	for _, m := range f.members {
		switch {
		case wanted[m.ID]:
		case f.healthy[m.ID]:
			livingOut = append(livingOut, removal{m, m.Label(), "not wanted any more"})
		default:
			deadOut = append(deadOut, removal{m, m.Label(), "not wanted any more"})
		}
	}
	if err := guardRemovals(f, deadOut, joining(repairs)+len(joins), livingOut); err != nil {
		return nil, err
	}
	var refused error
	if len(rolls) > 0 && len(unreachable) > 0 {
		refused = &fleet.GuardError{Refused: "restart etcd on " + fleet.List(rollout.Batch(rolls).Machines()),
			Reason: fmt.Sprintf("%s cannot be reached, and no second member may be down at the same time", fleet.List(unreachable)),
			Advice: "apply again when it answers"}
		rolls = nil
	}
	tidies := planDefragment(f, unreachable)
	leaderLast(rolls, f.leader)
	return rollout.Plan{}.Parallel(quiet...).
		Serial(removals(deadOut)...).
		Serial(repairs...).
		Serial(rolls...).
		Serial(joins...).
		Serial(tidies...).
		Serial(removals(livingOut)...), refused
}

func removals(list []removal) []rollout.Step {
	var out []rollout.Step
	for _, r := range list {
		out = append(out, rollout.Step{Machine: r.machine, Action: actionLeave, Why: r.why, Gate: fleet.GateQuorumAfter})
	}
	return out
}

// joining counts the members that will become voters.
func joining(steps []rollout.Step) int {
	n := 0
	for _, s := range steps {
		if s.Action == actionJoin {
			n++
		}
	}
	return n
}
