package etcdcluster

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// databaseFacts is what is known of the database of one member.
type databaseFacts struct {
	status etcd.Status
	disk   etcd.Disk     // zero if unknown
	room   host.FileRoom // zero if unknown
}

// databases adds alarms and databases to a report. A member that does not answer is left out: other
// findings are about it.
func (o *operation) databases(ctx context.Context, r *rollout.Report) {
	ctx, cancel := fleet.Probing(ctx)
	defer cancel()
	var (
		mu  sync.Mutex
		all = map[string]databaseFacts{}
	)
	fleet.EachAll(ctx, rollout.MachinesOf(o.Machines), func(ctx context.Context, m *fleet.Machine) error {
		c, err := o.Access.Member(ctx, m)
		if err != nil {
			return err
		}
		var d databaseFacts
		if d.status, err = c.Status(ctx); err != nil {
			return err
		}
		metrics, _ := c.Metrics(ctx)
		d.disk = metrics.Disk
		d.room, _ = host.ReadRoom(ctx, m.Remote, component.EtcdDatabase)
		mu.Lock()
		defer mu.Unlock()
		all[m.Name()] = d
		return nil
	})
	findings, concerns := compareDatabases(all, o.want.Spec.EffectiveQuota())
	r.Find(findings...)
	r.Concerns = append(r.Concerns, concerns...)
}

// deferDefragmentation makes fragmented databases a concern while machines of members are away:
// planDefragment waits for them, so no apply repairs it.
func deferDefragmentation(r *rollout.Report, away []string) {
	if len(away) == 0 {
		return
	}
	r.Findings = slices.DeleteFunc(r.Findings, func(f finding.Finding) bool {
		if f.Kind != finding.Database || f.Problem != finding.Fragmented {
			return false
		}
		f.Problem, f.Away = finding.Loose, strings.Join(away, ", ")
		r.Concerns = append(r.Concerns, f)
		return true
	})
}

// compareDatabases returns what an apply repairs or refuses to leave alone, and what no apply can
// change: full databases without an alarm, slow disks, and disks smaller than the quota. It is pure.
func compareDatabases(all map[string]databaseFacts, quota int64) (findings, concerns []finding.Finding) {
	machines := map[etcd.ID]string{}
	var known [][]etcd.Alarm
	for name, d := range all {
		machines[d.status.ID] = name
		if d.status.Leader != 0 { // without a quorum a member may know an old state of the alarms
			known = append(known, d.status.Alarms)
		}
	}
	alarmed := map[string]bool{}
	for _, a := range etcd.Alarms(known...) {
		f := finding.Finding{Subject: machines[a.Member], Kind: finding.Alarm, Target: string(a.Type), Problem: finding.Unknown}
		switch {
		case f.Subject != "":
			alarmed[f.Subject] = true
		case a.Member != 0:
			f.Subject = "etcd member " + a.Member.String()
		default:
			f.Subject = "etcd"
		}
		switch a.Type {
		case etcd.NoSpace:
			space := all[f.Subject].status.Space(quota)
			f.Problem, f.Found, f.Wanted, f.Size = finding.Full, etcd.SizeWords(space.Size), etcd.SizeWords(space.Quota), etcd.SizeWords(space.InUse)
			if !alarmed[f.Subject] {
				f.Found, f.Size = "an unknown size", "an unknown part"
			}
		case etcd.Corrupt:
			f.Problem = finding.Diverged
		}
		findings = append(findings, f)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		d := all[name]
		space := d.status.Space(quota)
		about := finding.Finding{Subject: name, Kind: finding.Database, Wanted: etcd.SizeWords(space.Quota)}
		switch {
		case alarmed[name]:
		case space.Fragmented() && !d.status.Learner:
			about.Problem, about.Found, about.Size = finding.Fragmented, etcd.SizeWords(space.Size), etcd.SizeWords(space.Free())
			findings = append(findings, about)
		case space.NearlyFull():
			about.Problem, about.Found = finding.NearlyFull, etcd.SizeWords(space.InUse)
			concerns = append(concerns, about)
		}
		if d.room != (host.FileRoom{}) && d.room.For() < quota {
			concerns = append(concerns, finding.Finding{Subject: name, Kind: finding.Database, Problem: finding.TooLarge,
				Found: etcd.SizeWords(d.room.For()), Wanted: etcd.SizeWords(quota), Device: component.EtcdDataDir})
		}
		if d.disk.Slow() {
			concerns = append(concerns, finding.Finding{Subject: name, Kind: finding.EtcdDisk, Problem: finding.Slow,
				Found: d.disk.Sync.String(), Wanted: etcd.SlowSync.String()})
		}
	}
	return findings, concerns
}
