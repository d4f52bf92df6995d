package rollout

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/snapshot"
)

// EtcdBackup is the snapshots that the members of an etcd cluster keep in S3. Spec.Members is
// derived from Targets.
type EtcdBackup struct {
	Spec    component.EtcdBackupSpec
	Targets []fleet.Target
	// MaxAge is the age from which the newest snapshot is a finding; 0 means Spec.Overdue.
	MaxAge time.Duration
}

// Snapshots is what a bucket has of a cluster.
type Snapshots struct {
	Location string // s3://<bucket>/<prefix>
	// Newest is the newest snapshot that counts, nil if there is none.
	Newest *snapshot.Description
}

func (x EtcdBackup) spec() component.EtcdBackupSpec {
	x.Spec.Members = fleet.Nodes(x.Targets)
	return x.Spec
}

func (x EtcdBackup) role() role {
	spec := x.spec()
	return role{name: "etcd backup", ref: spec.Cluster.PKI, targets: x.Targets,
		machine: func(n component.Node) (component.Machine, error) { return component.EtcdBackup(spec, n) },
		traces:  spec.Traces(),
		readSettings: func(_ component.Node, f component.Found) (_ Role, err error) {
			x.Spec, err = spec.Read(f)
			return x, err
		},
		dirs: []string{component.EtcdBackupDir, component.EtcdBackupConfDir}, asksMachines: true}
}

func (x EtcdBackup) maxAge() time.Duration {
	if x.MaxAge == 0 {
		return x.spec().Overdue()
	}
	return x.MaxAge
}

// observe also asks which snapshots there are. Each machine is asked, since each has failures of its
// own.
func (x EtcdBackup) observe(ctx context.Context, o *operation) Report {
	return o.report(ctx, func(ctx context.Context, r *Report) {
		ctx, cancel := fleet.Probing(ctx)
		defer cancel()
		r.Snapshots, r.Findings, r.Unjudged = x.judge(o.fleet.Now(), o.snapshots(ctx))
	})
}

// snapshots asks every machine, in the order of the machines.
func (o *operation) snapshots(ctx context.Context) []fleet.Snapshots {
	var mu sync.Mutex
	answers := map[string]fleet.Snapshots{}
	fleet.EachAll(ctx, o.machines, func(ctx context.Context, m *convergence) error {
		a := m.AskSnapshots(ctx)
		mu.Lock()
		defer mu.Unlock()
		answers[m.Name()] = a
		return nil
	})
	var out []fleet.Snapshots
	for _, m := range o.machines {
		out = append(out, answers[m.Name()])
	}
	return out
}

// judge compares what the machines say with what is wanted.
func (x EtcdBackup) judge(now time.Time, answers []fleet.Snapshots) (*Snapshots, []finding.Finding, []finding.Finding) {
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
	return &Snapshots{Location: location, Newest: newest}, out, nil
}

// apply also takes a snapshot, so that it shows that the settings work, and makes good what failed.
func (x EtcdBackup) apply(ctx context.Context, o *operation, prior Role) error {
	if err := o.observeAndFill(ctx); err != nil {
		return err
	}
	if err := fleet.Each(ctx, o.reachable(), func(ctx context.Context, m *convergence) error {
		return o.apply(ctx, m, m.changes)
	}); err != nil {
		return err
	}
	o.saveSettled()
	_, err := takeSnapshot(ctx, o.reached())
	if err == nil {
		err = runAll(ctx, o.reached())
	}
	if err != nil {
		return errors.Join(err, o.skipped())
	}
	if prior != nil {
		if err := o.removeLeaving(ctx, prior); err != nil {
			return err
		}
	}
	return o.skipped()
}

// TakeSnapshot takes a snapshot of etcd now, on the first of these machines that can, and returns what
// is known of it. The machines are those of an [EtcdBackup], in their order.
func (e *Engine) TakeSnapshot(ctx context.Context, targets []fleet.Target) (snapshot.Description, error) {
	return takeSnapshot(ctx, e.Fleet.Machines(targets))
}

func takeSnapshot(ctx context.Context, machines []*fleet.Machine) (snapshot.Description, error) {
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
		_, err = takeSnapshot(ctx, []*fleet.Machine{m})
		return err
	})
}

func (x EtcdBackup) remove(ctx context.Context, o *operation) error { return o.remove(ctx) }
