package fleet

import (
	"context"
	"fmt"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// MoveLeader transfers the leadership from the member on m to another member while no API server
// writes. It does nothing if the member on m does not lead.
func MoveLeader(ctx context.Context, m *Machine, c *etcd.Client, to etcd.Member, w Writers) error {
	if s, err := c.Status(ctx); err != nil || s.Leader != s.ID {
		return err
	}
	err := m.fleet.withoutWrites(ctx, m.Name(), w, func(ctx context.Context) error { return c.MoveLeader(ctx, to.ID) })
	if err == nil {
		m.Say("etcd: %s leads now", to.Label())
	}
	return err
}

// Flushed returns a function that has all serving members read from the leader. A member forwards
// requests in order, so the earlier ones have reached the leader too.
func Flushed(members []etcd.Member, serving map[etcd.ID]bool,
	serve func(context.Context, []etcd.Member) map[etcd.ID]bool,
) func(context.Context) error {
	return func(ctx context.Context) error {
		now := serve(ctx, members)
		for _, m := range members {
			if serving[m.ID] && !now[m.ID] {
				return fmt.Errorf("etcd member %s does not answer", m.Label())
			}
		}
		return nil
	}
}

// MayStopFirst reports whether a leaving member may be stopped before it is removed. Until its
// removal it counts as a voter, so the others must be a quorum of all voters.
func MayStopFirst(members []etcd.Member, healthy map[etcd.ID]bool, leaver etcd.ID) bool {
	voters, others := 0, 0
	for _, m := range members {
		if m.Learner {
			continue
		}
		voters++
		if m.ID != leaver && healthy[m.ID] {
			others++
		}
	}
	return others >= etcd.Quorum(voters)
}

// RemoveMember removes a serving member that is not the leader from its cluster. With stopFirst the
// member is stopped first, so that it finishes its requests: a removed member that runs still
// accepts requests, does not answer them, and exits a second later. Without stopFirst, when its
// vote is needed for its own removal, the API servers are held until it has been removed and
// killed. by names the operation in progress messages.
func RemoveMember(ctx context.Context, by string, m *Machine, w Writers, stopFirst bool, remove func(context.Context) error) error {
	if !stopFirst {
		return m.fleet.withoutWrites(ctx, m.Name(), w, func(ctx context.Context) error {
			if err := remove(ctx); err != nil {
				return err
			}
			if err := deed.Kill(ctx, m.Remote, component.EtcdUnit); err != nil {
				m.Say("etcd: its removed member was not stopped at once: %v", err)
			}
			return nil
		})
	}
	if err := m.Stop(ctx, by, component.EtcdUnit); err != nil {
		return err
	}
	err := remove(ctx)
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience.Of(ctx, LeaveBudget))
		defer cancel()
		if err := deed.Start(ctx, m.Remote, component.EtcdUnit); err != nil {
			m.Say("etcd: its member could not be started again: %v", err)
		}
	}
	return err
}
