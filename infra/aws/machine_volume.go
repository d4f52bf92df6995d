package aws

import (
	"context"
	"fmt"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
)

// volumeBudget is how long EC2 may take to give an enlarged volume its new size: usually seconds,
// while the optimization of its blocks may continue for hours.
// https://docs.aws.amazon.com/ebs/latest/userguide/monitoring-volume-modifications.html
const volumeBudget = 5 * time.Minute

// growVolume enlarges a volume, which may be in use, to gib GiB and waits until it has its new
// size: when its modification is "optimizing" or "completed". A modification to the same size that
// an interrupted call left under way is waited for; EC2 refuses a second one beside it.
func (c *Client) growVolume(ctx context.Context, id string, gib int32) error {
	_, underWay := c.EC2.ModifyVolume(ctx, &ec2.ModifyVolumeInput{VolumeId: &id, Size: &gib})
	if err := ignore(underWay, "IncorrectModificationState"); err != nil {
		return fmt.Errorf("enlarge volume %s to %d GiB: %w", id, gib, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, volumeBudget, fmt.Errorf("not within %s", volumeBudget))
	defer cancel()
	return poll(ctx, "wait until volume "+id+" has its new size", func(ctx context.Context) (bool, string, error) {
		out, err := c.EC2.DescribeVolumesModifications(ctx, &ec2.DescribeVolumesModificationsInput{VolumeIds: []string{id}})
		if err = ignore(err, "InvalidVolumeModification.NotFound"); err != nil || out == nil {
			return false, "no modification yet", err
		}
		for _, m := range out.VolumesModifications {
			if sdk.ToInt32(m.TargetSize) != gib {
				if underWay != nil {
					return false, "", fmt.Errorf("enlarge volume %s to %d GiB: %w", id, gib, underWay)
				}
				continue // an earlier one
			}
			switch m.ModificationState {
			case types.VolumeModificationStateOptimizing, types.VolumeModificationStateCompleted:
				return true, "", nil
			case types.VolumeModificationStateFailed:
				return false, "", fmt.Errorf("the modification failed: %s", sdk.ToString(m.StatusMessage))
			}
		}
		return false, "modifying", nil
	})
}

// GrowRoot grows the machine's root partition and file system to its enlarged root volume of gib
// GiB, without a stop. A root that is not on a disk is left alone.
func GrowRoot(ctx context.Context, m Machine, gib int32, connect Connect) error {
	if err := deed.GrowRoot(ctx, connect(m, []string{m.HostKey}), int64(gib)<<30); err != nil {
		return fmt.Errorf("machine %s (%s): grow the root file system: %w", m.Name, m.ID, err)
	}
	return nil
}
