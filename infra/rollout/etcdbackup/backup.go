// Package etcdbackup is the role of the snapshots that members of an etcd cluster keep in S3: what a
// bucket has, and taking one. It shares no code with the cluster itself: the program on each machine
// asks its member. What may not enter: restoring a cluster (package etcdcluster), other roles, Terraform
// and AWS.
package etcdbackup

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/snapshot"
)

// Backup is the snapshots that the members of an etcd cluster keep in S3. Spec.Members is
// derived from Targets.
type Backup struct {
	Spec    component.EtcdBackupSpec
	Targets []fleet.Target
	// MaxAge is the age from which the newest snapshot is a finding; 0 means Spec.Overdue.
	MaxAge time.Duration
}

// bucket is what a bucket has of a cluster, as the details of a report.
type bucket struct {
	newest *snapshot.Description // that counts, nil if there is none
}

// Newest returns the newest snapshot that counts according to a report about a backup, nil if there is
// none. It is not known if no machine said so.
func Newest(r rollout.Report) (newest *snapshot.Description, known bool) {
	b, known := r.Details.(bucket)
	return b.newest, known
}

func (x Backup) spec() component.EtcdBackupSpec {
	x.Spec.Members = fleet.Nodes(x.Targets)
	return x.Spec
}

// Definition implements Role. Snapshots are taken with the programs of the member.
func (x Backup) Definition() rollout.Definition {
	spec := x.spec()
	return rollout.Definition{Name: "etcd backup", PKI: spec.Cluster.PKI, Targets: x.Targets,
		Machine: func(n component.Node) (component.Machine, error) { return component.EtcdBackup(spec, n) },
		Traces:  spec.Traces(),
		ReadSettings: func(_ component.Node, f component.Found) (_ rollout.Role, err error) {
			x.Spec, err = spec.Read(f)
			return x, err
		},
		Dirs: []string{component.EtcdBackupDir, component.EtcdBackupConfDir}, AsksMachines: true}
}

func (x Backup) maxAge() time.Duration {
	if x.MaxAge == 0 {
		return x.spec().Overdue()
	}
	return x.MaxAge
}

// Observe implements Role. It also asks which snapshots there are. Each machine is asked, since each has failures of its
// own.
func (x Backup) Observe(ctx context.Context, o *rollout.Operation) rollout.Report {
	return o.Report(ctx, func(ctx context.Context, r *rollout.Report) {
		ctx, cancel := fleet.Probing(ctx)
		defer cancel()
		var known *bucket
		if known, r.Findings, r.Unjudged = x.judge(o.Fleet.Now(), snapshots(ctx, o)); known != nil {
			r.Details = *known
		}
	})
}

// snapshots asks every machine, in the order of the machines.
func snapshots(ctx context.Context, o *rollout.Operation) []fleet.Snapshots {
	var mu sync.Mutex
	answers := map[string]fleet.Snapshots{}
	fleet.EachAll(ctx, o.Machines, func(ctx context.Context, m *rollout.Machine) error {
		a := m.AskSnapshots(ctx)
		mu.Lock()
		defer mu.Unlock()
		answers[m.Name()] = a
		return nil
	})
	var out []fleet.Snapshots
	for _, m := range o.Machines {
		out = append(out, answers[m.Name()])
	}
	return out
}

// judge compares what the machines say with what is wanted.
func (x Backup) judge(now time.Time, answers []fleet.Snapshots) (*bucket, []finding.Finding, []finding.Finding) {
	location := x.spec().Location()
	var (
		newest  *snapshot.Description
		counted bool
		why     error
		out     []finding.Finding
	)
	for _, a := range answers {
		if a.At == location { // elsewhere until another location has been applied
			counted = counted || a.Counted && a.Err == nil
			newest = snapshot.Newer(newest, a.Newest)
		}
		if a.Failed != "" {
			out = append(out, finding.Finding{Subject: a.Machine, Kind: finding.Snapshot, Target: location, Problem: finding.NotTaken, Cause: a.Failed})
		}
		if why == nil && !fleet.Unreachable(a.Err) {
			why = a.Err
		}
	}
	switch {
	case newest != nil && now.Sub(newest.Time) > x.maxAge():
		out = append(out, finding.Finding{Subject: location, Kind: finding.Snapshot, Target: newest.Name, Problem: finding.TooOld,
			Found: now.Sub(newest.Time).Truncate(time.Minute).String(), Wanted: x.maxAge().String()})
	case newest == nil && counted:
		out = append(out, finding.Finding{Subject: location, Kind: finding.Snapshot, Target: location, Problem: finding.Missing})
	case newest == nil && why != nil:
		return nil, out, []finding.Finding{{Kind: finding.Snapshot, Target: location, Problem: finding.Unjudged, Cause: why.Error()}}
	case newest == nil:
		return nil, out, nil
	}
	return &bucket{newest}, out, nil
}

// Apply implements Role. It also takes a snapshot, so that it shows that the settings work, and makes good what failed.
func (x Backup) Apply(ctx context.Context, o *rollout.Operation, _ rollout.Role) error {
	if err := o.Survey(ctx); err != nil {
		return err
	}
	one := func(ctx context.Context, m *rollout.Machine) error { return o.Apply(ctx, m, m.Changes) }
	for _, m := range o.Reachable() { // units of others restart on one machine after another
		if m.RestartsForeign(m.Changes) {
			if err := one(ctx, m); err != nil {
				return err
			}
		}
	}
	if err := fleet.Each(ctx, o.Reachable(), one); err != nil {
		return err
	}
	o.SaveUnchanged()
	_, err := TakeSnapshot(ctx, o.Reached())
	if err == nil {
		err = runAll(ctx, o.Reached())
	}
	if err != nil {
		return errors.Join(err, o.Skipped())
	}
	if err := o.RemoveLeaving(ctx); err != nil {
		return err
	}
	return o.Skipped()
}

// TakeSnapshot takes a snapshot of etcd now, on the first of these machines that can, and returns what
// is known of it. The machines are those of a [Backup], in their order.
func TakeSnapshot(ctx context.Context, machines []*fleet.Machine) (snapshot.Description, error) {
	var failures []error
	for _, m := range machines {
		m.Say("etcd backup: taking a snapshot")
		var said string
		err := fleet.Within(ctx, fleet.SnapshotBudget, "a snapshot of etcd", func(ctx context.Context) (err error) {
			said, err = deed.TakeSnapshot(ctx, m.Remote, component.EtcdBackupProgram)
			return err
		})
		var taken snapshot.Description
		if err == nil {
			taken, err = snapshot.Parse([]byte(said))
		}
		if err == nil {
			return taken, nil
		}
		failures = append(failures, m.SnapshotFailed(err))
		if ctx.Err() != nil {
			break
		}
	}
	return snapshot.Description{}, errors.Join(failures...)
}

// runAll lets every machine do what its timer does: send what waits, and delete what is too much. Those
// whose last snapshot failed take one, so that it is known that they can.
func runAll(ctx context.Context, machines []*fleet.Machine) error {
	return fleet.Each(ctx, machines, func(ctx context.Context, m *fleet.Machine) error {
		err := fleet.Within(ctx, fleet.SnapshotBudget, "a run of "+component.EtcdBackupUnit, func(ctx context.Context) error {
			return deed.RunSnapshots(ctx, m.Remote, component.EtcdBackupProgram)
		})
		if err != nil {
			return m.SnapshotFailed(err)
		}
		if m.AskSnapshots(ctx).Failed == "" {
			return nil
		}
		_, err = TakeSnapshot(ctx, []*fleet.Machine{m})
		return err
	})
}

// Remove implements Role.
func (x Backup) Remove(ctx context.Context, o *rollout.Operation) error { return o.Remove(ctx) }
