package machine

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
)

// Stop asks EC2 to stop instances, all or none, and does not wait for them. EC2 stops none whose
// start is under way, so it waits for that.
func Stop(ctx context.Context, c *aws.Client, ids ...string) error {
	if len(ids) == 0 {
		return nil
	}
	g, gctx := parallel.WithContext(ctx)
	for _, id := range ids {
		g.Go(func() error { return awaitBegun(gctx, c, id) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if _, err := c.EC2.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: ids}); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	return nil
}

// Start starts a machine unless it runs, and waits until EC2 says that it does. The returned
// one is as it is then.
func Start(ctx context.Context, c *aws.Client, m Machine) (Machine, error) {
	if isDown(types.InstanceStateName(m.State)) {
		if _, err := c.AwaitState(ctx, m.ID, types.InstanceStateNameStopped); err != nil { // EC2 starts no stopping one
			return m, fmt.Errorf("machine %s: %w", m.Name, err)
		}
		if _, err := c.EC2.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: []string{m.ID}}); err != nil {
			return m, fmt.Errorf("machine %s: start: %w", m.Name, c.WithZones(ctx, err, m.InstanceType))
		}
	}
	i, err := c.AwaitState(ctx, m.ID, types.InstanceStateNameRunning)
	if err != nil {
		return m, fmt.Errorf("machine %s: %w", m.Name, err)
	}
	return machineOf(i), nil
}
