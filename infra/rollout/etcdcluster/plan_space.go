package etcdcluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// planDefragment plans the defragmentation of the databases that want it, the leader's last. The
// member does not answer in the meantime, so it waits while a machine cannot be reached: the drift
// stays for the next apply.
func planDefragment(f clusterFacts, unreachable []string) []rollout.Step {
	if len(unreachable) > 0 {
		return nil
	}
	var steps []rollout.Step
	for _, w := range f.wanted {
		m, listed := w.member().In(f.members)
		space, answers := f.spaces[w.name]
		if listed && !m.Learner && w.running && w.data && answers && space.Fragmented() {
			steps = append(steps, rollout.Step{Machine: w.name, Action: actionDefragment, Why: space.String(), Gate: fleet.GateOthers, Then: fleet.GateSelf})
		}
	}
	leaderLast(steps, f.leader)
	return steps
}

// planAlarm plans the end of the alarm NOSPACE:
//
//   - changes that restart nothing, and starting stopped members, whose databases count as well;
//   - if the wanted quota is larger, the restarts that bring it, one at a time;
//   - otherwise a compaction, and then defragmentation, one member at a time;
//   - disarming, which is refused if a database is still full.
//
// Its gates count a member with an alarm as long as it serves reads: otherwise none would open. An
// alarm that only a person can end is an error.
func planAlarm(f clusterFacts) (rollout.Plan, error) {
	if err := guardAlarms(f); err != nil {
		return nil, err
	}
	if err := guardRelease(f); err != nil {
		return nil, err
	}
	var quiet, starts, rolls []rollout.Step
	all := true // machines can be reached
	for _, w := range f.wanted {
		m, listed := w.member().In(f.members)
		switch {
		case !w.reachable:
			all = false
		case !listed || m.Learner || !m.Started() || !w.data || otherMembers(w.origin, m.ID) || !slices.Contains(m.PeerURLs, w.peerURL):
			// It joins when the alarm has ended.
		case w.changes && !w.running:
			starts = append(starts, rollout.Step{Machine: w.name, Action: rollout.ActionInstall, Why: "not running", Then: fleet.GateServes})
		case w.restarts:
			rolls = append(rolls, rollout.Step{Machine: w.name, Action: rollout.ActionRoll, Why: "larger quota", Gate: fleet.GateOthersServe, Then: fleet.GateServes})
		case w.changes:
			quiet = append(quiet, rollout.Step{Machine: w.name, Action: rollout.ActionQuiet})
		}
	}
	plan := rollout.Plan{}.Parallel(quiet...).Serial(starts...)
	asked := slices.DeleteFunc(slices.Sorted(maps.Keys(f.spaces)), func(name string) bool {
		m, _ := memberNamed(f.members, name)
		return m.Learner // etcd: rpc not supported for learner
	})
	for _, s := range starts {
		if !slices.Contains(asked, s.Machine) {
			asked = append(asked, s.Machine)
		}
	}
	if len(asked) == 0 {
		return nil, &fleet.GuardError{Refused: "end the alarm of etcd", Reason: "no member tells how full its database is", Advice: "apply again when they answer"}
	}
	grows := slices.ContainsFunc(rolls, func(s rollout.Step) bool { return f.quota > f.spaces[s.Machine].Quota && f.spaces[s.Machine].Quota > 0 })
	if grows && all {
		leaderLast(rolls, f.leader)
		plan = plan.Serial(rolls...)
	} else {
		plan = plan.Serial(rollout.Step{Machine: asked[0], Action: actionCompact, Why: "forget old values", Gate: fleet.GateQuorumServes})
		var defragments []rollout.Step
		for _, name := range asked {
			defragments = append(defragments, rollout.Step{Machine: name, Action: actionDefragment, Why: f.spaces[name].String(), Gate: fleet.GateQuorumServes, Then: fleet.GateServes})
		}
		leaderLast(defragments, f.leader)
		plan = plan.Serial(defragments...)
	}
	return plan.Serial(rollout.Step{Machine: asked[0], Action: actionDisarm, Why: string(etcd.NoSpace), Gate: fleet.GateQuorumServes}), nil
}

// guardQuota refuses a lower quota that the database of a member is about to reach: the member would
// raise NOSPACE as soon as it starts.
func guardQuota(f clusterFacts) error {
	for _, name := range slices.Sorted(maps.Keys(f.spaces)) {
		if s := f.spaces[name]; s.Quota > f.quota && s.Size > f.quota/10*9 {
			return &fleet.GuardError{Refused: "lower the quota of etcd to " + etcd.SizeWords(f.quota), Reason: "the database of " + name + " has " + etcd.SizeWords(s.Size),
				Advice: fmt.Sprintf("set quota_mib to at least %d", s.Size/9*10>>20+1)}
		}
	}
	return nil
}

// guardAlarms refuses to go on with an alarm that no plan can end.
func guardAlarms(f clusterFacts) error {
	var types []string
	for _, a := range f.alarms {
		if a.Type != etcd.NoSpace && !slices.Contains(types, string(a.Type)) {
			types = append(types, string(a.Type))
		}
	}
	switch {
	case slices.Contains(types, string(etcd.Corrupt)):
		return &fleet.GuardError{Refused: "change etcd", Reason: "it has the alarm CORRUPT: the data of the members differ, and nobody but you can tell which are right",
			Advice: fleet.CorruptAdvice}
	case len(types) > 0:
		return &fleet.GuardError{Refused: "change etcd", Reason: "it has an alarm that this provider does not know: " + strings.Join(types, ", "),
			Advice: "end it (etcdctl alarm list, etcdctl alarm disarm), then apply again"}
	case f.repaired:
		return &fleet.GuardError{Refused: "go on", Reason: "etcd raised the alarm NOSPACE again as soon as it was disarmed: something writes much to it",
			Advice: fmt.Sprintf("find out what (kubectl get --raw /metrics has apiserver_storage_objects), or raise quota_mib above %d, and apply again", f.quota>>20)}
	}
	return nil
}
