package etcdcluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/snapshot"
)

// addedRevisions is how much a restore increases the revision, so that it is higher than every one
// before, also those after the snapshot: at a thousand writes a second it takes eleven days.
const addedRevisions = 1_000_000_000

// restorePath is a file in the data that a restore has made.
func restorePath(name string) string { return path.Join(memberDir, name) }

// restoreOnce restores the cluster unless the record says that it was done.
func (o *operation) restoreOnce(ctx context.Context) error {
	r := o.want.restore()
	if done := o.Record().Restored; !r.Wanted() && done == nil || done != nil && done.Mark == r.mark() {
		return nil
	}
	o.Probes.Files = nil
	for _, name := range []string{deed.RestoredFrom, deed.RestoredDone} {
		o.Probes.Files = append(o.Probes.Files, desired.File{Path: restorePath(name), Content: []byte(r.mark() + "\n")})
	}
	if err := o.survey(ctx); err != nil {
		return err
	}
	if !r.Wanted() { // the same restore may be wanted once more
		err := o.endRestore(ctx, "")
		if err == nil {
			o.Note(func(rec *rollout.Record) { rec.Restored = nil })
		}
		return err
	}
	facts, err := o.restoreFacts(ctx, r)
	if err != nil {
		return err
	}
	plan, err := planRestore(facts)
	if err != nil {
		return err
	}
	source, err := o.carryOutRestore(ctx, r, plan)
	if err != nil {
		return err
	}
	if !facts.done { // what it did since belongs to it
		if err := o.clean(ctx, r.keptNodes(facts.formed)); err != nil {
			return err
		}
		if err := o.endRestore(ctx, r.mark()); err != nil {
			return err
		}
	}
	o.Note(func(rec *rollout.Record) {
		rec.Formed, rec.Restored = true, &rollout.Restored{Mark: r.mark(), From: source}
	})
	o.Fleet.Say(o.want.Spec.Cluster.PKI.Cluster, "etcd: restored from %s", source)
	return nil
}

func (o *operation) restoreFacts(ctx context.Context, r Restore) (restoreFacts, error) {
	known, err := o.facts(ctx)
	if err != nil {
		return restoreFacts{}, err
	}
	f := restoreFacts{restore: r, formed: known.formed, answers: known.members != nil}
	for _, m := range o.Machines {
		f.members = append(f.members, restoreMember{name: m.Name(), reachable: m.Gone == nil, data: hasData(m), restored: made(m, r)})
	}
	for _, m := range o.present(ctx) {
		f.leaving = append(f.leaving, m.Name())
		found, err := host.Read(ctx, m.Remote, []string{restorePath(deed.RestoredFrom), restorePath(deed.RestoredDone)}, nil)
		if err != nil {
			return f, fmt.Errorf("reading whose data %s has: %w", m.Name(), err)
		}
		for _, content := range found {
			if strings.TrimSpace(string(content)) == r.mark() {
				f.joined = append(f.joined, m.Name())
				break
			}
		}
	}
	f.done = o.answersWith(ctx, func(m *rollout.Machine) bool { return has(m, deed.RestoredDone, r) })
	f.begun = f.done || o.answersWith(ctx, func(m *rollout.Machine) bool { return made(m, r) })
	return f, nil
}

// present returns the machines that leave and answer. It leaves out a machine that is off, or in
// whose place another machine answers. If its data come back later, they belong to another cluster
// than the restored one, whose members refuse to talk to it, and the next apply removes them.
func (o *operation) present(ctx context.Context) []*fleet.Machine {
	away := fleet.EachAll(ctx, o.leavers, func(ctx context.Context, m *fleet.Machine) error {
		ctx, cancel := fleet.Observing(ctx)
		defer cancel()
		return m.Remote.Ping(ctx)
	})
	return slices.DeleteFunc(slices.Clone(o.leavers), func(m *fleet.Machine) bool { return away[m.Name()] != nil })
}

// answersWith reports whether a cluster answers that has one of those machines as a member: a list of
// members needs its quorum.
func (o *operation) answersWith(ctx context.Context, is func(*rollout.Machine) bool) bool {
	var asked []*fleet.Machine
	for _, m := range o.Reachable() {
		if is(m) && m.Running(component.EtcdUnit) {
			asked = append(asked, m.Machine)
		}
	}
	if len(asked) == 0 {
		return false
	}
	_, err := o.members(ctx, asked)
	return err == nil
}

// made reports whether the restore has made the machine's data.
func made(m *rollout.Machine, r Restore) bool {
	return has(m, deed.RestoredFrom, r) || has(m, deed.RestoredDone, r)
}

// has reports whether a file of the machine's data has the mark of the restore.
func has(m *rollout.Machine, file string, r Restore) bool {
	want := desired.File{Content: []byte(r.mark() + "\n")}
	return m.Seen.Files[restorePath(file)].SHA256 == want.Digest()
}

// endRestore notes on every machine that the restore with this mark is done, or forgets all.
func (o *operation) endRestore(ctx context.Context, mark string) error {
	return fleet.Each(ctx, o.Reachable(), func(ctx context.Context, m *rollout.Machine) error {
		return restoreFailed(m.Machine, "note that the restore is done", deed.EndRestore(ctx, m.Remote, component.EtcdDataDir, mark))
	})
}

// carryOutRestore takes the steps of a plan. It returns the name of the snapshot or of the member.
func (o *operation) carryOutRestore(ctx context.Context, r Restore, plan rollout.Plan) (string, error) {
	if r.Member != "" {
		return r.Member, o.makeFromMember(ctx, r, plan)
	}
	name, token, err := o.begunWith(ctx, r)
	if err != nil {
		return "", err
	}
	token = cmp.Or(token, o.restoreToken())
	if len(plan) == 0 || plan[0][0].Action != actionMakeRestored {
		return name, o.takeRestored(ctx, plan, name, nil) // all data are made
	}
	from := deed.Location{Functions: snapshot.S3Functions, Endpoint: r.Endpoint, Region: r.Region, Bucket: r.Bucket, Prefix: r.Prefix}
	d, err := o.findSnapshot(ctx, r, from, cmp.Or(name, r.Snapshot))
	if err != nil {
		return "", err
	}
	if err := o.checkRestoreRoom(ctx, plan[0], d); err != nil {
		return "", err
	}
	members := fleet.Nodes(o.want.Targets)
	return d.Name, o.takeRestored(ctx, plan, d.Name, func(ctx context.Context, m *rollout.Machine) error {
		m.Say("etcd: making its data from snapshot %s of %s", d.Name, d.Time.Format("2006-01-02 15:04:05"))
		return deed.MakeFromSnapshot(ctx, m.Remote, from, d.Name, d.Size, d.SHA256, o.newMember(m, r, component.InitialCluster(members), token))
	})
}

// checkRestoreRoom refuses a snapshot for which a machine has no room. Nothing has been changed on any
// machine then.
func (o *operation) checkRestoreRoom(ctx context.Context, batch []rollout.Step, d snapshot.Description) error {
	return fleet.Each(ctx, batch, func(ctx context.Context, s rollout.Step) error {
		m := o.ByName(s.Machine)
		made, err := host.ReadRoom(ctx, m.Remote, component.EtcdDataDir+deed.StagedDatabase)
		if err != nil || made.Used > 0 { // an attempt that was interrupted has made the data
			return err
		}
		room, err := host.ReadRoom(ctx, m.Remote, component.EtcdDataDir+deed.StagedDownload)
		if err != nil {
			return err
		}
		return checkRestoreRoom(m.Name(), room, d)
	})
}

// makeFromMember takes the steps of a plan from the data of a member. The cluster has that member
// alone then; the others join it.
func (o *operation) makeFromMember(ctx context.Context, r Restore, plan rollout.Plan) error {
	return o.takeRestored(ctx, plan, r.Member, func(ctx context.Context, m *rollout.Machine) error {
		m.Say("etcd: making the data of a new cluster from its data")
		return deed.MakeFromMember(ctx, m.Remote, component.EtcdUnit, component.EtcdCAPath, component.EtcdServerCert, component.EtcdServerKey, o.newMember(m, r, "", o.restoreToken()))
	})
}

func (o *operation) newMember(m *rollout.Machine, r Restore, cluster, token string) deed.NewMember {
	return deed.NewMember{DataDir: component.EtcdDataDir, Mark: r.mark(), Name: m.Name(), PeerURL: component.EtcdPeerURL(m.Node),
		InitialCluster: cluster, Token: token, AddRevisions: addedRevisions}
}

// restoreToken returns a token of a restored cluster that no other one has: the same restore may be done
// again, and members of the first time may come back.
func (o *operation) restoreToken() string {
	return o.want.Spec.Token + "-" + strings.ToLower(rand.Text()[:12])
}

// begunWith returns the name of the snapshot with which an interrupted attempt of this restore has
// made the data in use, and the token of their cluster; empty if none has. All members need the same.
func (o *operation) begunWith(ctx context.Context, r Restore) (name, token string, err error) {
	for _, m := range o.Reachable() {
		if !made(m, r) {
			continue
		}
		found, err := host.Read(ctx, m.Remote, []string{restorePath(deed.RestoredSnapshot), restorePath(deed.RestoredToken)}, nil)
		if err != nil {
			return "", "", fmt.Errorf("reading which snapshot %s has: %w", m.Name(), err)
		}
		text := func(name string) string { return strings.TrimSpace(string(found[restorePath(name)])) }
		return text(deed.RestoredSnapshot), text(deed.RestoredToken), nil
	}
	return "", "", nil
}

// findSnapshot returns the description of the snapshot, which the cluster can use. Nothing has been
// changed on any machine then.
func (o *operation) findSnapshot(ctx context.Context, r Restore, from deed.Location, name string) (snapshot.Description, error) {
	text, err := fleet.FirstAnswer(ctx, o.Reached(), func(ctx context.Context, m *fleet.Machine) (string, error) {
		return deed.FindSnapshot(ctx, m.Remote, from, name)
	})
	if err != nil {
		return snapshot.Description{}, fmt.Errorf("looking for the snapshot to restore: %w\nnothing has been changed. The machines of etcd read the bucket with the role of their instance profile", err)
	}
	d, err := snapshot.Parse([]byte(text))
	if err == nil && name != "" && d.Name != name {
		err = fmt.Errorf("it is the description of snapshot %s", d.Name)
	}
	keys := map[string]string{}
	for _, name := range encryptionKeys(o.want.Spec.Cluster.PKI) {
		if err != nil {
			break
		}
		keys[name], err = o.Access.Keys.Fingerprint(ctx, name)
	}
	if err == nil {
		err = checkSnapshot(d, r.Cluster, o.want.Spec.Version, keys)
	}
	if err != nil {
		return d, fmt.Errorf("s3://%s/%s%s cannot be restored: %w. Nothing has been changed", r.Bucket, r.Prefix, cmp.Or(d.Name, name), err)
	}
	return d, nil
}

// takeRestored takes the steps of a plan of a restore. make makes data beside those in use.
func (o *operation) takeRestored(ctx context.Context, plan rollout.Plan, name string, make func(context.Context, *rollout.Machine) error) error {
	mark := o.want.restore().mark()
	for _, batch := range plan {
		if batch[0].Action == rollout.ActionInstall {
			if err := o.look(ctx); err != nil { // the data are there now, and nothing runs
				return err
			}
		}
		err := o.Batches(ctx, rollout.Plan{batch}, func(ctx context.Context, m *rollout.Machine, s rollout.Step) error {
			switch s.Action {
			case actionMakeRestored:
				if err := o.installIdle(ctx, m); err != nil {
					return err
				}
				err := fleet.Within(ctx, fleet.SnapshotBudget, "the data of etcd", func(ctx context.Context) error { return make(ctx, m) })
				if err != nil {
					err = fmt.Errorf("%w. The cluster's data are as they were", err)
				}
				return restoreFailed(m.Machine, "make the data to restore", err)
			case actionSetAside:
				return o.setAside(ctx, s.Machine)
			case actionUseRestored:
				return restoreFailed(m.Machine, "put the restored data in place", deed.UseRestored(ctx, m.Remote, component.EtcdUnit, component.EtcdDataDir, mark, name))
			}
			return o.step(ctx, m, s)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// setAside stops the member on a machine and puts its data aside. The machine may be one that leaves.
func (o *operation) setAside(ctx context.Context, name string) error {
	machines := slices.Concat(rollout.MachinesOf(o.Machines), o.leavers)
	i := slices.IndexFunc(machines, func(m *fleet.Machine) bool { return m.Name() == name })
	if i < 0 {
		return fmt.Errorf("machine %s: put the other data aside: it is not a machine of the cluster", name)
	}
	m := machines[i]
	return restoreFailed(m, "put the other data aside", deed.SetAside(ctx, m.Remote, component.EtcdUnit, component.EtcdDataDir))
}

func restoreFailed(m *fleet.Machine, step string, err error) error {
	if err == nil {
		return nil
	}
	return &fleet.StepError{Machine: m.Name(), Step: step, Err: err, Unit: component.EtcdUnit,
		Next: m.SSH("sudo df -h " + component.EtcdDataDir)}
}

// installIdle brings a machine on which etcd does not run to the wanted state, and starts nothing.
func (o *operation) installIdle(ctx context.Context, m *rollout.Machine) error {
	if m.Running(component.EtcdUnit) {
		return nil
	}
	if err := o.InstallPackages(ctx, m); err != nil {
		return err
	}
	return o.Apply(ctx, m, slices.DeleteFunc(slices.Clone(m.Changes), func(c host.Change) bool { return c.Kind == finding.Unit || c.Kind == finding.DropIn }))
}

// clean deletes objects of earlier processes and machines from the restored cluster.
func (o *operation) clean(ctx context.Context, nodes []string) error {
	var c *etcd.Client
	sick, err := fleet.UntilNone(ctx, fleet.EtcdBudget, "the restored cluster", func(ctx context.Context) []string {
		var err error
		c, err = fleet.FirstAnswer(ctx, o.Reached(), func(ctx context.Context, m *fleet.Machine) (*etcd.Client, error) {
			c, err := o.Access.Member(ctx, m)
			if err == nil {
				err = c.Health(ctx)
			}
			return c, err
		})
		if err != nil {
			return []string{err.Error()}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, errors.New(fleet.List(sick)))
	}
	for _, stale := range staleKeys(nodes) {
		deleted, err := c.DeleteUnder(ctx, stale.prefix, stale.keep...)
		if err != nil {
			return err
		}
		for _, key := range deleted {
			o.Fleet.Say(o.want.Spec.Cluster.PKI.Cluster, "etcd: deleted the earlier %s", key)
		}
	}
	return nil
}
