package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

// Ensure returns an image with the wanted content that is available: the one that an interrupted run has left, or a new one of the
// instance that from returns. That instance is stopped, its root volume is encrypted, and it is the same one whenever from is called
// after an interruption. from is not called if there is an image.
//
// Images of other owners are left alone, also with the same name and content, unless the claim adopts them. With an error the image
// is returned if it exists, since it costs money; if the error is a ClaimedError, or the image has failed, nothing is left.
func Ensure(ctx context.Context, c *aws.Client, spec Spec, from func(context.Context) (instance string, err error)) (Image, error) {
	i, err := left(ctx, c, spec)
	if errors.Is(err, aws.ErrNotFound) {
		var instance string
		if instance, err = from(ctx); err == nil {
			i, err = create(ctx, c, spec, instance)
		}
	}
	if err == nil {
		i, err = await(ctx, c, i, spec)
	}
	if err == nil {
		err = confirm(ctx, c, i, spec)
	}
	if aws.IsClaimed(err) {
		return Image{}, aws.Raced(err)
	}
	return i, spec.about(i.ID, err)
}

// left returns the image that an interrupted create of the same content has left, and claims it. Those that have failed are
// deleted. The error is ErrNotFound if there is none.
func left(ctx context.Context, c *aws.Client, spec Spec) (Image, error) {
	found, err := named(ctx, c, spec)
	if err != nil {
		return Image{}, err
	}
	for _, i := range found {
		take, err := spec.judge(i, false)
		other := i.ends() || i.Content != spec.Content
		if err != nil || i.Retired() || other && !aws.OwnerOf(i.Tags).Unsettled() {
			continue // the image of another state, or that which this one replaces
		}
		if take {
			if i, err = takeOver(ctx, c, i, spec); err != nil {
				return Image{}, err
			}
		}
		if other {
			if err := remove(ctx, c, i); err != nil {
				return Image{}, err
			}
			continue
		}
		return i, nil
	}
	return Image{}, fmt.Errorf("image %s %w", spec.Name, aws.ErrNotFound)
}

// contentLength is how much of the content's digest is in the name of an image.
const contentLength = 12

// amiName returns the name that the image of an instance has: CreateImage has no client token, and a second image of the same
// name is refused.
func (s Spec) amiName(instance string) string {
	return fmt.Sprintf("%s-%s-%s-%s", s.Cluster, s.Name, s.Content[:min(contentLength, len(s.Content))], instance)
}

// create makes the image of an instance, or finds the one that an interrupted run has made of it.
func create(ctx context.Context, c *aws.Client, spec Spec, instance string) (Image, error) {
	tags, name := tagsOf(c, spec), spec.amiName(instance)
	out, err := c.EC2.CreateImage(ctx, &ec2.CreateImageInput{
		InstanceId: &instance, Name: &name, Description: sdk.String(cmp.Or(spec.Versions, name)),
		TagSpecifications: []types.TagSpecification{
			aws.TagSpecification(types.ResourceTypeImage, tags), aws.TagSpecification(types.ResourceTypeSnapshot, tags),
		},
		// An image of this instance may have failed a moment ago.
	}, c.RetryOn(aws.ConsistencyAttempts, "InvalidInstanceID.NotFound", "SnapshotCreationPerVolumeRateExceeded"))
	if aws.IsCode(err, "InvalidAMIName.Duplicate") {
		return byName(ctx, c, spec, name)
	}
	if err != nil {
		return Image{}, fmt.Errorf("make it of instance %s: %w", instance, err)
	}
	return Image{
		ID: sdk.ToString(out.ImageId), AMIName: name, Cluster: spec.Cluster, Name: spec.Name, Content: spec.Content, State: string(types.ImageStatePending),
		Tags: tags, Claim: spec.Claim, Unsettled: []string{sdk.ToString(out.ImageId)},
	}, nil
}

// byName finds the image that an interrupted run has made, which EC2 may not show by its tags yet.
func byName(ctx context.Context, c *aws.Client, spec Spec, name string) (Image, error) {
	var i Image
	seen := 0
	err := aws.Poll(ctx, "find the image that an earlier run has made", func(ctx context.Context) (bool, string, error) {
		found, err := list(ctx, c, aws.Filter("name", name))
		if err == nil && len(found) > 0 {
			i = found[0]
		}
		if seen++; err == nil && i.ID == "" && seen >= aws.ConsistencyAttempts {
			err = fmt.Errorf("EC2 says that there is an image %s, and does not show it", name)
		}
		return i.ID != "", "nothing yet", err
	})
	if err != nil {
		return Image{}, err
	}
	take, err := spec.judge(i, false)
	if err == nil && take {
		i, err = takeOver(ctx, c, i, spec)
	}
	return i, err
}

// FailedError says that EC2 could not make an image. Nothing of it is left.
type FailedError struct {
	ID, State string
	Reason    string // as EC2 says it
}

func (e *FailedError) Error() string {
	return fmt.Sprintf("EC2 could not make it: %s is %s: %s", e.ID, e.State, cmp.Or(e.Reason, "no reason given"))
}

// await waits until an image is available. That takes minutes, and more for a larger volume.
func await(ctx context.Context, c *aws.Client, i Image, spec Spec) (Image, error) {
	unseen := 0
	var failed *FailedError
	err := aws.Poll(ctx, "wait until it is available", func(ctx context.Context) (bool, string, error) {
		now, err := Find(ctx, c, i.ID)
		if errors.Is(err, aws.ErrNotFound) && unseen < aws.ConsistencyAttempts {
			unseen++
			return false, "not shown by EC2 yet", nil
		}
		if err != nil {
			return false, "", err
		}
		if _, err := spec.judge(now, true); err != nil {
			return false, "", err
		}
		i = now
		if i.ends() {
			failed = &FailedError{ID: i.ID, State: i.State, Reason: reason(ctx, c, i)}
			return false, i.State, failed
		}
		return i.State == string(types.ImageStateAvailable), i.State, nil
	})
	if failed == nil {
		return i, err
	}
	if left := remove(ctx, c, i); left != nil {
		return i, errors.Join(err, left)
	}
	return Image{}, err
}

// reason returns why an image has failed. Its snapshots say more than the image.
func reason(ctx context.Context, c *aws.Client, i Image) string {
	found, _ := snapshotsOf(ctx, c, i.ID) // without them the image's own reason remains
	for _, s := range found {
		if m := sdk.ToString(s.StateMessage); m != "" {
			return m
		}
	}
	return i.Reason
}

// confirm looks whose the image is now.
func confirm(ctx context.Context, c *aws.Client, i Image, spec Spec) error {
	if spec.Claim.ID == "" {
		return nil
	}
	_, err := owned(ctx, c, i.ID, spec)
	return err
}
