package aws

import (
	"context"
	"errors"
	"fmt"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// IsGone reports whether an instance is in a state from which it does not return.
func IsGone(i types.Instance) bool {
	return StateOf(i) == types.InstanceStateNameShuttingDown || StateOf(i) == types.InstanceStateNameTerminated
}

// StateOf returns the state of an instance, pending as long as EC2 does not say it.
func StateOf(i types.Instance) types.InstanceStateName {
	if i.State == nil {
		return types.InstanceStateNamePending
	}
	return i.State.Name
}

// instanceLookup returns the lookup that answers questions for an instance by its id. It asks with a filter, for
// which EC2 has a larger token bucket than for ids.
// https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html
func instanceLookup(c *Client) *Lookup[string, types.Instance] {
	return Kept(c, func(c *Client) *Lookup[string, types.Instance] { return NewLookup(c, FilterValues, describeInstances) })
}

// AskInstance returns an instance by its id, with a call that it shares with all callers at the same time. ok is
// false if EC2 does not show it, perhaps not yet.
func (c *Client) AskInstance(ctx context.Context, id string) (i types.Instance, ok bool, err error) {
	return instanceLookup(c).Ask(ctx, id)
}

func describeInstances(ctx context.Context, c *Client, ids []string) (map[string]types.Instance, error) {
	out := map[string]types.Instance{}
	err := c.EachInstance(ctx, func(i types.Instance) { out[sdk.ToString(i.InstanceId)] = i }, Filter("instance-id", ids...))
	return out, err
}

// EachInstance calls take for each instance that the filters match, in pages of the largest size.
func (c *Client) EachInstance(ctx context.Context, take func(types.Instance), filters ...types.Filter) error {
	pages := ec2.NewDescribeInstancesPaginator(c.EC2, &ec2.DescribeInstancesInput{Filters: filters, MaxResults: sdk.Int32(1000)})
	return read(ctx, pages, func(page *ec2.DescribeInstancesOutput) (bool, error) {
		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				take(i)
			}
		}
		return true, nil
	})
}

// Instance returns one instance. The error is ErrNotFound if it certainly does not exist any more.
func (c *Client) Instance(ctx context.Context, id string, opts ...func(*ec2.Options)) (types.Instance, error) {
	out, err := c.EC2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{id}}, opts...)
	if IsCode(err, "InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed") {
		return types.Instance{}, fmt.Errorf("instance %s %w", id, ErrNotFound)
	}
	if err != nil {
		return types.Instance{}, fmt.Errorf("describe instance %s: %w", id, err)
	}
	for _, r := range out.Reservations {
		for _, i := range r.Instances {
			if sdk.ToString(i.InstanceId) == id {
				if IsGone(i) {
					return i, goneError(i)
				}
				return i, nil
			}
		}
	}
	return types.Instance{}, fmt.Errorf("instance %s %w", id, ErrNotFound)
}

// StateReason returns why an instance changed its state, according to EC2.
func StateReason(i types.Instance) string {
	if i.StateReason != nil && sdk.ToString(i.StateReason.Message) != "" {
		return sdk.ToString(i.StateReason.Message)
	}
	if s := sdk.ToString(i.StateTransitionReason); s != "" {
		return s
	}
	return "no reason given"
}

// WatchInstance returns an instance as Instance does, with a call that it shares with all callers at the same
// time. An instance that EC2 does not show, perhaps not yet, is asked for again, so many attempts in all.
func (c *Client) WatchInstance(ctx context.Context, id string, attempts int) (types.Instance, error) {
	for attempt := 1; ; attempt++ {
		i, ok, err := c.AskInstance(ctx, id)
		switch {
		case err != nil:
			return i, fmt.Errorf("describe instance %s: %w", id, err)
		case ok && IsGone(i):
			return i, goneError(i)
		case ok:
			return i, nil
		case attempt >= attempts:
			return i, fmt.Errorf("instance %s %w", id, ErrNotFound)
		}
		select {
		case <-ctx.Done():
			return i, fmt.Errorf("describe instance %s, which EC2 does not show yet: %w", id, context.Cause(ctx))
		case <-time.After(backoff(attempt - 1)):
		}
	}
}

// goneError says that an instance is terminated, or about to be.
func goneError(i types.Instance) error {
	if interrupted(i) {
		return fmt.Errorf("instance %s, a Spot instance, was interrupted by EC2, which needed its capacity or whose price was higher than max_price: it is %s (%s) and %w any more", sdk.ToString(i.InstanceId), StateOf(i), StateReason(i), ErrNotFound)
	}
	return fmt.Errorf("instance %s is %s (%s) and %w any more", sdk.ToString(i.InstanceId), StateOf(i), StateReason(i), ErrNotFound)
}

// InstanceEnds reports whether an instance is on its way to its end, or gone.
func (c *Client) InstanceEnds(ctx context.Context, id string) (bool, error) {
	_, err := c.Instance(ctx, id, c.RetryInDoubt())
	if errors.Is(err, ErrNotFound) {
		return true, nil
	}
	return false, err
}

// AwaitState waits for a state, and fails at once if the instance does not exist any more.
func (c *Client) AwaitState(ctx context.Context, id string, wanted types.InstanceStateName) (types.Instance, error) {
	return c.AwaitInstance(ctx, id, "is "+string(wanted), func(s types.InstanceStateName) bool { return s == wanted })
}

// AwaitInstance waits until the state of an instance is as wanted, and fails at once if it does not exist any more. what
// says in errors what is waited for.
func (c *Client) AwaitInstance(ctx context.Context, id, what string, reached func(types.InstanceStateName) bool) (types.Instance, error) {
	var found types.Instance
	err := Poll(ctx, fmt.Sprintf("wait until instance %s %s", id, what), func(ctx context.Context) (bool, string, error) {
		i, err := c.WatchInstance(ctx, id, ConsistencyAttempts)
		if err != nil {
			return false, "", err
		}
		found = i
		return reached(StateOf(i)), string(StateOf(i)), nil
	})
	return found, err
}

// spotInterrupted is the reason of EC2's with which it ends a Spot instance.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html
const spotInterrupted = "Server.SpotInstanceTermination"

// interrupted reports whether EC2 has ended a Spot instance, or is about to.
func interrupted(i types.Instance) bool {
	return i.StateReason != nil && i.StateReason.Code != nil && *i.StateReason.Code == spotInterrupted
}
