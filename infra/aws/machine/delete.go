package machine

import (
	"context"
	"errors"
	"fmt"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/route"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
)

// Delete terminates the instance, waits until it is gone, and removes the routes to its pods. An
// instance that does not exist is no error. The error is a ClaimedError if it belongs to another
// owner.
func Delete(ctx context.Context, c *aws.Client, id string, spec Spec) error {
	var tables []types.RouteTable
	err := CheckClaim(ctx, c, id, spec)
	if err == nil && spec.PodCIDR.IsValid() && spec.VPCID != "" {
		tables, err = route.SharedTables(ctx, c, spec.VPCID)
	}
	if err == nil {
		g, gctx := parallel.WithContext(ctx)
		g.Go(func() error { return terminate(gctx, c, id) })
		g.Go(func() error { return route.Delete(gctx, c, spec.toPods(), tables, id) })
		err = g.Wait()
	}
	if err != nil {
		return fmt.Errorf("machine %s (%s): %w", spec.Name, id, err)
	}
	return nil
}

// CheckClaim returns a ClaimedError if the instance belongs to another owner, and an error if its
// owner cannot be read. An instance that does not exist is no error.
func CheckClaim(ctx context.Context, c *aws.Client, id string, spec Spec) error {
	i, err := c.WatchInstance(ctx, id, aws.DoubtAttempts)
	if errors.Is(err, aws.ErrNotFound) {
		return nil
	}
	if err == nil {
		_, err = spec.judge(i, true)
	}
	return err
}

// judge decides about an instance. known says that the caller knows its id.
func (s Spec) judge(i types.Instance, known bool) (take bool, err error) {
	if take, err = s.Claim.Judge("instance "+sdk.ToString(i.InstanceId), aws.OwnerOf(aws.TagMap(i.Tags)), known); err != nil {
		err = fmt.Errorf("machine %s of cluster %s: %w", s.Name, s.Cluster, err)
	}
	return take, err
}

func terminate(ctx context.Context, c *aws.Client, id string) error {
	_, err := c.EC2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{id}}, c.RetryInDoubt())
	if aws.IsCode(err, "InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed") {
		return nil
	}
	if err != nil {
		return fmt.Errorf("terminate: %w", err)
	}
	return awaitTerminated(ctx, c, id)
}

func awaitTerminated(ctx context.Context, c *aws.Client, id string) error {
	return aws.Poll(ctx, "wait until it is terminated", func(ctx context.Context) (bool, string, error) {
		i, err := c.WatchInstance(ctx, id, 1)
		switch {
		case errors.Is(err, aws.ErrNotFound):
			return aws.StateOf(i) != types.InstanceStateNameShuttingDown, "shutting-down", nil
		case err != nil:
			return false, "", err
		}
		return false, string(aws.StateOf(i)), nil
	})
}
