package etcdcluster

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"sync"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// A machine may be new and have data: a volume keeps them when the machine is replaced. The data
// themselves say which member has written them, so the plan needs to know nothing of volumes.

// mountData mounts the data volumes that are not mounted: without them a member would seem to have lost its
// data, and would be removed.
func (o *operation) mountData(ctx context.Context) error {
	return fleet.Each(ctx, o.Reachable(), func(ctx context.Context, m *rollout.Machine) error {
		if hasData(m) {
			return nil
		}
		has, err := deed.MountDataVolume(ctx, m.Remote, component.EtcdUnit)
		switch {
		case err != nil:
			return &fleet.StepError{Machine: m.Name(), Step: "mount its data volume", Unit: deed.DataVolumeUnit,
				Err:  fmt.Errorf("whether the volume has data of etcd is not known, and no member is added or removed before it is: %w", err),
				Next: m.SSH("sudo systemctl status " + deed.DataVolumeUnit)}
		case !has:
			return nil
		}
		return o.SurveyMachine(ctx, m)
	})
}

// otherMembers reports whether data are known to be another member's.
func otherMembers(o etcd.Origin, id etcd.ID) bool { return o.Member != 0 && o.Member != id }

// notRunning is why a member is started.
func (w memberFacts) notRunning(id etcd.ID) string {
	if w.origin.Member == id {
		return "not running, has the data of member " + id.String()
	}
	return "not running"
}

// guardForeign refuses to go on while a machine has data that this cluster would delete, and that
// somebody may need: those of another cluster, and those of another member.
func guardForeign(f clusterFacts) error {
	for _, w := range f.wanted {
		m, listed := w.member().In(f.members)
		if w.origin.Cluster == 0 || listed && w.origin == (etcd.Origin{Member: m.ID, Cluster: cmp.Or(f.cluster, w.origin.Cluster)}) {
			continue // no data, or its own
		}
		refuse := func(reason, advice string) error {
			return &fleet.GuardError{Refused: "make " + w.name + " a member of etcd", Reason: reason, Advice: advice}
		}
		advice := fmt.Sprintf("attach the right volume, or, if nobody needs the data, stop etcd on %s, delete %s there, and apply again", w.name, memberDir)
		owner := f.wantedOwner(w.origin.Member)
		switch {
		case f.replaceData && w.origin.Cluster != f.cluster:
		case f.cluster == 0:
			return refuse(fmt.Sprintf("%s has data of the etcd cluster %s, and the id of this cluster is not known", w.name, w.origin.Cluster), "apply again when its members answer")
		case w.origin.Cluster != f.cluster:
			return refuse(fmt.Sprintf("%s has data of the etcd cluster %s, and this is the etcd cluster %s", w.name, w.origin.Cluster, f.cluster), advice)
		case owner != "":
			return refuse(fmt.Sprintf("%s has the data of member %s, which belongs to %s", w.name, w.origin.Member, owner), advice)
		}
	}
	return nil
}

// wantedOwner returns the machine whose member has the id, empty if there is none that should be a
// member.
func (f clusterFacts) wantedOwner(id etcd.ID) string {
	for _, w := range f.wanted {
		if m, listed := w.member().In(f.members); listed && m.ID == id {
			return w.name
		}
	}
	return ""
}

// origins returns which members have written the data, by machine, where etcd does not run.
func (o *operation) origins(ctx context.Context) (map[string]etcd.Origin, error) {
	var mu sync.Mutex
	out := map[string]etcd.Origin{}
	err := fleet.Each(ctx, o.Reachable(), func(ctx context.Context, m *rollout.Machine) error {
		origin, err := o.origin(ctx, m)
		mu.Lock()
		defer mu.Unlock()
		out[m.Name()] = origin
		return err
	})
	return out, err
}

// origin returns which member has written the data on a machine on which etcd does not run. It is
// zero without data, and if the log does not say it: such data are judged by what the cluster
// knows.
func (o *operation) origin(ctx context.Context, m *rollout.Machine) (etcd.Origin, error) {
	if !hasData(m) || m.Running(component.EtcdUnit) {
		return etcd.Origin{}, nil
	}
	head, err := host.ReadHead(ctx, m.Remote, path.Join(component.EtcdDataDir, etcd.OriginFiles), etcd.OriginBytes)
	if err != nil {
		return etcd.Origin{}, fmt.Errorf("reading whose data %s has: %w", m.Name(), err)
	}
	origin, err := etcd.ParseOrigin(head)
	if err != nil {
		m.Say("etcd: %v", err)
	}
	return origin, nil
}

// move tells the cluster the new address of the member whose data a machine has.
func (o *operation) move(ctx context.Context, m *fleet.Machine) error {
	members, err := o.members(ctx, o.Reached())
	if err != nil {
		return err
	}
	member, listed := memberNamed(members, m.Name())
	if !listed {
		return fmt.Errorf("moving etcd member %s: it has left the cluster meanwhile: apply again", m.Name())
	}
	url := component.EtcdPeerURL(m.Node)
	c, err := o.otherVoter(ctx, members, o.health(ctx, members), m.Name())
	if err != nil {
		return err
	}
	m.Say("etcd: member %s listens on %s from now on", member.ID, url)
	return fleet.Within(ctx, fleet.GateBudget, "the new address of etcd member "+m.Name(), func(ctx context.Context) error {
		return c.Move(ctx, member.ID, url)
	})
}
