package etcdcluster

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// memberDir exists once etcd has started for the first time.
const memberDir = component.EtcdDataDir + "/member"

// operation is an operation on an etcd cluster.
type operation struct {
	*rollout.Operation
	want Cluster
	// leavers are the machines of members that are no longer wanted. Their health is checked while
	// they are members. Only a restore changes them here: it puts their data aside.
	leavers []*fleet.Machine
	// former are the machines of members whose names other machines have now.
	former []*fleet.Machine
}

// operate makes o an operation on this etcd cluster.
func (x Cluster) operate(o *rollout.Operation) *operation {
	o.Probes.Directories = []desired.Directory{{Path: memberDir}}
	out := &operation{Operation: o, want: x}
	if o.Prior != nil {
		out.leavers = o.Fleet.Machines(fleet.Leaving(x.Targets, o.Prior.Targets))
		for _, t := range fleet.Superseded(x.Targets, o.Prior.Targets) {
			out.former = append(out.former, o.Fleet.Machine(t.Former()))
		}
		// Terraform keeps a role only once it was applied, so there is a cluster, also if no record
		// says so (after an import). Empty members beside it would be another one.
		o.Note(func(r *rollout.Record) { r.Formed = true })
	}
	return out
}

func hasData(m *rollout.Machine) bool {
	_, ok := m.Seen.Directories[memberDir]
	return ok
}

// members returns the member list of the first machine that answers.
func (o *operation) members(ctx context.Context, machines []*fleet.Machine) ([]etcd.Member, error) {
	return fleet.FirstAnswer(ctx, machines, o.membersBy)
}

func (o *operation) membersBy(ctx context.Context, m *fleet.Machine) ([]etcd.Member, error) {
	c, err := o.Access.Member(ctx, m)
	if err != nil {
		return nil, err
	}
	return c.Members(ctx)
}

// status returns the status of the member on a machine.
func (o *operation) status(ctx context.Context, m *fleet.Machine) (etcd.Status, error) {
	c, err := o.Access.Member(ctx, m)
	if err != nil {
		return etcd.Status{}, err
	}
	return c.Status(ctx)
}

// statuses returns the status of the member on each machine that answers.
func (o *operation) statuses(ctx context.Context, machines []*fleet.Machine) map[string]etcd.Status {
	var (
		mu  sync.Mutex
		out = map[string]etcd.Status{}
	)
	fleet.EachAll(ctx, machines, func(ctx context.Context, m *fleet.Machine) error {
		s, err := o.status(ctx, m)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		out[m.Name()] = s
		return nil
	})
	return out
}

// health asks every member on one of our machines whether it is healthy.
func (o *operation) health(ctx context.Context, members []etcd.Member) map[etcd.ID]bool {
	return o.ask(ctx, members, (*etcd.Client).Health)
}

// serving asks every member on one of our machines whether it serves reads. It may have an alarm.
func (o *operation) serving(ctx context.Context, members []etcd.Member) map[etcd.ID]bool {
	return o.ask(ctx, members, (*etcd.Client).Serves)
}

// ask returns the members whose answer is no error.
func (o *operation) ask(ctx context.Context, members []etcd.Member, question func(*etcd.Client, context.Context) error) map[etcd.ID]bool {
	var (
		mu  sync.Mutex
		out = map[etcd.ID]bool{}
	)
	fleet.EachAll(ctx, o.allMachines(), func(ctx context.Context, m *fleet.Machine) error {
		member, listed := memberNamed(members, m.Name())
		if !listed {
			return nil
		}
		c, err := o.Access.Member(ctx, m)
		if err == nil && question(c, ctx) == nil {
			mu.Lock()
			defer mu.Unlock()
			out[member.ID] = true
		}
		return nil
	})
	return out
}

// memberNamed returns the member with a name.
func memberNamed(members []etcd.Member, name string) (etcd.Member, bool) {
	if i := slices.IndexFunc(members, func(e etcd.Member) bool { return e.Name == name }); i >= 0 {
		return members[i], true
	}
	return etcd.Member{}, false
}

// allMachines returns the machines of all wanted and all leaving members.
func (o *operation) allMachines() []*fleet.Machine { return slices.Concat(o.Reached(), o.leavers) }

// machineOf returns the machine of a member, nil if it is not one of ours.
func (o *operation) machineOf(member etcd.Member) *fleet.Machine {
	machines := o.allMachines()
	if i := slices.IndexFunc(machines, func(m *fleet.Machine) bool { return m.Name() == member.Name }); i >= 0 {
		return machines[i]
	}
	return nil
}

// otherVoter returns the client of a healthy voter on a machine that stays.
func (o *operation) otherVoter(ctx context.Context, members []etcd.Member, healthy map[etcd.ID]bool, leaver string) (*etcd.Client, error) {
	for _, m := range o.Reached() {
		if m.Name() != leaver && slices.ContainsFunc(members, func(e etcd.Member) bool {
			return e.Name == m.Name() && !e.Learner && healthy[e.ID]
		}) {
			return o.Access.Member(ctx, m)
		}
	}
	return nil, fmt.Errorf("etcd member %s: no other member is healthy and can be asked", leaver)
}

func namesOf(machines []*fleet.Machine) []string {
	var out []string
	for _, m := range machines {
		out = append(out, m.Name())
	}
	return out
}
