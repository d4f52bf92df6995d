package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Settle records that a state holds the claims: one claim of a process settles all claims of the process. ids
// are the objects with these claims, at most 1,000, or ARNs outside EC2. Objects that another owner has taken
// over meanwhile stay unsettled.
func (c *Client) Settle(ctx context.Context, claim Claim, ids []string, now time.Time) error {
	if claim.ID == "" || len(ids) == 0 {
		return nil
	}
	if err := c.WriteTags(ctx, ids, claim.settledTag(now)); err != nil {
		return fmt.Errorf("settle the claim %s: %w", claim.ID, err)
	}
	return nil
}

// SettleMade settles claims after their objects were made, perhaps long ago. claims are the ids of
// the objects, by claim. If another owner has taken an object over meanwhile, it writes nothing: the
// settled tag has one value, the new owner's.
func (c *Client) SettleMade(ctx context.Context, claims map[string][]string, now time.Time) error {
	held, err := c.StillClaimed(ctx, claims)
	if err != nil {
		return err
	}
	runs := map[string][]string{}
	for id, things := range held {
		run := Claim{ID: id}.run()
		runs[run] = append(runs[run], things...)
	}
	for run, things := range runs {
		for some := range slices.Chunk(things, 1000) {
			if err := c.Settle(ctx, Claim{ID: run}, some, now); err != nil {
				return err
			}
		}
	}
	return nil
}

// StillClaimed returns, of the given ids by claim, the objects that still have their claim.
func (c *Client) StillClaimed(ctx context.Context, claims map[string][]string) (map[string][]string, error) {
	claimOf := map[string]string{}
	for id, things := range claims {
		for _, t := range things {
			claimOf[t] = id
		}
	}
	now, err := c.claimsOn(ctx, slices.Sorted(maps.Keys(claimOf)))
	if err != nil {
		return nil, fmt.Errorf("find out who owns it: %w", err)
	}
	out := map[string][]string{}
	for _, thing := range slices.Sorted(maps.Keys(now)) {
		if claim := now[thing]; claimOf[thing] == claim {
			out[claim] = append(out[claim], thing)
		}
	}
	return out, nil
}

// FilterValues is how many values EC2 takes in one filter.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Filtering.html
const FilterValues = 200

// TakeOver writes the claim on objects that another create has left. Adopted objects are settled at
// once, since their old claim may have been settled.
func (c *Client) TakeOver(ctx context.Context, claim Claim, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	tags := claim.Tags()
	if claim.Adopt {
		maps.Copy(tags, claim.settledTag(claim.At))
	}
	if err := c.WriteTags(ctx, ids, tags); err != nil {
		return fmt.Errorf("write the claim on what an earlier run has left: %w", err)
	}
	return nil
}

// ReadBack waits until read returns no error about the claim of another owner: EC2 may still show
// the earlier tags. It gives up after about three seconds, with the last error.
func ReadBack(ctx context.Context, read func(context.Context) error) error {
	for attempt := 0; ; attempt++ {
		err := read(ctx)
		if !IsClaimed(err) || attempt >= DoubtAttempts {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(backoff(attempt)):
		}
	}
}

// IsClaimed reports whether err says that an object belongs to another owner.
func IsClaimed(err error) bool {
	var claimed *ClaimedError
	return errors.As(err, &claimed)
}

// Raced marks a ClaimedError that a create has met after it had begun: another create of the same
// name was faster.
func Raced(err error) error {
	var claimed *ClaimedError
	if errors.As(err, &claimed) && claimed.Known {
		claimed.Known, claimed.Raced = false, true
	}
	return err
}
