package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// WaitHealthy polls Health until it succeeds. abort, if not nil, is called between polls; its error
// ends the wait, and so does an alarm, since waiting ends none.
func (c *Client) WaitHealthy(ctx context.Context, abort func(context.Context) error) error {
	return c.until(ctx, "become healthy", abort, c.Health)
}

// WaitServes polls Serves until it succeeds. abort is as for WaitHealthy.
func (c *Client) WaitServes(ctx context.Context, abort func(context.Context) error) error {
	return c.until(ctx, "serve reads", abort, c.Serves)
}

// AddLearner adds a member that will listen for its peers on peerURL. It must then be started, with
// the members at that moment, and promoted.
func (c *Client) AddLearner(ctx context.Context, peerURL string) (Member, error) {
	var added Member
	err := c.until(ctx, "accept learner "+peerURL, nil, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
		defer cancel()
		resp, err := c.cli.MemberAddAsLearner(ctx, []string{peerURL})
		if err == nil {
			added = Member{ID: ID(resp.Member.ID), PeerURLs: resp.Member.PeerURLs, Learner: true}
		}
		return err
	})
	return added, err
}

// Promote makes a learner a voter as soon as it has caught up with the leader. A member that is a
// voter already is no error. abort is as for WaitHealthy.
func (c *Client) Promote(ctx context.Context, id ID, abort func(context.Context) error) error {
	return c.retryUntil(ctx, "promote learner "+id.String(), abort, rpctypes.ErrMemberNotLearner, func(ctx context.Context) error {
		_, err := c.cli.MemberPromote(ctx, uint64(id))
		return err
	})
}

// Move tells the cluster that a member listens for its peers on another URL from now on. The member
// must not run.
func (c *Client) Move(ctx context.Context, id ID, peerURL string) error {
	return c.until(ctx, "accept that member "+id.String()+" listens on "+peerURL, nil, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
		defer cancel()
		_, err := c.cli.MemberUpdate(ctx, uint64(id), []string{peerURL})
		return err
	})
}

// Remove removes a member from the cluster; one that is not in it is no error. etcd itself refuses
// if the remaining members would have no quorum.
func (c *Client) Remove(ctx context.Context, id ID) error {
	return c.retryUntil(ctx, "remove member "+id.String(), nil, rpctypes.ErrMemberNotFound, func(ctx context.Context) error {
		_, err := c.cli.MemberRemove(ctx, uint64(id))
		return err
	})
}

// retryUntil repeats a request until it succeeds. The error done means that an earlier request, whose
// response was lost, has succeeded.
func (c *Client) retryUntil(ctx context.Context, what string, abort func(context.Context) error, done error, request func(context.Context) error) error {
	return c.until(ctx, what, abort, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
		defer cancel()
		if err := request(ctx); !errors.Is(err, done) {
			return err
		}
		return nil
	})
}

// MoveLeader transfers the leadership from this member, if it leads, to another voter. That takes
// milliseconds, an election takes a second. Proposals made in the meantime are lost.
func (c *Client) MoveLeader(ctx context.Context, to ID) error {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
	defer cancel()
	s, err := c.Status(ctx)
	if err == nil && s.Leader != s.ID {
		return nil
	}
	if err == nil {
		_, err = c.cli.MoveLeader(ctx, uint64(to))
	}
	if err != nil {
		return fmt.Errorf("moving the leadership of etcd %s to %s: %w", c.endpoint, to, err)
	}
	return nil
}

// permanent are refusals that retries do not change.
var permanent = []error{
	rpctypes.ErrPeerURLExist, rpctypes.ErrMemberExist, rpctypes.ErrMemberBadURLs, rpctypes.ErrTooManyLearners,
	rpctypes.ErrMemberNotFound, rpctypes.ErrPermissionDenied,
}

// Busy reports whether the member answered that it has no leader or quorum at the moment: an
// election takes a second or two.
func Busy(err error) bool {
	for _, b := range []error{
		rpctypes.ErrNoLeader, rpctypes.ErrLeaderChanged, rpctypes.ErrTimeout, rpctypes.ErrTimeoutDueToLeaderFail,
		rpctypes.ErrTimeoutDueToConnectionLost, rpctypes.ErrTooManyRequests, context.DeadlineExceeded,
	} {
		if errors.Is(err, b) {
			return true
		}
	}
	return status.Code(err) == codes.DeadlineExceeded
}

// until retries at pollInterval until try succeeds or its error is permanent.
func (c *Client) until(ctx context.Context, what string, abort func(context.Context) error, try func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		err := try(ctx)
		if err == nil {
			return true, nil
		}
		for _, h := range permanent {
			if errors.Is(err, h) {
				return false, err
			}
		}
		if alarm := (*AlarmError)(nil); errors.As(err, &alarm) {
			return false, err
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if abort != nil {
			return false, abort(ctx)
		}
		return false, nil
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("waiting for etcd %s to %s: %w (last: %w)", c.endpoint, what, context.Cause(ctx), last)
	}
	return fmt.Errorf("waiting for etcd %s to %s: %w", c.endpoint, what, err)
}
