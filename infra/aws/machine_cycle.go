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

// What of an instance changes only while it is stopped.

// cycle stops the instance if it is to be stopped or something has to change that needs it, and starts it if
// it is to run.
func (c *Client) cycle(ctx context.Context, i types.Instance, spec MachineSpec, beforeStop func(context.Context, Machine) error) error {
	id := sdk.ToString(i.InstanceId)
	change := spec.InstanceType != "" && string(i.InstanceType) != spec.InstanceType
	if change || spec.Stopped || stateOf(i) == types.InstanceStateNameStopping {
		if !isDown(stateOf(i)) {
			if beforeStop != nil {
				if err := beforeStop(ctx, machineOf(i)); err != nil {
					return err
				}
			}
			if _, err := c.EC2.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: []string{id}}); err != nil {
				return fmt.Errorf("stop: %w", err)
			}
		}
		if _, err := c.waitState(ctx, id, types.InstanceStateNameStopped); err != nil {
			return err
		}
	}
	if change {
		if err := c.retype(ctx, i, spec); err != nil {
			if spec.Stopped {
				return err
			}
			return errors.Join(err, c.startAgain(ctx, id))
		}
	}
	if spec.Stopped {
		return nil
	}
	_, err := c.EC2.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: []string{id}})
	switch {
	case err == nil:
		_, err = c.waitState(ctx, id, types.InstanceStateNameRunning)
		return err
	case change: // only now EC2 says that the zone lacks the type, or has no room for it
		err = fmt.Errorf("start it as %s: %w", spec.InstanceType, c.withZones(ctx, err, spec.InstanceType))
		return errors.Join(err, c.changeBack(ctx, id, i.InstanceType))
	}
	return fmt.Errorf("start: %w", c.withZones(ctx, err, string(i.InstanceType)))
}

// retype gives a stopped instance the wanted type and its credit option.
func (c *Client) retype(ctx context.Context, i types.Instance, spec MachineSpec) error {
	id := sdk.ToString(i.InstanceId)
	if err := c.setType(ctx, id, spec.InstanceType); err != nil {
		return fmt.Errorf("change the instance type to %s: %w", spec.InstanceType, err)
	}
	if spec.CPUCredits == "" {
		return nil
	}
	if err := c.creditsAfter(ctx, spec, id); err != nil {
		return errors.Join(err, c.setType(ctx, id, string(i.InstanceType)))
	}
	return nil
}

func (c *Client) setType(ctx context.Context, id, instanceType string) error {
	_, err := c.EC2.ModifyInstanceAttribute(ctx, &ec2.ModifyInstanceAttributeInput{
		InstanceId: &id, InstanceType: &types.AttributeValue{Value: &instanceType},
	})
	return err
}

// changeBack gives an instance its old type again and starts it, on a context of its own.
func (c *Client) changeBack(ctx context.Context, id string, was types.InstanceType) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startAgainBudget)
	defer cancel()
	if err := c.setType(ctx, id, string(was)); err != nil {
		return fmt.Errorf("change the instance type back to %s: %w", was, err)
	}
	return c.startAgain(ctx, id)
}

// startAgain starts an instance as it was, on a context of its own, after a change was refused.
func (c *Client) startAgain(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startAgainBudget)
	defer cancel()
	if _, err := c.EC2.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: []string{id}}); err != nil {
		return fmt.Errorf("start it again as it was: %w", err)
	}
	_, err := c.waitState(ctx, id, types.InstanceStateNameRunning)
	return err
}

// startAgainBudget is several times what EC2 takes to start an instance.
const startAgainBudget = 2 * time.Minute
