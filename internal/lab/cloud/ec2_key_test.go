package cloud_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

const keyID = "1234abcd-12ab-34cd-56ef-1234567890ab"

// TestKeysOfVolumes: an encrypted volume shows the ARN of its key. An instance whose key cannot be used ends
// when it is launched, and stops when it is started. A volume vanishes.
func TestKeysOfVolumes(t *testing.T) {
	l := newLab(t)
	s, ctx := l.site(t), t.Context()
	launch := func(key *string) (types.Instance, types.Volume) {
		t.Helper()
		in := s.runInput()
		in.BlockDeviceMappings = []types.BlockDeviceMapping{{DeviceName: aws.String("/dev/xvda"), Ebs: &types.EbsBlockDevice{Encrypted: aws.Bool(true), KmsKeyId: key}}}
		i := must[*awsec2.RunInstancesOutput](t)(l.RunInstances(ctx, in)).Instances[0]
		all := must[*awsec2.DescribeVolumesOutput](t)(l.DescribeVolumes(ctx, &awsec2.DescribeVolumesInput{
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
	l.await(t, *first.InstanceId, types.InstanceStateNameRunning)

	l.fault(t, fields{"kind": "key", "name": keyID})
	l.fault(t, fields{"kind": "key", "name": "alias/gone"})
	for _, key := range []string{keyID, arn + keyID, "alias/gone", "arn:aws:kms:us-east-1:123456789012:alias/gone", "nonsense", "arn:aws:kms:eu-west-1:123456789012:key/" + keyID} {
		i, _ := launch(&key)
		if got := l.await(t, *i.InstanceId, types.InstanceStateNameTerminated); got.StateReason == nil || *got.StateReason.Code != "Client.InvalidKMSKey.InvalidState" {
			t.Errorf("%s: launched, and then %v", key, got.StateReason)
		}
		v := must[*awsec2.CreateVolumeOutput](t)(l.CreateVolume(ctx, &awsec2.CreateVolumeInput{
			AvailabilityZone: aws.String("us-east-1a"), Size: aws.Int32(1), Encrypted: aws.Bool(true), KmsKeyId: &key}))
		if v.State != types.VolumeStateCreating {
			t.Errorf("%s: a volume is %s", key, v.State)
		}
		eventually(t, "the volume vanishes", func() bool {
			_, err := l.DescribeVolumes(ctx, &awsec2.DescribeVolumesInput{VolumeIds: []string{*v.VolumeId}})
			return code(err) == "InvalidVolume.NotFound"
		})
	}
	another, _ := launch(aws.String("alias/here"))
	l.await(t, *another.InstanceId, types.InstanceStateNameRunning)

	must[*awsec2.StopInstancesOutput](t)(l.StopInstances(ctx, &awsec2.StopInstancesInput{InstanceIds: []string{*first.InstanceId}}))
	l.await(t, *first.InstanceId, types.InstanceStateNameStopped)
	must[*awsec2.StartInstancesOutput](t)(l.StartInstances(ctx, &awsec2.StartInstancesInput{InstanceIds: []string{*first.InstanceId}}))
	eventually(t, "the start fails", func() bool {
		got := l.instance(t, *first.InstanceId)
		return got.State.Name == types.InstanceStateNameStopped && got.StateReason != nil && *got.StateReason.Code == "Client.InternalError"
	})
}
