package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// Space is how full the database of a member is, in bytes, as in [Status].
type Space struct{ Size, InUse, Quota int64 }

// Space returns the space of the member's database. wanted is the quota of a member that does not
// report one.
func (s Status) Space(wanted int64) Space {
	quota := s.Quota
	if quota == 0 {
		quota = wanted
	}
	return Space{Size: s.DBSize, InUse: s.DBSizeInUse, Quota: quota}
}

// minFree is how much a defragmentation must free to be worth the moment in which the member does
// not answer.
const minFree = 32 << 20

// Free is how much of the file holds no data.
func (s Space) Free() int64 { return s.Size - s.InUse }

// Fragmented reports whether the member wants a defragmentation. Either most of the file is free and
// the file is large, or the file is about to reach the quota and its data are not.
//
// A free page is used again before the file grows, so a small file, or a file that is half full, is
// left alone: it would only grow to the same size again. After a defragmentation neither condition
// holds, until the data have grown by a fifth or the file has doubled.
func (s Space) Fragmented() bool {
	if s.Quota <= 0 || s.Free() < minFree {
		return false
	}
	large, nearQuota := s.Size >= s.Quota/4, s.Size >= s.Quota/10*9
	return large && s.InUse <= s.Size/2 || nearQuota && s.InUse <= s.Quota/4*3
}

// NearlyFull reports whether the data themselves are about to reach the quota. No defragmentation
// helps.
func (s Space) NearlyFull() bool { return s.Quota > 0 && s.InUse > s.Quota/5*4 }

// Full reports whether the member would soon raise NoSpace again after it was disarmed.
func (s Space) Full() bool { return s.Quota > 0 && s.Size > s.Quota/10*9 }

// String returns the size and the quota for people: "1.9 GiB of quota 2 GiB".
func (s Space) String() string {
	if s.Quota <= 0 {
		return SizeWords(s.Size)
	}
	return SizeWords(s.Size) + " of quota " + SizeWords(s.Quota)
}

// SizeWords returns a size for people: "512 B", "1.5 MiB".
func SizeWords(bytes int64) string {
	units, v := []string{"B", "KiB", "MiB", "GiB"}, float64(bytes)
	for len(units) > 1 && v >= 1024 {
		units, v = units[1:], v/1024
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") + " " + units[0]
}

// Compact forgets everything but the present values. Clients that watch from an earlier revision
// have to list again. Each member frees its pages by itself, a moment later: see WaitCompacted.
func (c *Client) Compact(ctx context.Context) error {
	now, err := c.cli.Get(ctx, "health")
	if err == nil {
		_, err = c.cli.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("compacting etcd %s: %w", c.endpoint, err)
	}
	return nil
}

// compactPoll is the interval at which a member's data are looked at while a compaction runs. It
// frees pages in batches, with pauses of at most 100 ms in between.
const compactPoll = 500 * time.Millisecond

// WaitCompacted waits until the member frees no more pages of a compaction.
func (c *Client) WaitCompacted(ctx context.Context) error {
	last := int64(-1)
	return wait.PollUntilContextCancel(ctx, compactPoll, true, func(ctx context.Context) (bool, error) {
		s, err := c.Status(ctx)
		if err != nil {
			return false, err
		}
		settled := last >= 0 && s.DBSizeInUse >= last
		last = s.DBSizeInUse
		return settled, nil
	})
}

// Defragment writes the member's database anew, without free pages. Until it is done, the member
// answers nothing; it stays a voter, and a leader stays leader. It takes some seconds for a GiB, and
// needs as much space on the disk as the data take.
func (c *Client) Defragment(ctx context.Context) error {
	if _, err := c.cli.Defragment(ctx, c.endpoint); err != nil {
		return fmt.Errorf("defragmenting etcd %s: %w", c.endpoint, err)
	}
	return nil
}

// DisarmNoSpace disarms the alarm NoSpace of every member and waits until this member knows it.
func (c *Client) DisarmNoSpace(ctx context.Context) error {
	return c.until(ctx, "disarm "+string(NoSpace), nil, func(ctx context.Context) error {
		s, err := c.Status(ctx)
		if err != nil {
			return err
		}
		armed := 0
		for _, a := range s.Alarms {
			if a.Type != NoSpace {
				continue
			}
			armed++
			ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
			defer cancel()
			if _, err := c.cli.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: uint64(a.Member), Alarm: etcdserverpb.AlarmType_NOSPACE}); err != nil {
				return err
			}
		}
		if armed > 0 {
			return fmt.Errorf("%d alarms were active", armed) // look again
		}
		return nil
	})
}
