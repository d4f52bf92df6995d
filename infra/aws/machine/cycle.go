package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// Properties of an instance that can change only while it is stopped.

// shape has the properties of an instance that can change only while it is stopped.
type shape struct{ instanceType, group string }

func shapeOf(i types.Instance) shape {
	return shape{string(i.InstanceType), machineOf(i).PlacementGroup}
}

// shape returns the wanted shape of an instance.
func (s Spec) shape(now shape) shape {
	return shape{cmp.Or(s.InstanceType, now.instanceType), s.PlacementGroup}
}

// cycle stops the instance if it is to be stopped or its shape has to change, and starts it if it is to run.
func cycle(ctx context.Context, c *aws.Client, i types.Instance, spec Spec, beforeStop func(context.Context, Machine) error) error {
	id, was := sdk.ToString(i.InstanceId), shapeOf(i)
	wanted := spec.shape(was)
	if wanted.group != "" && wanted.group != was.group {
		if err := findPlacement(ctx, c, wanted.group); err != nil {
			return err
		}
	}
	if was != wanted || spec.Stopped || aws.StateOf(i) == types.InstanceStateNameStopping {
		if !isDown(aws.StateOf(i)) {
			if beforeStop != nil {
				if err := beforeStop(ctx, machineOf(i)); err != nil {
					return err
				}
			}
			if _, err := c.EC2.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: []string{id}}); err != nil {
				return fmt.Errorf("stop: %w", err)
			}
		}
		if _, err := c.AwaitState(ctx, id, types.InstanceStateNameStopped); err != nil {
			return err
		}
	}
	now := was
	if was != wanted {
		err := reshape(ctx, c, id, &now, wanted)
		if err == nil && was.instanceType != wanted.instanceType && spec.CPUCredits != "" {
			err = creditsAfter(ctx, c, spec, id)
		}
		if err != nil {
			if spec.Stopped {
				return err
			}
			return errors.Join(err, changeBack(ctx, c, id, now, was))
		}
	}
	if spec.Stopped {
		return nil
	}
	_, err := c.EC2.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: []string{id}})
	if err == nil {
		_, err = c.AwaitState(ctx, id, types.InstanceStateNameRunning)
		return err
	}
	err = aboutPlacement(c.WithZones(ctx, err, now.instanceType))
	if was == now {
		return fmt.Errorf("start: %w", err)
	}
	// Only now EC2 says that the zone lacks the type, or that there is no room for it.
	what := "start it as " + now.instanceType
	if now.group != "" {
		what += " in placement group " + now.group
	}
	return errors.Join(fmt.Errorf("%s: %w", what, err), changeBack(ctx, c, id, now, was))
}

// reshape gives a stopped instance another shape, and notes in now what it has.
func reshape(ctx context.Context, c *aws.Client, id string, now *shape, wanted shape) error {
	regroup := func() error {
		if now.group == wanted.group {
			return nil
		}
		if _, err := c.EC2.ModifyInstancePlacement(ctx, &ec2.ModifyInstancePlacementInput{InstanceId: &id, GroupName: &wanted.group}, c.RetryInDoubt()); err != nil {
			return fmt.Errorf("change the placement group from %q to %q: %w", now.group, wanted.group, aboutPlacement(err))
		}
		now.group = wanted.group
		return nil
	}
	if wanted.group == "" { // the group may not take the type
		if err := regroup(); err != nil {
			return err
		}
	}
	if now.instanceType != wanted.instanceType {
		if _, err := c.EC2.ModifyInstanceAttribute(ctx, &ec2.ModifyInstanceAttributeInput{
			InstanceId: &id, InstanceType: &types.AttributeValue{Value: &wanted.instanceType},
		}); err != nil {
			return fmt.Errorf("change the instance type to %s: %w", wanted.instanceType, err)
		}
		now.instanceType = wanted.instanceType
	}
	return regroup()
}

// changeBack gives an instance its old shape again and starts it, on a context of its own.
func changeBack(ctx context.Context, c *aws.Client, id string, now, was shape) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience.Of(ctx, startAgainBudget))
	defer cancel()
	if err := reshape(ctx, c, id, &now, was); err != nil {
		return fmt.Errorf("undo that: %w", err)
	}
	return startAgain(ctx, c, id)
}

// startAgain starts an instance as it was, on a context of its own, after a change was refused.
func startAgain(ctx context.Context, c *aws.Client, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience.Of(ctx, startAgainBudget))
	defer cancel()
	if _, err := c.EC2.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: []string{id}}); err != nil {
		return fmt.Errorf("start it again as it was: %w", err)
	}
	_, err := c.AwaitState(ctx, id, types.InstanceStateNameRunning)
	return err
}

// startAgainBudget is several times what EC2 takes to start an instance.
const startAgainBudget = 2 * time.Minute
