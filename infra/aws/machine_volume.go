package aws

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// volumeBudget is how long EC2 may take to give an enlarged volume its new size: usually seconds,
// while the optimization of its blocks may continue for hours.
// https://docs.aws.amazon.com/ebs/latest/userguide/monitoring-volume-modifications.html
const volumeBudget = 5 * time.Minute

// chosen returns nil for an empty text.
func chosen(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// aboutRootKey gives the end of an instance for which the KMS key of its root volume is the only or the most
// likely reason the name of the argument.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/troubleshooting-launch.html
func aboutRootKey(spec MachineSpec, i types.Instance, err error) error {
	code := ""
	if i.StateReason != nil {
		code = sdk.ToString(i.StateReason.Code)
	}
	if !strings.HasPrefix(code, "Client.InvalidKMSKey") && code != "Client.InternalError" {
		return err
	}
	key := "the account's KMS key for EBS"
	if spec.RootVolumeKey != "" {
		key = "the KMS key " + spec.RootVolumeKey
	}
	return &invalid.Field{Field: "root_volume_kms_key_id", Problem: "Unusable KMS key", Err: fmt.Errorf("%w: EC2 most likely cannot use %s for the root volume: it must exist in this region and be enabled, "+
		"and the caller must be allowed kms:CreateGrant, kms:Decrypt, kms:DescribeKey, kms:GenerateDataKeyWithoutPlaintext on it", err, key)}
}

// volumeChange is what of a volume is to be changed: an empty type and nil numbers stay as they are.
type volumeChange struct {
	id                     string
	typ                    string
	size, iops, throughput *int32 // GiB, MiB/s
}

// changeVolume changes a volume, which may be in use, and waits until it has its new size and
// performance: when its modification is "optimizing" or "completed". A modification to the same that
// an interrupted call left under way is waited for; EC2 refuses a second one beside it.
func (c *Client) changeVolume(ctx context.Context, change volumeChange) error {
	_, underWay := c.EC2.ModifyVolume(ctx, &ec2.ModifyVolumeInput{
		VolumeId: &change.id, VolumeType: types.VolumeType(change.typ), Size: change.size, Iops: change.iops, Throughput: change.throughput,
	})
	if err := ignore(underWay, "IncorrectModificationState"); err != nil {
		return fmt.Errorf("%s: %w", change, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, volumeBudget, fmt.Errorf("not within %s", volumeBudget))
	defer cancel()
	return poll(ctx, "wait until "+change.String()+" has taken effect", func(ctx context.Context) (bool, string, error) {
		out, err := c.EC2.DescribeVolumesModifications(ctx, &ec2.DescribeVolumesModificationsInput{VolumeIds: []string{change.id}})
		if err = ignore(err, "InvalidVolumeModification.NotFound"); err != nil || out == nil {
			return false, "no modification yet", err
		}
		for _, m := range out.VolumesModifications {
			if !change.leadsTo(m) {
				if underWay != nil {
					return false, "", fmt.Errorf("%s: %w", change, underWay)
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

// leadsTo reports whether a modification is the one that the change makes.
func (v volumeChange) leadsTo(m types.VolumeModification) bool {
	same := func(wanted, target *int32) bool { return wanted == nil || *wanted == sdk.ToInt32(target) }
	return (v.typ == "" || v.typ == string(m.TargetVolumeType)) && same(v.size, m.TargetSize) && same(v.iops, m.TargetIops) && same(v.throughput, m.TargetThroughput)
}

// String says what is changed.
func (v volumeChange) String() string {
	var parts []string
	if v.typ != "" {
		parts = append(parts, v.typ)
	}
	for _, n := range []struct {
		number *int32
		unit   string
	}{{v.size, " GiB"}, {v.iops, " IOPS"}, {v.throughput, " MiB/s"}} {
		if n.number != nil {
			parts = append(parts, strconv.Itoa(int(*n.number))+n.unit)
		}
	}
	return "the change of volume " + v.id + " to " + strings.Join(parts, ", ")
}

// GrowRoot grows the machine's root partition and file system to its enlarged root volume of gib
// GiB, without a stop. A root that is not on a disk is left alone.
func GrowRoot(ctx context.Context, m Machine, gib int32, connect Connect) error {
	if err := deed.GrowRoot(ctx, connect(m, []string{m.HostKey}), int64(gib)<<30); err != nil {
		return fmt.Errorf("machine %s (%s): grow the root file system: %w", m.Name, m.ID, err)
	}
	return nil
}
