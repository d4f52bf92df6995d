package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
)

// Settle records that a state holds the claims: one claim of a process settles all of it. ids are
// what carries them, at most 1,000. What another has taken over meanwhile stays unsettled.
func (c *Client) Settle(ctx context.Context, claim Claim, ids []string, now time.Time) error {
	if claim.ID == "" || len(ids) == 0 {
		return nil
	}
	_, err := c.EC2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: ids, Tags: ec2Tags(claim.settledTag(now))})
	if err != nil {
		return fmt.Errorf("settle the claim %s: %w", claim.ID, err)
	}
	return nil
}

// takeOver writes the claim on what another create has left. What is adopted is settled with it,
// since its old claim may have been.
func (c *Client) takeOver(ctx context.Context, claim Claim, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	tags := claim.tags()
	if claim.Adopt {
		maps.Copy(tags, claim.settledTag(claim.At))
	}
	if _, err := c.EC2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: ids, Tags: ec2Tags(tags)}, c.retryUntilKnown()); err != nil {
		return fmt.Errorf("write the claim on what an earlier run has left: %w", err)
	}
	return nil
}

// readBack waits until read returns no error about another's claim: EC2 may still show the tags
// from before they were written. It gives up after about three seconds, with the last error.
func readBack(ctx context.Context, read func(context.Context) error) error {
	for attempt := 0; ; attempt++ {
		err := read(ctx)
		if !isClaimed(err) || attempt >= doubtAttempts {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(backoff(attempt)):
		}
	}
}

func isClaimed(err error) bool {
	var claimed *ClaimedError
	return errors.As(err, &claimed)
}
