package etcdcluster

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// clusterFacts is everything that decides the order of an etcd roll-out.
type clusterFacts struct {
	wanted []memberFacts
	// release is the wanted release of every member.
	release version.Version
	// members is the cluster's member list. It is nil when no member answered: there is no cluster
	// yet, or it has no quorum.
	members []etcd.Member
	healthy map[etcd.ID]bool
	// leader is the name of the member that leads, "" if unknown.
	leader string
	// alarms are those that a member knows which follows a leader. repaired is set if a plan of this
	// apply has disarmed some.
	alarms   []etcd.Alarm
	repaired bool
	// quota is the wanted one. spaces has the databases of the members that answer, by machine, also
	// of those that leave.
	quota  int64
	spaces map[string]etcd.Space
	// restored is set if the restore that is configured has been done.
	restored bool
	// formed is set if the cluster is known to have existed.
	formed bool
	// cluster is the id of the cluster that answers, 0 if unknown. replaceData is set if data of
	// another one may be deleted.
	cluster     etcd.ID
	replaceData bool
}

// memberFacts is what is known about one machine that should be a member.
type memberFacts struct {
	name      string
	peerURL   string
	reachable bool
	running   bool        // its unit is active
	data      bool        // it has a data directory
	started   bool        // the settings of its first start say that it has been a member; only if no record says that there is a cluster
	origin    etcd.Origin // of the data, as far as known; only if the unit does not run
	changes   bool        // something differs
	restarts  bool        // ... and repairing it restarts etcd
	rules     bool        // ... and the rules of its packet filter change
	// release is the release the member runs, storage the release whose form its data have; zero if
	// unknown.
	release, storage version.Version
}

// member returns how to find a machine's member: by its name, or by its peer URL while the member
// has not started and has no name.
func (w memberFacts) member() etcd.Wanted { return etcd.Wanted{Name: w.name, PeerURL: w.peerURL} }

// removal is a member to remove.
type removal struct {
	member  etcd.Member
	machine string
	why     string
}

// guardRemovals refuses a sequence of removals and joins during which the members that are healthy
// now would at some moment be fewer than a quorum.
func guardRemovals(f clusterFacts, before []removal, joining int, after []removal) error {
	voters, healthy := 0, 0
	for _, m := range f.members {
		if !m.Learner {
			voters++
			if f.healthy[m.ID] {
				healthy++
			}
		}
	}
	take := func(list []removal) error {
		for _, r := range list {
			if r.member.Learner {
				continue
			}
			voters--
			if f.healthy[r.member.ID] {
				healthy--
			}
			if voters == 0 || healthy < etcd.Quorum(voters) {
				return &fleet.GuardError{Refused: "remove etcd member " + r.machine,
					Reason: fmt.Sprintf("%[2]d of the %[1]d voters that would remain are healthy, and a quorum is %[3]d", voters, healthy, etcd.Quorum(voters)),
					Advice: "repair or bring back the other members first, and replace one machine at a time"}
			}
		}
		return nil
	}
	if err := take(before); err != nil {
		return err
	}
	voters, healthy = voters+joining, healthy+joining
	return take(after)
}

// guardRelease refuses a release to which a member cannot go in one step, and one that cannot read
// a member's data. While one member runs the earlier minor, the data keep its form and all can go
// back (https://etcd.io/docs/v3.7/upgrades/upgrade_3_7/).
func guardRelease(f clusterFacts) error {
	for _, w := range f.wanted {
		var err error
		switch {
		case w.storage.Minor() == f.release.Minor() && w.release.Minor() > f.release.Minor():
			err = version.CheckEtcdUpgrade(f.release, w.release) // a downgrade halfway: the wanted release must work with this member
		case w.storage.Compare(f.release) > 0 && w.storage.Minor() != f.release.Minor():
			err = version.CheckEtcdUpgrade(w.storage, f.release)
		case !w.release.IsZero() && w.release.Compare(f.release) < 0:
			err = version.CheckEtcdUpgrade(w.release, f.release)
		}
		if err != nil {
			return &fleet.GuardError{Refused: "roll etcd to " + f.release.String(), Reason: fmt.Sprintf("the member on %s: %v", w.name, err)}
		}
	}
	return nil
}

// leaderLast moves the leader's step to the end, so that the leadership changes only once. A write
// in progress during a change can be lost; its client gets "etcdserver: request timed out" after
// seven seconds.
func leaderLast(steps []rollout.Step, leader string) {
	slices.SortStableFunc(steps, func(a, b rollout.Step) int {
		return cmp.Compare(btoi(a.Machine == leader), btoi(b.Machine == leader))
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
