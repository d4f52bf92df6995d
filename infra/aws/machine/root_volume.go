package machine

import (
	"context"
	"fmt"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/volume"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// aboutRootKey adds the name of the argument to an error about an instance that ended, if the KMS key of its
// root volume is the only or the most likely reason.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/troubleshooting-launch.html
func aboutRootKey(spec Spec, i types.Instance, err error) error {
	code := ""
	if i.StateReason != nil {
		code = sdk.ToString(i.StateReason.Code)
	}
	if !strings.HasPrefix(code, "Client.InvalidKMSKey") && code != "Client.InternalError" {
		return err
	}
	return &invalid.Field{Field: "root_volume_kms_key_id", Problem: "Unusable KMS key", Err: fmt.Errorf("%w: EC2 most likely cannot use %s", err, volume.NeededOfKey(spec.RootVolumeKey))}
}

// GrowRoot grows the machine's root partition and file system to its enlarged root volume of gib
// GiB, without a stop. A root that is not on a disk is left alone.
func GrowRoot(ctx context.Context, m Machine, gib int32, connect Connect) error {
	if err := deed.GrowRoot(ctx, connect(m, []string{m.HostKey}), int64(gib)<<30); err != nil {
		return fmt.Errorf("machine %s (%s): grow the root file system: %w", m.Name, m.ID, err)
	}
	return nil
}
