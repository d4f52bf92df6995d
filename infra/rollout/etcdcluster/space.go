package etcdcluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// tidy compacts, defragments or disarms.
func (o *operation) tidy(ctx context.Context, s rollout.Step) error {
	machines := o.allMachines()
	i := slices.IndexFunc(machines, func(m *fleet.Machine) bool { return m.Name() == s.Machine })
	if i < 0 {
		return fmt.Errorf("machine %s cannot be reached", s.Machine)
	}
	m := machines[i]
	if err := o.gate(ctx, m, s.Gate); err != nil {
		return err
	}
	c, err := o.Access.Member(ctx, m)
	if err != nil {
		return err
	}
	switch s.Action {
	case actionCompact:
		err = fleet.Within(ctx, fleet.CompactBudget, "compaction of etcd", c.Compact)
	case actionDefragment:
		err = o.defragment(ctx, m, c)
	default:
		err = o.disarm(ctx, m, c)
	}
	if err != nil {
		return err
	}
	return o.then(ctx, m, s.Then)
}

// defragment hands the leadership over before, since a leader that answers nothing holds up every
// request.
func (o *operation) defragment(ctx context.Context, m *fleet.Machine, c *etcd.Client) error {
	if err := fleet.Within(ctx, fleet.CompactBudget, "end of the compaction of etcd", c.WaitCompacted); err != nil {
		return o.tidyFailed(m, err)
	}
	before, err := c.Status(ctx)
	if err != nil {
		return err
	}
	room, err := host.ReadRoom(ctx, m.Remote, component.EtcdDatabase)
	if err != nil {
		return err
	}
	if room.Free < before.DBSizeInUse {
		return &fleet.GuardError{Refused: "defragment etcd on " + m.Name(),
			Reason: fmt.Sprintf("its data take %s, and the file system of %s has %s free for a copy of them", etcd.SizeWords(before.DBSizeInUse), component.EtcdDataDir, etcd.SizeWords(room.Free)),
			Advice: "make room there (" + m.SSH("df -h "+component.EtcdDataDir) + "), or enlarge the volume, then apply again"}
	}
	o.moveLeader(ctx, m)
	if err := fleet.Within(ctx, fleet.DefragmentBudget, "defragmentation of etcd", c.Defragment); err != nil {
		return o.tidyFailed(m, err)
	}
	if after, err := c.Status(ctx); err == nil {
		m.Say("etcd: defragmented, %s instead of %s", etcd.SizeWords(after.DBSize), etcd.SizeWords(before.DBSize))
	}
	return nil
}

func (o *operation) tidyFailed(m *fleet.Machine, err error) error {
	return &fleet.StepError{Machine: m.Name(), Step: "defragment the database of etcd", Err: err, Next: m.JournalCommand(component.EtcdUnit)}
}

// disarm ends the alarm NOSPACE unless it would be raised again at once.
func (o *operation) disarm(ctx context.Context, m *fleet.Machine, c *etcd.Client) error {
	var full []string
	statuses := o.statuses(ctx, o.allMachines())
	for _, name := range slices.Sorted(maps.Keys(statuses)) {
		if space := statuses[name].Space(o.want.Spec.EffectiveQuota()); space.Full() {
			full = append(full, name+" has "+space.String())
		}
	}
	if len(full) > 0 {
		return &fleet.GuardError{Refused: "disarm the alarm NOSPACE of etcd",
			Reason: "the data fill the quota even after a compaction and a defragmentation: " + strings.Join(full, ", "),
			Advice: "raise quota_mib, or delete objects that nobody needs (etcd still deletes, and API servers that run do, too), then apply again"}
	}
	if err := fleet.Within(ctx, fleet.GateBudget, "end of the alarm NOSPACE", c.DisarmNoSpace); err != nil {
		return &fleet.StepError{Machine: m.Name(), Step: "disarm the alarm NOSPACE of etcd", Err: err, Next: m.JournalCommand(component.EtcdUnit)}
	}
	m.Say("etcd: the alarm NOSPACE is disarmed")
	return nil
}

// checkRoom refuses a quota that a machine's file system cannot hold, before a member is started
// with it. Otherwise etcd would fill the disk and stop, where with a quota it only raises an alarm.
func (o *operation) checkRoom(ctx context.Context) error {
	quota := o.want.Spec.EffectiveQuota()
	return fleet.Each(ctx, o.Reachable(), func(ctx context.Context, m *rollout.Machine) error {
		if !slices.ContainsFunc(m.Changes, func(c host.Change) bool { return c.Kind == finding.File && c.Target == component.EtcdUnitPath }) {
			return nil
		}
		room, err := host.ReadRoom(ctx, m.Remote, component.EtcdDatabase)
		if err != nil || room.For() >= quota {
			return err
		}
		return &fleet.GuardError{Refused: "start etcd on " + m.Name() + " with a quota of " + etcd.SizeWords(quota),
			Reason: fmt.Sprintf("the file system of %s has %s for the database", component.EtcdDataDir, etcd.SizeWords(room.For())),
			Advice: fmt.Sprintf("set quota_mib to at most %d, or enlarge the volume", room.For()>>20)}
	})
}
