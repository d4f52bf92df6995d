package etcdcluster

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/snapshot"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// Restore says from what an etcd cluster is restored: from a snapshot in S3, or from the data of
// one member. The zero value means that nothing is restored. A restore is done once.
type Restore struct {
	Bucket   string
	Prefix   string // default snapshot.Prefix of Cluster
	Snapshot string // its name; empty means the newest one
	Region   string // the bucket's
	Endpoint string // URL to which bucket and key are appended; default: that of S3 in the region
	// Cluster is the name of the cluster whose snapshot it is; empty means this one.
	Cluster string
	// Member is the machine whose data are used, instead of a snapshot.
	Member string
	// ReplaceData allows data that members still have to be replaced.
	ReplaceData bool
	// Nodes are the nodes that still exist. The others are deleted from what is restored. Nil means
	// all of them if the etcd cluster existed before, and none if it is new.
	Nodes []string
	// Trigger is any text. Another text is another restore.
	Trigger string
}

// Wanted reports whether something is to be restored.
func (r Restore) Wanted() bool { return r.Bucket != "" || r.Member != "" }

// complete returns what is to be restored, with its defaults.
func (r Restore) complete(cluster string) Restore {
	if r.Bucket != "" {
		r.Cluster = cmp.Or(r.Cluster, cluster)
		r.Prefix = cmp.Or(r.Prefix, snapshot.Prefix(r.Cluster))
		r.Endpoint = strings.TrimSuffix(cmp.Or(r.Endpoint, snapshot.Endpoint(r.Region)), "/")
	}
	return r
}

// mayReplace reports whether data of others on a member may be replaced: until the restore that allows it is
// done on all of them. done is the last restore, if any; r is complete.
func mayReplace(done *rollout.Restored, r Restore) bool {
	return r.Wanted() && r.ReplaceData && (done == nil || !done.Ended || done.Mark != r.mark())
}

// Source says for people from what a cluster is restored.
func (r Restore) Source(cluster string) string { return r.complete(cluster).source() }

// Another reports whether r is another restore of the cluster than before, so that it has still to
// be done.
func (r Restore) Another(before Restore, cluster string) bool {
	return r.Wanted() && (!before.Wanted() || r.complete(cluster).mark() != before.complete(cluster).mark())
}

// source says for people from what is restored.
func (r Restore) source() string {
	switch {
	case r.Member != "":
		return "the data of " + r.Member
	case r.Snapshot == "":
		return "the newest snapshot in s3://" + r.Bucket + "/" + r.Prefix
	}
	return "s3://" + r.Bucket + "/" + r.Prefix + r.Snapshot + snapshot.DataSuffix
}

// mark identifies a restore. How the bucket is reached, which data may be replaced and which nodes
// are kept does not make another one.
func (r Restore) mark() string {
	text, err := json.Marshal([]string{r.Bucket, r.Prefix, r.Snapshot, r.Member, r.Trigger})
	if err != nil {
		panic(err) // strings can be encoded
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:32]
}

// restoreFacts is everything that decides whether and how a restore goes on.
type restoreFacts struct {
	restore Restore
	// formed is set if the cluster is known to have existed.
	formed bool
	// answers is set if a cluster answers, begun if it is one that this restore has made, and done if
	// nothing of the restore is left to do.
	answers, begun, done bool
	members              []restoreMember
	// leaving are machines that answer and are no members any more, joined those of them whose data this
	// restore has made: they are members of the restored cluster.
	leaving, joined []string
}

// restoreMember is what is known of one machine of the new cluster.
type restoreMember struct {
	name      string
	reachable bool
	data      bool // it has a data directory
	restored  bool // ... which this restore has made
}

// planRestore computes what a restore that is not recorded yet has still to do. Data are made beside
// those in use on every machine before one is stopped, and nothing starts before all of them have
// their data. Nor does a member start while a machine that leaves may serve the earlier data: these
// are put aside first. An empty plan means that the restored cluster answers.
func planRestore(f restoreFacts) (rollout.Plan, error) {
	var unreachable, theirs, restored, ours []string
	for _, m := range f.members {
		if f.restore.Member == "" || f.restore.Member == m.name {
			ours = append(ours, m.name)
		}
		switch {
		case !m.reachable:
			unreachable = append(unreachable, m.name)
		case m.restored:
			restored = append(restored, m.name)
		case m.data:
			theirs = append(theirs, m.name)
		}
	}
	refuse := func(reason, advice string) error {
		return &fleet.GuardError{Refused: "restore etcd from " + f.restore.source(), Reason: reason, Advice: advice}
	}
	if f.done {
		return nil, nil
	}
	if len(f.joined) > 0 {
		return nil, refuse("it is not done yet, and hosts does not list "+fleet.List(f.joined)+" any more, which the restored cluster has",
			"list them until an apply has restored the cluster, and shorten hosts in another apply")
	}
	if len(f.leaving) > 0 && !f.restore.ReplaceData {
		return nil, refuse("hosts does not list "+fleet.List(f.leaving)+" any more, whose data would be deleted",
			"restore first, and shorten hosts in another apply. If nobody needs the data, set restore_from.replace_data = true")
	}
	if f.begun { // what remains to be done is done through the cluster, but for members with older data
		left := slices.DeleteFunc(theirs, func(name string) bool { return !slices.Contains(ours, name) })
		if len(left) > 0 && !f.restore.ReplaceData {
			return nil, refuse("there are data on "+fleet.List(left)+" that this restore has not made", "set restore_from.replace_data = true")
		}
		return planRestored(f.restore, left, f.leaving, left), nil
	}
	if len(unreachable) > 0 {
		return nil, refuse(fleet.List(unreachable)+" cannot be reached, so it is not known whether members of the present cluster run there",
			"bring the machines back, replace them, or remove them from hosts, with restore_from.replace_data = true if they still exist")
	}
	if err := guardReplaced(f, theirs, refuse); err != nil {
		return nil, err
	}
	without := func(list, these []string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(name string) bool { return slices.Contains(these, name) })
	}
	return planRestored(f.restore, without(ours, restored), slices.Concat(without(theirs, ours), f.leaving), ours), nil
}

// planRestored makes the data of some members, puts those of others aside, and starts those that have
// restored data then.
func planRestored(r Restore, made, aside, started []string) rollout.Plan {
	var batch, use, start []rollout.Step
	for _, name := range made {
		batch = append(batch, rollout.Step{Machine: name, Action: actionMakeRestored, Why: "from " + r.source()})
		use = append(use, rollout.Step{Machine: name, Action: actionUseRestored})
	}
	for _, name := range aside {
		use = append(use, rollout.Step{Machine: name, Action: actionSetAside})
	}
	for _, name := range started {
		start = append(start, rollout.Step{Machine: name, Action: rollout.ActionInstall, Why: "restored", Then: fleet.GateSelf})
	}
	return rollout.Plan{}.Parallel(batch...).Parallel(use...).Parallel(start...)
}

// guardReplaced refuses to replace data of members unless that is allowed. theirs are the machines
// with such data.
func guardReplaced(f restoreFacts, theirs []string, refuse func(reason, advice string) error) error {
	r := f.restore
	if r.Member != "" {
		i := slices.IndexFunc(f.members, func(m restoreMember) bool { return m.name == r.Member })
		switch {
		case i < 0:
			return refuse("it is none of the members", "name one of hosts")
		case !f.members[i].data:
			return refuse("it has no data of a member", "name a machine that has, or restore a snapshot")
		case f.answers:
			return refuse("the cluster answers and has all its data", "remove restore_from: members without data join it")
		}
		theirs = slices.DeleteFunc(slices.Clone(theirs), func(name string) bool { return name == r.Member })
	}
	switch {
	case r.ReplaceData && f.answers && r.Snapshot == "":
		return refuse("a cluster answers, and the newest snapshot may be a snapshot of it", "name the snapshot that you mean with restore_from.snapshot")
	case r.ReplaceData || len(theirs) == 0:
		return nil
	case f.answers:
		return refuse("the cluster answers, and everything written since the snapshot would be lost",
			"remove restore_from, or set restore_from.replace_data = true to go back to the snapshot")
	case f.formed && len(theirs) >= etcd.Quorum(len(f.members)):
		return refuse(fleet.List(theirs)+" have data, enough for a quorum, although the cluster does not answer",
			"remove restore_from and apply: that starts the members. If it does not help, set restore_from.replace_data = true")
	case r.Member == "":
		return refuse("there are data on "+fleet.List(theirs)+", which may be newer than the snapshot",
			fmt.Sprintf("restore from them with restore_from = { member = %q }, or set restore_from.replace_data = true", theirs[0]))
	}
	return refuse("there are data on "+fleet.List(theirs)+" too, which may be newer",
		"compare the machines, then set restore_from.replace_data = true")
}

// checkRestoreRoom refuses a snapshot for which a machine has no room: the object and the data that are
// made from it are on its disk at the same time, beside the data in use.
func checkRestoreRoom(machine string, room host.FileRoom, d snapshot.Description) error {
	need := deed.RoomForSnapshot(d.Size)
	if room.For() >= need {
		return nil
	}
	return &fleet.GuardError{Refused: "restore snapshot " + d.Name + " on " + machine,
		Reason: fmt.Sprintf("the file system of %s has %d bytes free, and %d are needed: twice the snapshot's %d, and something for the log", component.EtcdDataDir, room.For(), need, d.Size),
		Advice: fmt.Sprintf("nothing has been changed: enlarge the volume, or make room (%[1]s/replaced-* have the data from before earlier restores, %[1]s/restore what an interrupted one has made), and apply again", component.EtcdDataDir)}
}

// checkSnapshot refuses a snapshot that the cluster could not use: another cluster's, one of a later
// etcd, and one with secrets that nobody could read. keys are the fingerprints of the cluster's
// encryption keys, by their names in the key store.
func checkSnapshot(d snapshot.Description, cluster, etcdVersion string, keys map[string]string) error {
	if d.Cluster != cluster {
		return fmt.Errorf("it is a snapshot of cluster %s, not of %s: if that is meant, set restore_from.cluster = %q", d.Cluster, cluster, d.Cluster)
	}
	have, err := version.Parse(d.EtcdVersion)
	if err != nil {
		return fmt.Errorf("the release of its etcd: %w", err)
	}
	want, err := version.Parse(etcdVersion)
	if err != nil {
		return err
	}
	if err := version.CheckEtcdUpgrade(have, want); err != nil && have.Minor() != want.Minor() {
		return fmt.Errorf("it is of etcd %s: %w", d.EtcdVersion, err)
	}
	for _, k := range d.EncryptionKeys {
		switch has, ok := keys[k.Name]; {
		case !ok:
			return fmt.Errorf("its secrets may need the encryption key %s, which the cluster does not have: "+
				"restore the key store from the copy of that time, see the guide on restoring", k.Name)
		case has != k.SHA256:
			return fmt.Errorf("its secrets need another encryption key %s: the snapshot names the fingerprint %.12s.., and the key store has %.12s... "+
				"Restore the key store from the copy of that time, see the guide on restoring", k.Name, k.SHA256, has)
		}
	}
	return nil
}

// staleKeys says what of a restored cluster belongs to processes and machines that may not exist any
// more: prefixes of keys in etcd, and under which of them the keys of the nodes that are kept stay.
// keep is nil if all nodes are kept.
func staleKeys(keep []string) []staleRange {
	const registry = "/registry/"
	// Who leads, and which API servers there are, is found out anew.
	out := []staleRange{{prefix: registry + "leases/kube-system/"}, {prefix: registry + "masterleases/"}}
	if keep == nil {
		return out
	}
	for _, of := range []string{"minions/", "leases/kube-node-lease/", "csinodes/"} {
		out = append(out, staleRange{registry + of, keep})
	}
	return out
}

type staleRange struct {
	prefix string
	keep   []string // what follows the prefix in keys that stay
}

// keptNodes returns the nodes that are kept, nil for all of them.
func (r Restore) keptNodes(formed bool) []string {
	switch {
	case r.Nodes != nil:
		return r.Nodes
	case formed:
		return nil
	}
	return []string{}
}

// encryptionKeys are the names in the key store of every encryption key that is trusted.
func encryptionKeys(ref pki.Ref) []string { return ref.Generations.SecretNames(pki.KindEncryption) }
