package rollout

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// etcdMemberDir exists once etcd has started for the first time.
const etcdMemberDir = component.EtcdDataDir + "/member"

// Etcd is an etcd cluster and the machines of its members. Spec.Members is derived from Targets.
type Etcd struct {
	Spec    component.EtcdSpec
	Targets []fleet.Target
	// Restore says from what the cluster is made, if not empty.
	Restore EtcdRestore
	// Controllers finds the machines with API servers, which are held while etcd's leadership moves. Nil means
	// that there are none but on Targets.
	Controllers func(context.Context) ([]fleet.Target, error)
}

// name is how the role is called in progress, in errors and in claims.
const name = "etcd"

func (x Etcd) spec() component.EtcdSpec {
	x.Spec.Members = fleet.Nodes(x.Targets)
	return x.Spec
}

// Definition implements Role.
func (x Etcd) Definition() Definition {
	spec := x.spec()
	return Definition{Name: name, PKI: spec.Cluster.PKI, Targets: x.Targets, Artifacts: x.Spec.Artifacts,
		Machine: func(n component.Node) (component.Machine, error) { return component.Etcd(spec, n) },
		Traces:  spec.Traces(),
		ReadSettings: func(n component.Node, f component.Found) (_ Role, err error) {
			x.Spec, err = spec.Read(n, f)
			return x, err
		},
		Dirs: []string{component.EtcdDataDir}, AsksMachines: true}
}

// etcdOperation is an operation on an etcd cluster.
type etcdOperation struct {
	*Operation
	want Etcd
	// leavers are the machines of members that are no longer wanted. Their health is checked while
	// they are members. Only a restore changes them here: it puts their data aside.
	leavers []*fleet.Machine
	// former are the machines of members whose names other machines have now.
	former []*fleet.Machine
}

// operate makes o an operation on this etcd cluster.
func (x Etcd) operate(o *Operation) *etcdOperation {
	o.Probes.Directories = []desired.Directory{{Path: etcdMemberDir}}
	out := &etcdOperation{Operation: o, want: x}
	if o.Prior != nil {
		out.leavers = o.Fleet.Machines(fleet.Leaving(x.Targets, o.Prior.Targets))
		for _, t := range fleet.Superseded(x.Targets, o.Prior.Targets) {
			out.former = append(out.former, o.Fleet.Machine(t.Former()))
		}
		// Terraform keeps a role only once it was applied, so there is a cluster, also if no record
		// says so (after an import). Empty members beside it would be another one.
		o.Note(func(r *Record) { r.Formed = true })
	}
	return out
}

func hasData(m *Machine) bool {
	_, ok := m.Seen.Directories[etcdMemberDir]
	return ok
}

// members returns the member list of the first machine that answers.
func (o *etcdOperation) members(ctx context.Context, machines []*fleet.Machine) ([]etcd.Member, error) {
	return fleet.FirstAnswer(ctx, machines, o.membersBy)
}

func (o *etcdOperation) membersBy(ctx context.Context, m *fleet.Machine) ([]etcd.Member, error) {
	c, err := o.Access.Member(ctx, m)
	if err != nil {
		return nil, err
	}
	return c.Members(ctx)
}

// status returns the status of the member on a machine.
func (o *etcdOperation) status(ctx context.Context, m *fleet.Machine) (etcd.Status, error) {
	c, err := o.Access.Member(ctx, m)
	if err != nil {
		return etcd.Status{}, err
	}
	return c.Status(ctx)
}

// facts observes the cluster. If units run but no member answers, it waits fleet.EtcdAnswerBudget.
func (o *etcdOperation) facts(ctx context.Context) (etcdFacts, error) {
	rec := o.Record()
	f := etcdFacts{formed: rec.Formed, restored: o.want.Restore.Wanted() && rec.Restored != nil, replaceData: mayReplace(rec.Restored, o.want.restore())}
	f.release, _ = version.Parse(o.want.Spec.Version) // cannot fail: the version has been rendered
	var running []*fleet.Machine
	for _, m := range o.Machines {
		if m.Running(component.EtcdUnit) {
			running = append(running, m.Machine)
		}
		f.wanted = append(f.wanted, memberFacts{
			name: m.Name(), peerURL: component.EtcdPeerURL(m.Node), reachable: m.Gone == nil,
			running: m.Running(component.EtcdUnit), data: hasData(m),
			changes: len(m.Changes) > 0, restarts: Restarts(m.Changes, component.EtcdUnit), rules: changesRules(m),
		})
	}
	if len(running) == 0 {
		return f, o.learnStarted(ctx, &f)
	}
	if _, err := o.Access.Keys.Admin(ctx, pki.EtcdCA); err != nil {
		return f, err // without a key no member can be asked; that is not the same as no answer
	}
	waitCtx, cancel := context.WithTimeout(ctx, fleet.EtcdAnswerBudget)
	defer cancel()
	_ = wait.PollUntilContextCancel(waitCtx, fleet.Poll, true, func(ctx context.Context) (bool, error) {
		members, err := o.members(ctx, running)
		f.members = members
		return err == nil, nil
	})
	if ctx.Err() != nil {
		return f, ctx.Err()
	}
	if f.members == nil {
		return f, o.learnStarted(ctx, &f)
	}
	f.healthy = o.health(ctx, f.members)
	f.learn(o.statuses(ctx, o.allMachines()), o.want.Spec.EffectiveQuota())
	origins, err := o.origins(ctx)
	if err != nil {
		return f, err
	}
	for i := range f.wanted {
		f.wanted[i].origin = origins[f.wanted[i].name]
	}
	return f, ctx.Err()
}

// learnStarted takes from the machines which of them have been a member, unless it is known that
// there is a cluster.
func (o *etcdOperation) learnStarted(ctx context.Context, f *etcdFacts) error {
	if f.formed {
		return nil
	}
	settings, err := o.bootstrapSettings(ctx)
	for i, w := range f.wanted {
		f.wanted[i].started = component.EtcdHasStarted(settings[w.name])
	}
	return err
}

// learn takes what the members say of themselves, by machine.
func (f *etcdFacts) learn(statuses map[string]etcd.Status, quota int64) {
	f.quota, f.spaces = quota, map[string]etcd.Space{}
	var known [][]etcd.Alarm
	for name, s := range statuses {
		f.spaces[name] = s.Space(quota)
		if s.Leader == s.ID {
			f.leader = name
		}
		if s.Leader != 0 { // without a quorum a member may know an old state of the alarms
			known, f.cluster = append(known, s.Alarms), s.Cluster
		}
		if i := slices.IndexFunc(f.wanted, func(w memberFacts) bool { return w.name == name }); i >= 0 {
			f.wanted[i].release, _ = version.Parse(s.Version)
			f.wanted[i].storage, _ = version.Parse(s.StorageVersion)
		}
	}
	f.alarms = etcd.Alarms(known...)
}

// memberNamed returns the member with a name.
func memberNamed(members []etcd.Member, name string) (etcd.Member, bool) {
	if i := slices.IndexFunc(members, func(e etcd.Member) bool { return e.Name == name }); i >= 0 {
		return members[i], true
	}
	return etcd.Member{}, false
}

// statuses returns the status of the member on each machine that answers.
func (o *etcdOperation) statuses(ctx context.Context, machines []*fleet.Machine) map[string]etcd.Status {
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
func (o *etcdOperation) health(ctx context.Context, members []etcd.Member) map[etcd.ID]bool {
	return o.ask(ctx, members, (*etcd.Client).Health)
}

// serving asks every member on one of our machines whether it serves reads. It may have an alarm.
func (o *etcdOperation) serving(ctx context.Context, members []etcd.Member) map[etcd.ID]bool {
	return o.ask(ctx, members, (*etcd.Client).Serves)
}

// ask returns the members whose answer is no error.
func (o *etcdOperation) ask(ctx context.Context, members []etcd.Member, question func(*etcd.Client, context.Context) error) map[etcd.ID]bool {
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

// Observe implements Role. It also compares the cluster's members with the wanted ones.
func (x Etcd) Observe(ctx context.Context, base *Operation) Report {
	o := x.operate(base)
	r := o.Report(ctx, func(ctx context.Context, r *Report) {
		o.membershipDrift(ctx, r)
		o.contents(ctx, r)
		o.databases(ctx, r)
	})
	formed := o.Record().Formed
	var away []string
	for _, m := range o.Machines {
		if m.Host.Off || r.Unreachable[m.Name()] != nil {
			away = append(away, m.Name())
		}
		if formed && r.Unreachable[m.Name()] == nil && !m.Host.Off && !hasData(m) {
			r.Find(finding.Finding{Subject: m.Name(), Kind: finding.MemberData, Target: etcdMemberDir, Problem: finding.Missing})
		}
	}
	deferDefragmentation(&r, away)
	return r
}

// Contents returns how much an etcd cluster holds according to a report about it, nil if no member said
// so.
func Contents(r Report) *etcd.Contents {
	if held, ok := r.Details.(etcd.Contents); ok {
		return &held
	}
	return nil
}

// contents asks how much the cluster holds. That nobody answers is no finding: membershipDrift
// reports it.
func (o *etcdOperation) contents(ctx context.Context, r *Report) {
	if len(r.Unjudged) > 0 {
		return // nobody answered the question before
	}
	ctx, cancel := fleet.Probing(ctx)
	defer cancel()
	held, err := fleet.AskInTurn(ctx, fleet.AnswerShare, etcd.Busy, fleet.QuestionsFor(MachinesOf(o.Machines),
		func(ctx context.Context, m *fleet.Machine) (etcd.Contents, error) {
			c, err := o.Access.Member(ctx, m)
			if err != nil {
				return etcd.Contents{}, err
			}
			return c.Contents(ctx)
		}))
	if err == nil {
		r.Details = held
	}
}

// membershipDrift compares the cluster's member list with the wanted members.
func (o *etcdOperation) membershipDrift(ctx context.Context, r *Report) {
	ctx, cancel := fleet.Probing(ctx)
	defer cancel()
	members, err := fleet.AskInTurn(ctx, fleet.AnswerShare, etcd.Busy, fleet.QuestionsFor(MachinesOf(o.Machines), o.membersBy))
	if err != nil {
		r.CannotJudge(finding.Members, "", err)
		return
	}
	var wanted []etcd.Wanted
	for _, m := range o.Machines {
		wanted = append(wanted, etcd.Wanted{Name: m.Name(), PeerURL: component.EtcdPeerURL(m.Node)})
	}
	r.Find(etcd.Compare(members, wanted)...)
}
