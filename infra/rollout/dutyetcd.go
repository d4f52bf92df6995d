package rollout

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
)

// Among says how to find the other machines of the cluster that may run an API
// server. When this machine's etcd member hands its leadership on they are held
// for an instant, so that no write is lost; those that are not known are not.
func (d *Duty) Among(find func(context.Context) ([]Target, error)) { d.find = find }

// everybody is the machine and the others of the cluster, as far as they are known.
func (d *Duty) everybody(ctx context.Context) []*machine {
	var targets []Target
	err := errors.New("nobody has said which they are")
	if d.find != nil {
		targets, err = d.find(ctx)
	}
	if err != nil {
		d.o.say(d.m.name(), "etcd: the API servers on the cluster's other machines are not held: %v", err)
	}
	out := []*machine{d.m}
	for _, t := range targets {
		if t.Node.Name != d.m.name() {
			out = append(out, &machine{Target: t, runner: d.o.Pool.Machine(t.Host)})
		}
	}
	return out
}

// health asks the members, from this machine, whether they are healthy.
func (d *Duty) health(ctx context.Context, members []etcd.Member) map[etcd.ID]bool {
	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		out = map[etcd.ID]bool{}
	)
	for _, m := range members {
		wg.Go(func() {
			if err := d.askMember(m, func(c *etcd.Client) error { return c.Health(ctx) }); err == nil {
				mu.Lock()
				defer mu.Unlock()
				out[m.ID] = true
			}
		})
	}
	wg.Wait()
	return out
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

// HandOver has the machine's etcd member hand the leadership, if it has it, to
// one of the members that stay.
func (d *Duty) HandOver(ctx context.Context, leaving func(string) bool) error {
	if !d.does(component.EtcdUnit) {
		return nil
	}
	c, err := d.etcd()
	if err != nil {
		return err
	}
	defer c.Close()
	members, err := c.MembersKnown(ctx)
	if err != nil {
		return d.fail("hand over etcd's leadership", err)
	}
	_, others, _ := d.otherVoters(members, leaving)
	healthy := d.health(ctx, members)
	to := slices.IndexFunc(others, func(m etcd.Member) bool { return healthy[m.ID] })
	if to < 0 {
		return nil
	}
	if err := d.o.moveLeader(ctx, d.m, c, others[to], d.writers(members, healthy)); err != nil {
		return d.fail("hand over etcd's leadership", err)
	}
	return nil
}

// handOver is HandOver where it is no condition: etcd does it while it stops.
func (d *Duty) handOver(ctx context.Context, leaving func(string) bool) {
	if err := d.HandOver(ctx, leaving); err != nil {
		d.o.say(d.m.name(), "etcd: %v", err)
	}
}

func (d *Duty) writers(members []etcd.Member, healthy map[etcd.ID]bool) writers {
	return writers{machines: d.everybody, settled: settled(members, healthy, d.health)}
}

// leaveEtcd takes the machine's member out of the cluster, through one of the
// members that stay. With none there is no cluster left to leave.
func (d *Duty) leaveEtcd(ctx context.Context, leaving func(string) bool) error {
	if !d.does(component.EtcdUnit) {
		return nil
	}
	c, err := d.etcd()
	if err != nil {
		return err
	}
	defer c.Close()
	members, err := c.MembersKnown(ctx)
	if err != nil {
		return d.fail("leave the etcd cluster", err)
	}
	self, others, _ := d.otherVoters(members, leaving)
	if len(others) == 0 || self.ID == 0 {
		return nil
	}
	d.handOver(ctx, leaving)
	d.o.say(d.m.name(), "etcd: leaving, member %s", self.ID)
	healthy := d.health(ctx, members)
	err = d.o.removeLiving(ctx, d.m, d.writers(members, healthy), mayStopFirst(members, healthy, self.ID), func(ctx context.Context) error {
		return within(ctx, gateBudget, "removal of etcd member "+d.m.name(), func(ctx context.Context) error {
			return d.askMember(others[0], func(c *etcd.Client) error { return c.Remove(ctx, self.ID) })
		})
	})
	if err != nil {
		return d.fail("leave the etcd cluster", err)
	}
	return nil
}
