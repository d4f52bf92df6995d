package ec2_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

const keyID = "1234abcd-12ab-34cd-56ef-1234567890ab"

// TestKeysOfVolumes: an encrypted volume shows the ARN of its key. An instance whose key cannot be used ends
// when it is launched, and stops when it is started. A volume vanishes.
func TestKeysOfVolumes(t *testing.T) {
	l := cloudtest.New(t)
	s, ctx := l.NewSite(t), t.Context()
	launch := func(key *string) (types.Instance, types.Volume) {
		t.Helper()
		in := s.RunInput()
		in.BlockDeviceMappings = []types.BlockDeviceMapping{{DeviceName: aws.String("/dev/xvda"), Ebs: &types.EbsBlockDevice{Encrypted: aws.Bool(true), KmsKeyId: key}}}
		i := cloudtest.Must[*awsec2.RunInstancesOutput](t)(l.RunInstances(ctx, in)).Instances[0]
		all := cloudtest.Must[*awsec2.DescribeVolumesOutput](t)(l.DescribeVolumes(ctx, &awsec2.DescribeVolumesInput{
			Filters: []types.Filter{{Name: aws.String("attachment.instance-id"), Values: []string{*i.InstanceId}}}}))
		if len(all.Volumes) != 1 {
			return i, types.Volume{}
		}
		return i, all.Volumes[0]
	}
	arn := "arn:aws:kms:us-east-1:123456789012:key/"
	var first types.Instance
	for _, key := range []string{keyID, arn + keyID} {
		i, v := launch(&key)
		if aws.ToString(v.KmsKeyId) != arn+keyID {
			t.Errorf("%s: the volume has %q", key, aws.ToString(v.KmsKeyId))
		}
		first = i
	}
	_, byDefault := launch(nil)
	_, byAlias := launch(aws.String("alias/aws/ebs"))
	if got := aws.ToString(byDefault.KmsKeyId); !strings.HasPrefix(got, arn) || got != aws.ToString(byAlias.KmsKeyId) {
		t.Errorf("the default key is %q, and alias/aws/ebs %q", got, aws.ToString(byAlias.KmsKeyId))
	}
	l.Await(t, *first.InstanceId, types.InstanceStateNameRunning)

	l.Fault(t, cloudtest.Fields{"kind": "key", "name": keyID})
	l.Fault(t, cloudtest.Fields{"kind": "key", "name": "alias/gone"})
	for _, key := range []string{keyID, arn + keyID, "alias/gone", "arn:aws:kms:us-east-1:123456789012:alias/gone", "nonsense", "arn:aws:kms:eu-west-1:123456789012:key/" + keyID} {
		i, _ := launch(&key)
		if got := l.Await(t, *i.InstanceId, types.InstanceStateNameTerminated); got.StateReason == nil || *got.StateReason.Code != "Client.InvalidKMSKey.InvalidState" {
			t.Errorf("%s: launched, and then %v", key, got.StateReason)
		}
		v := cloudtest.Must[*awsec2.CreateVolumeOutput](t)(l.CreateVolume(ctx, &awsec2.CreateVolumeInput{
			AvailabilityZone: aws.String("us-east-1a"), Size: aws.Int32(1), Encrypted: aws.Bool(true), KmsKeyId: &key}))
		if v.State != types.VolumeStateCreating {
			t.Errorf("%s: a volume is %s", key, v.State)
		}
		cloudtest.Eventually(t, "the volume vanishes", func() bool {
			_, err := l.DescribeVolumes(ctx, &awsec2.DescribeVolumesInput{VolumeIds: []string{*v.VolumeId}})
			return cloudtest.Code(err) == "InvalidVolume.NotFound"
		})
	}
	another, _ := launch(aws.String("alias/here"))
	l.Await(t, *another.InstanceId, types.InstanceStateNameRunning)

	cloudtest.Must[*awsec2.StopInstancesOutput](t)(l.StopInstances(ctx, &awsec2.StopInstancesInput{InstanceIds: []string{*first.InstanceId}}))
	l.Await(t, *first.InstanceId, types.InstanceStateNameStopped)
	cloudtest.Must[*awsec2.StartInstancesOutput](t)(l.StartInstances(ctx, &awsec2.StartInstancesInput{InstanceIds: []string{*first.InstanceId}}))
	cloudtest.Eventually(t, "the start fails", func() bool {
		got := l.Instance(t, *first.InstanceId)
		return got.State.Name == types.InstanceStateNameStopped && got.StateReason != nil && *got.StateReason.Code == "Client.InternalError"
	})
}
