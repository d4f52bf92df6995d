package etcdcluster

import (
	"context"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// Observe implements Role. It also compares the cluster's members with the wanted ones.
func (x Cluster) Observe(ctx context.Context, base *rollout.Operation) rollout.Report {
	o := x.operate(base)
	r := o.Report(ctx, func(ctx context.Context, r *rollout.Report) {
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
			r.Find(finding.Finding{Subject: m.Name(), Kind: finding.MemberData, Target: memberDir, Problem: finding.Missing})
		}
	}
	deferDefragmentation(&r, away)
	return r
}

// Contents returns how much an etcd cluster holds according to a report about it, nil if no member said
// so.
func Contents(r rollout.Report) *etcd.Contents {
	if held, ok := r.Details.(etcd.Contents); ok {
		return &held
	}
	return nil
}

// contents asks how much the cluster holds. That nobody answers is no finding: membershipDrift
// reports it.
func (o *operation) contents(ctx context.Context, r *rollout.Report) {
	if len(r.Unjudged) > 0 {
		return // nobody answered the question before
	}
	ctx, cancel := fleet.Probing(ctx)
	defer cancel()
	held, err := fleet.AskInTurn(ctx, fleet.AnswerShare, etcd.Busy, fleet.QuestionsFor(rollout.MachinesOf(o.Machines),
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
func (o *operation) membershipDrift(ctx context.Context, r *rollout.Report) {
	ctx, cancel := fleet.Probing(ctx)
	defer cancel()
	members, err := fleet.AskInTurn(ctx, fleet.AnswerShare, etcd.Busy, fleet.QuestionsFor(rollout.MachinesOf(o.Machines), o.membersBy))
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
