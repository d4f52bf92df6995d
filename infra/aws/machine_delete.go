package aws

import (
	"context"
	"errors"
	"fmt"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"golang.org/x/sync/errgroup"
)

// DeleteMachine terminates the instance, waits until it is gone, and removes the routes to its
// pods. An instance that does not exist is no error. The error is a ClaimedError if it is
// another's.
func (c *Client) DeleteMachine(ctx context.Context, id string, spec MachineSpec) error {
	var tables []types.RouteTable
	err := c.CheckMachine(ctx, id, spec)
	if err == nil && spec.PodCIDR.IsValid() && spec.VPCID != "" {
		tables, err = c.sharedTables(ctx, spec.VPCID)
	}
	if err == nil {
		g, gctx := errgroup.WithContext(ctx)
		g.Go(func() error { return c.terminate(gctx, id) })
		g.Go(func() error { return c.deletePodRoutes(gctx, spec.podRoutes(), tables, id) })
		err = g.Wait()
	}
	if err != nil {
		return fmt.Errorf("machine %s (%s): %w", spec.Name, id, err)
	}
	return nil
}

// CheckMachine returns a ClaimedError if the instance is another's, and an error if whose it is
// cannot be read. An instance that does not exist is no error.
func (c *Client) CheckMachine(ctx context.Context, id string, spec MachineSpec) error {
	i, err := c.WatchInstance(ctx, id, DoubtAttempts)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err == nil {
		_, err = spec.judge(i, true)
	}
	return err
}

// judge decides about an instance. known says that the caller knows its id.
func (s MachineSpec) judge(i types.Instance, known bool) (take bool, err error) {
	if take, err = s.Claim.Judge("instance "+sdk.ToString(i.InstanceId), HolderOf(TagMap(i.Tags)), known); err != nil {
		err = fmt.Errorf("machine %s of cluster %s: %w", s.Name, s.Cluster, err)
	}
	return take, err
}

func (c *Client) terminate(ctx context.Context, id string) error {
	_, err := c.EC2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{id}}, c.RetryInDoubt())
	if IsCode(err, "InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed") {
		return nil
	}
	if err != nil {
		return fmt.Errorf("terminate: %w", err)
	}
	return c.awaitTerminated(ctx, id)
}

func (c *Client) awaitTerminated(ctx context.Context, id string) error {
	return Poll(ctx, "wait until it is terminated", func(ctx context.Context) (bool, string, error) {
		i, err := c.WatchInstance(ctx, id, 1)
		switch {
		case errors.Is(err, ErrNotFound):
			return StateOf(i) != types.InstanceStateNameShuttingDown, "shutting-down", nil
		case err != nil:
			return false, "", err
		}
		return false, string(StateOf(i)), nil
	})
}
