package volume

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// changeBudget is how long EC2 may take to give an enlarged volume its new size: usually seconds,
// while the optimization of its blocks may continue for hours.
// https://docs.aws.amazon.com/ebs/latest/userguide/monitoring-volume-modifications.html
const changeBudget = 5 * time.Minute

// Change is what of a volume is to be changed: an empty type and nil numbers stay as they are.
type Change struct {
	id                     string
	typ                    string
	size, iops, throughput *int32 // GiB, MiB/s
}

// Apply changes a volume, which may be in use, and waits until it has its new size and
// performance: when its modification is "optimizing" or "completed". A modification to the same that
// an interrupted call left under way is waited for; EC2 refuses a second one beside it.
func Apply(ctx context.Context, c *aws.Client, change Change) error {
	_, underWay := c.EC2.ModifyVolume(ctx, &ec2.ModifyVolumeInput{
		VolumeId: &change.id, VolumeType: types.VolumeType(change.typ), Size: change.size, Iops: change.iops, Throughput: change.throughput,
	})
	if err := aws.Ignore(underWay, "IncorrectModificationState"); err != nil {
		return fmt.Errorf("%s: %w", change, err)
	}
	ctx, cancel := patience.Within(ctx, changeBudget)
	defer cancel()
	return aws.Poll(ctx, "wait until "+change.String()+" has taken effect", func(ctx context.Context) (bool, string, error) {
		out, err := c.EC2.DescribeVolumesModifications(ctx, &ec2.DescribeVolumesModificationsInput{VolumeIds: []string{change.id}})
		if err = aws.Ignore(err, "InvalidVolumeModification.NotFound"); err != nil || out == nil {
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
func (v Change) leadsTo(m types.VolumeModification) bool {
	same := func(wanted, target *int32) bool { return wanted == nil || *wanted == sdk.ToInt32(target) }
	return (v.typ == "" || v.typ == string(m.TargetVolumeType)) && same(v.size, m.TargetSize) && same(v.iops, m.TargetIops) && same(v.throughput, m.TargetThroughput)
}

// String says what is changed.
func (v Change) String() string {
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

// Kinds are the kinds of findings about a volume.
type Kinds struct{ Size, Type, IOPS, Throughput finding.Kind }

// Compare returns how a volume differs from what is wanted, without subjects, and the change that
// repairs all differences in one call: EC2 takes four changes in 24 hours. A size is only ever
// increased.
func (k Kinds) Compare(id string, foundGiB int32, found Performance, wantedGiB int32, wanted Performance) (differs []finding.Finding, change Change) {
	change.id = id
	number := func(kind finding.Kind, found, wanted int32, field **int32) {
		differs = append(differs, finding.Finding{Kind: kind, Problem: finding.Value, Found: strconv.Itoa(int(found)), Wanted: strconv.Itoa(int(wanted))})
		*field = &wanted
	}
	if found.Type != wanted.Type {
		differs = append(differs, finding.Finding{Kind: k.Type, Problem: finding.Value, Found: found.Type, Wanted: wanted.Type})
		change.typ = wanted.Type
	}
	if foundGiB < wantedGiB {
		number(k.Size, foundGiB, wantedGiB, &change.size)
	}
	if want := wanted.WantedIOPS(); want != 0 && found.IOPS != want {
		number(k.IOPS, found.IOPS, want, &change.iops)
	}
	if want := wanted.ThroughputMiB; want != 0 && found.ThroughputMiB != want {
		number(k.Throughput, found.ThroughputMiB, want, &change.throughput)
	}
	if change.typ != "" {
		change.iops, change.throughput = aws.NonZero(wanted.WantedIOPS()), aws.NonZero(wanted.ThroughputMiB)
	}
	return differs, change
}
