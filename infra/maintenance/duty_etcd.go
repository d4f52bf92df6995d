package maintenance

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
)

// SetControllers sets how to find the other machines of the cluster that may run an API server or a
// member of etcd. API servers are held for a moment while this machine's etcd member transfers its
// leadership, so that no write is lost. Those that are not found are not held.
func (d *Duty) SetControllers(find func(context.Context) ([]fleet.Target, error)) { d.find = find }

// allMachines returns the machine and the other machines that SetControllers gives.
func (d *Duty) allMachines(ctx context.Context) []*fleet.Machine {
	others, err := d.otherMachines(ctx)
	if err != nil {
		d.m.Say("etcd: the API servers on the cluster's other machines are not held: %v", err)
	}
	return append([]*fleet.Machine{d.m}, others...)
}

// otherMachines returns the other machines that SetControllers gives.
func (d *Duty) otherMachines(ctx context.Context) ([]*fleet.Machine, error) {
	if d.find == nil {
		return nil, errors.New("it is not known which they are")
	}
	targets, err := d.find(ctx)
	var out []*fleet.Machine
	for _, t := range targets {
		if t.Node.Name != d.m.Name() {
			out = append(out, d.fleet.Machine(t))
		}
	}
	return out, err
}

// health asks the members, from this machine, whether they are healthy.
func (d *Duty) health(ctx context.Context, members []etcd.Member) map[etcd.ID]bool {
	healthy, _ := d.ask(ctx, members, (*etcd.Client).Health)
	return healthy
}

// serving asks the members whether they serve reads. They may have an alarm.
func (d *Duty) serving(ctx context.Context, members []etcd.Member) map[etcd.ID]bool {
	serving, _ := d.ask(ctx, members, (*etcd.Client).Serves)
	return serving
}

// ask returns the members whose answer is no error, and the alarms of the others that have one.
func (d *Duty) ask(ctx context.Context, members []etcd.Member, question func(*etcd.Client, context.Context) error) (well map[etcd.ID]bool, alarms map[etcd.ID]etcd.AlarmType) {
	var (
		mu    sync.Mutex
		group parallel.Group
	)
	well, alarms = map[etcd.ID]bool{}, map[etcd.ID]etcd.AlarmType{}
	for _, m := range members {
		group.GoFor("etcd member "+m.Label(), func() error {
			err := d.askMember(m, func(c *etcd.Client) error { return question(c, ctx) })
			mu.Lock()
			defer mu.Unlock()
			var alarm *etcd.AlarmError
			if errors.As(err, &alarm) {
				alarms[m.ID] = alarm.Alarm.Type
			}
			well[m.ID] = err == nil
			return nil
		})
	}
	_ = group.Wait() // a member whose answer makes a panic is not among those that are well
	return well, alarms
}

func (d *Duty) askMember(m etcd.Member, ask func(*etcd.Client) error) error {
	if len(m.ClientURLs) == 0 {
		return errors.New("it has never started")
	}
	c, err := d.etcdAt(m.ClientURLs[0])
	if err != nil {
		return err
	}
	defer c.Close()
	return ask(c)
}

// place is the position of a machine's member in its etcd cluster.
type place struct {
	members []etcd.Member
	self    etcd.Member   // zero if the machine has none
	others  []etcd.Member // the other voters that are not leaving
	voters  int           // all voters, self included
}

func placeOf(members []etcd.Member, name string, leaving func(string) bool) place {
	p := place{members: members}
	for _, m := range members {
		if !m.Learner {
			p.voters++
		}
		switch {
		case m.Name == name:
			p.self = m
		case !m.Learner && !leaving(m.Name):
			p.others = append(p.others, m)
		}
	}
	return p
}

// etcdPlace asks the machine's member. The caller closes the client it returns.
func (d *Duty) etcdPlace(ctx context.Context, leaving func(string) bool) (*etcd.Client, place, error) {
	c, err := d.etcd()
	if err != nil {
		return nil, place{}, err
	}
	members, err := c.MembersKnown(ctx)
	if err != nil {
		c.Close()
		return nil, place{}, err
	}
	return c, placeOf(members, d.m.Name(), leaving), nil
}

// knownPlace is etcdPlace without the client. If an interrupted change has stopped the machine's
// member, it asks the members on other controllers that are not leaving. Without any, the place is
// empty.
func (d *Duty) knownPlace(ctx context.Context, leaving func(string) bool) (place, error) {
	if d.does(component.EtcdUnit) {
		c, p, err := d.etcdPlace(ctx, leaving)
		if err == nil {
			c.Close()
		}
		return p, err
	}
	others, err := d.otherMachines(ctx)
	for _, m := range others {
		if leaving(m.Name()) || leaving(m.Node.PrivateIP.String()) {
			continue
		}
		at := etcd.Member{ClientURLs: []string{"https://" + netip.AddrPortFrom(m.Node.PrivateIP, component.EtcdClientPort).String()}}
		var members []etcd.Member
		if err = d.askMember(at, func(c *etcd.Client) (err error) { members, err = c.MembersKnown(ctx); return err }); err == nil {
			return placeOf(members, d.m.Name(), leaving), nil
		}
	}
	return place{}, err
}

// MoveLeader transfers the leadership from the machine's etcd member, if it leads, to a member that
// is not leaving.
func (d *Duty) MoveLeader(ctx context.Context, leaving func(string) bool) error {
	if !d.does(component.EtcdUnit) {
		return nil
	}
	c, p, err := d.etcdPlace(ctx, leaving)
	if err == nil {
		defer c.Close()
		err = d.moveLeader(ctx, c, p, d.serving(ctx, p.members))
	}
	if err != nil {
		return d.fail("hand over etcd's leadership", err)
	}
	return nil
}

func (d *Duty) moveLeader(ctx context.Context, c *etcd.Client, p place, serving map[etcd.ID]bool) error {
	to := slices.IndexFunc(p.others, func(m etcd.Member) bool { return serving[m.ID] })
	if to < 0 {
		return nil
	}
	return fleet.MoveLeader(ctx, d.m, c, p.others[to], d.writers(p.members, serving))
}

func (d *Duty) writers(members []etcd.Member, serving map[etcd.ID]bool) fleet.Writers {
	return fleet.Writers{Machines: d.allMachines, Flushed: fleet.Flushed(members, serving, d.serving)}
}

// stopEtcd stops the machine's member, which hands over the leadership first.
func (d *Duty) stopEtcd(ctx context.Context, leaving func(string) bool) error {
	d.mention(d.MoveLeader(ctx, leaving))
	return d.stop(ctx, component.EtcdUnit)
}

// leaveEtcd removes the machine's member from the cluster through a member that is not leaving. If
// there is none, it does nothing.
func (d *Duty) leaveEtcd(ctx context.Context, leaving func(string) bool) error {
	if !d.had(component.EtcdUnit) {
		return nil
	}
	p, err := d.knownPlace(ctx, leaving)
	if err != nil {
		return d.fail("leave the etcd cluster", err)
	}
	if len(p.others) == 0 || p.self.ID == 0 {
		return nil
	}
	healthy := d.health(ctx, p.members)
	machines := d.allMachines(ctx)
	if err := fleet.SnapshotBefore(ctx, append(machines[1:], d.m), "the removal of etcd member "+d.m.Name()); err != nil {
		if healthy[p.self.ID] {
			return err
		}
		d.m.Say("etcd: %v; it is not healthy, so it is removed without", err)
	}
	d.mention(d.MoveLeader(ctx, leaving))
	d.m.Say("etcd: leaving, member %s", p.self.ID)
	err = fleet.RemoveMember(ctx, "maintenance", d.m, d.writers(p.members, healthy), fleet.MayStopFirst(p.members, healthy, p.self.ID), func(ctx context.Context) error {
		return fleet.Within(ctx, fleet.GateBudget, "removal of etcd member "+d.m.Name(), func(ctx context.Context) error {
			return d.askMember(p.others[0], func(c *etcd.Client) error { return c.Remove(ctx, p.self.ID) })
		})
	})
	if err != nil {
		return d.fail("leave the etcd cluster", err)
	}
	return nil
}

// mention reports a failed transfer of the leadership. etcd tries it again while it stops.
func (d *Duty) mention(err error) {
	if err != nil {
		d.m.Say("etcd: the leadership was not handed over: %v", err)
	}
}
