package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// errNotForLearners is a learner's answer to a linearizable read.
var errNotForLearners = rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner)

// Health returns nil if the member serves and has raised no alarm. Otherwise the error is that of
// Serves or an [AlarmError]. It sees alarms that were raised or disarmed before the call: the read
// has brought the member up to date.
func (c *Client) Health(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, healthTimeout))
	defer cancel()
	if err := c.Serves(ctx); err != nil {
		return err
	}
	s, err := c.Status(ctx)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(s.Alarms, func(a Alarm) bool { return a.Of(s.ID) }); i >= 0 {
		return &AlarmError{Endpoint: c.endpoint, Alarm: s.Alarms[i]}
	}
	return nil
}

// Serves returns nil if the member serves a linearizable read, so it runs and is part of a quorum.
// A learner never serves one; it serves if it follows a leader. A member with an alarm serves reads,
// votes and can lead: it counts where a member is made healthy again, and nowhere else.
func (c *Client) Serves(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, healthTimeout))
	defer cancel()
	_, err := c.cli.Get(ctx, "health")
	switch {
	case err == nil, errors.Is(err, rpctypes.ErrPermissionDenied):
		return nil
	case errors.Is(err, errNotForLearners):
		s, err := c.Status(ctx)
		if err == nil && s.Leader == 0 {
			err = errors.New("the learner follows no leader")
		}
		return err
	}
	return fmt.Errorf("etcd %s: %w", c.endpoint, err)
}

// Status is a member's own status.
type Status struct {
	ID      ID
	Cluster ID
	Leader  ID // 0: none is known
	Learner bool
	Version string // of the program, "3.6.16"
	// StorageVersion is the release whose format the data have, "3.6.0": the lowest release of the
	// members when all of them were last up. An etcd of an earlier minor does not start with them.
	// Empty before etcd 3.6.
	StorageVersion string
	// DBSize is the size of the file of the database, in bytes (dbSize of etcd's StatusResponse). It
	// is what the quota limits, and only a defragmentation makes it smaller.
	DBSize int64
	// DBSizeInUse is how much of the file holds data, in bytes (dbSizeInUse). A compaction makes it
	// smaller.
	DBSizeInUse int64
	// Quota is the size of the file at which the member raises NoSpace, in bytes (dbSizeQuota, the
	// flag --quota-backend-bytes). It is 0 before etcd 3.6, which does not report it, and negative
	// where the flag has switched it off.
	Quota        int64
	AppliedIndex uint64
	// Alarms are the alarms of all members that this member knows, by the id of their member (errors
	// of etcd's StatusResponse). A member without a quorum may know an old state of them.
	Alarms []Alarm
}

// Status returns the member's own status; it needs no quorum.
//
// The alarms are in it, too, and not in a request of their own: etcd's AlarmList is a proposal to
// all members. It fails without a quorum and on a learner, and writes to the log of each member.
func (c *Client) Status(ctx context.Context) (Status, error) {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
	defer cancel()
	s, err := c.cli.Status(ctx, c.endpoint)
	if err != nil {
		return Status{}, fmt.Errorf("asking etcd %s for its status: %w", c.endpoint, err)
	}
	return Status{
		ID: ID(s.Header.MemberId), Cluster: ID(s.Header.ClusterId), Leader: ID(s.Leader), Learner: s.IsLearner, Version: s.Version, StorageVersion: s.StorageVersion,
		DBSize: s.DbSize, DBSizeInUse: s.DbSizeInUse, Quota: s.DbSizeQuota, AppliedIndex: s.RaftAppliedIndex, Alarms: alarmsOf(s.Errors),
	}, nil
}
